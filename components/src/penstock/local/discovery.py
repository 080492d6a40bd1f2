"""Clients for Dynamo's worker discovery: files in a folder, or keys in etcd.

The name of a record ends in the worker's id in hexadecimal. A drain begins by deleting the record:
the router stops choosing the worker, which finishes the requests it has.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.files import write_file
from penstock.local.state_file import DiscoveryState, EtcdDiscoveryState, FileDiscoveryState

if TYPE_CHECKING:
    from penstock.local.deployment import Infrastructure

CARDS = "mdc"  # model deployment cards
INSTANCES = "instances"
_WORKER = re.compile(r'"(?:instance_id|worker_id)":\s*(\d+)')
TTL_S = 10.0  # a record in a file expires when it was not refreshed for this long


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One registered worker endpoint."""

    worker_id: int
    namespace: str
    component: str
    endpoint: str
    address: str


class Discovery(ABC):
    """`remove` does nothing when the backend does not respond: the drain continues, and Dynamo
    removes the worker's records by itself."""

    @abstractmethod
    async def instances(self) -> tuple[Instance, ...] | None:
        """The registered endpoints of all workers; None when the backend does not respond."""

    @abstractmethod
    async def remove(self, worker_id: int) -> None:
        """Delete all records of the worker: endpoints, model card and event sources."""

    @abstractmethod
    async def remove_model_card(self, worker_id: int) -> None:
        """Delete only the model card. Without the last card of a generation, frontends choose that
        generation for no new request, while running requests still find its workers."""

    def register_again(self, workers: Collection[int]) -> set[int]:
        """Restore the records of those ``workers`` that lost them although they run.

        Returns the ids of the workers that had lost records. None in etcd: a record belongs to a
        lease, and its worker exits when that expires.
        """
        return set()

    def has_left(self, worker_id: int) -> bool:
        """Whether the worker has removed its records itself, as it does when it shuts down.

        Not known in etcd, where an expired lease looks the same.
        """
        return False

    def watched_folders(self) -> Mapping[str, int]:
        """Folder that processes of Dynamo watch → generation; it grows when the folder is created
        again."""
        return {}

    def is_watched(self, folders: Mapping[str, int]) -> bool:
        """Whether a process that watches these folders still sees changes.

        A watch of inotify ends with its folder, and Dynamo does not watch the one that replaces it.
        """
        return True


def discovery_state(planes: Infrastructure, folder: Path, namespace: str) -> DiscoveryState:
    """Where the workers register, as the state file names it."""
    if planes.discovery == "etcd":
        return EtcdDiscoveryState(endpoint=planes.etcd_endpoints[0], namespace=namespace)
    return FileDiscoveryState(folder=str(folder), namespace=namespace)


def open_discovery(state: DiscoveryState) -> Discovery:
    """A client for the discovery backend that the state file names."""
    if isinstance(state, EtcdDiscoveryState):
        return EtcdDiscovery(state.endpoint, state.namespace)
    return FileDiscovery(Path(state.folder))


def _instance(record: dict[str, Any]) -> Instance | None:
    if record.get("type") != "Endpoint":
        return None
    transport = record.get("transport")
    addresses = transport.values() if isinstance(transport, dict) else ()
    try:
        return Instance(
            worker_id=int(record["instance_id"]),
            namespace=str(record["namespace"]),
            component=str(record["component"]),
            endpoint=str(record["endpoint"]),
            address=str(next(iter(addresses), "")),
        )
    except (LookupError, ValueError, TypeError):
        return None  # not written by Dynamo


def _is_of(worker_id: int, name: str, content: str) -> bool:
    """Whether a record is the worker's: by its name, or by its content (event sources)."""
    return name.endswith(f"{worker_id:x}") or f'"worker_id":{worker_id},' in content


@dataclass(frozen=True, kw_only=True)
class _Record:
    text: str
    modified: float
    """Unix time. Its process refreshes it about every 3 s."""

    def is_expired(self) -> bool:
        return time.time() - self.modified > TTL_S


def _record(path: Path) -> _Record | None:
    try:
        return _Record(text=path.read_text(errors="replace"), modified=path.stat().st_mtime)
    except OSError:
        return None  # the worker removed it meanwhile


class _Folder:
    """An open folder: as long as it is open, its inode is not used again."""

    def __init__(self, path: Path, count: int) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self.count = count

    def is_at(self, path: Path) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), path.stat())
        except OSError:
            return False

    def __del__(self) -> None:
        os.close(self._descriptor)


class FileDiscovery(Discovery):
    """`DYN_DISCOVERY_BACKEND=file`: `<root>/v1/{instances,mdc,event_sources}/…`."""

    def __init__(self, root: Path) -> None:
        self._root = root / "v1"
        self._seen: dict[Path, _Record] = {}  # all records that processes have not removed
        self._missing: set[Path] = set()  # of these, in the last check
        self._left: set[int] = set()  # ids of workers that removed a record
        self._folders: dict[str, _Folder] = {}

    async def instances(self) -> tuple[Instance, ...] | None:
        paths = (p for p in sorted(self._root.glob("*/*")) if not p.name.startswith("."))
        records = {path: record for path in paths if (record := _record(path)) is not None}
        self._seen |= records
        texts = (r.text for path, r in records.items() if path.parent.name == INSTANCES)
        instances = (_instance(_loads(text)) for text in texts)
        return tuple(i for i in instances if i is not None)

    async def remove(self, worker_id: int) -> None:
        self._unlink("*", worker_id)
        self._seen = {p: r for p, r in self._seen.items() if not _is_of(worker_id, p.name, r.text)}

    def register_again(self, workers: Collection[int]) -> set[int]:
        """Each process of Dynamo deletes the expired records of all others, and a process whose
        record is gone does not write it again. The process refreshes a restored record.

        A worker that shuts down removes its own records, which are younger: those stay removed.
        """
        missing = {path for path in self._seen if not path.exists()}
        wiped = {folder for folder in {p.parent for p in missing} if self._is_wiped(folder)}
        lost = {p for p in missing if p.parent in wiped or self._seen[p].is_expired()}
        for path in (missing - lost) & self._missing:
            self._left |= {int(number) for number in _WORKER.findall(self._seen.pop(path).text)}
        self._missing = missing - lost
        restored = set()
        for worker_id in workers:
            lost_paths = [p for p in sorted(lost) if _is_of(worker_id, p.name, self._seen[p].text)]
            results = [self._restore(path) for path in lost_paths]
            if any(results):
                restored.add(worker_id)
        return restored

    def has_left(self, worker_id: int) -> bool:
        return worker_id in self._left

    def _restore(self, path: Path) -> bool:
        record = self._seen[path]
        draft = path.with_name(f".tmp_{path.name[-16:]}")  # Dynamo's watchers ignore this prefix
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(draft, record.text)
            draft.replace(path)
        except OSError:
            return False  # a full disk: the worker is replaced
        self._seen[path] = replace(record, modified=time.time())
        return True

    def _is_wiped(self, folder: Path) -> bool:
        """Whether the folder is gone, or was emptied with the records of several workers.

        A folder with records of one worker may have been emptied by that worker.
        """
        try:
            is_empty = not any(folder.iterdir())
        except FileNotFoundError:
            return True
        texts = (record.text for path, record in self._seen.items() if path.parent == folder)
        return is_empty and len({tuple(_WORKER.findall(text)) for text in texts}) > 1

    def watched_folders(self) -> Mapping[str, int]:
        for folder in self._root.glob("*"):
            known = self._folders.get(folder.name)
            if known is None or not known.is_at(folder):
                count = 1 if known is None else known.count + 1
                with contextlib.suppress(OSError):  # it was removed meanwhile
                    self._folders[folder.name] = _Folder(folder, count)
        return {n: f.count for n, f in self._folders.items() if f.is_at(self._root / n)}

    def is_watched(self, folders: Mapping[str, int]) -> bool:
        now = self.watched_folders()
        return all(now.get(name) == generation for name, generation in folders.items())

    async def remove_model_card(self, worker_id: int) -> None:
        self._unlink(CARDS, worker_id)

    def _unlink(self, kind: str, worker_id: int) -> None:
        for path in self._root.glob(f"{kind}/*"):
            record = _record(path)
            if record is not None and _is_of(worker_id, path.name, record.text):
                path.unlink(missing_ok=True)


class EtcdDiscovery(Discovery):
    """`DYN_DISCOVERY_BACKEND=etcd`, through etcd's JSON gateway, which needs no client library.

    Deletes keys, never leases: a worker whose lease is revoked shuts down at once.
    """

    def __init__(self, endpoint: str, namespace: str) -> None:
        self._url = endpoint.rstrip("/")
        self._namespace = namespace

    async def instances(self) -> tuple[Instance, ...] | None:
        records = await self._records(f"v1/{INSTANCES}/")
        if records is None:
            return None
        instances = (_instance(_loads(record)) for _, record in records)
        return tuple(
            i for i in instances if i is not None and i.namespace.startswith(self._namespace)
        )

    async def remove(self, worker_id: int) -> None:
        await self._delete("v1/", worker_id)

    async def remove_model_card(self, worker_id: int) -> None:
        await self._delete(f"v1/{CARDS}/", worker_id)

    async def _delete(self, prefix: str, worker_id: int) -> None:
        for key, record in await self._records(prefix) or ():
            if self._namespace in key and _is_of(worker_id, key, record):
                await self._post("deleterange", {"key": _b64(key)})

    async def _records(self, prefix: str) -> list[tuple[str, str]] | None:
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        answer = await self._post("range", {"key": _b64(prefix), "range_end": _b64(end)})
        if answer is None:
            return None
        return [(_unb64(kv["key"]), _unb64(kv.get("value", ""))) for kv in answer.get("kvs", [])]

    async def _post(self, verb: str, body: dict[str, str]) -> dict[str, Any] | None:
        import httpx  # takes long, and discovery by files does not need it

        async with httpx.AsyncClient(timeout=5, trust_env=False) as client:
            try:
                answer = await client.post(f"{self._url}/v3/kv/{verb}", json=body)
                answer.raise_for_status()
                content = answer.json()
            except (httpx.HTTPError, ValueError):
                return None
            return content if isinstance(content, dict) else None


def _loads(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return content if isinstance(content, dict) else {}


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _unb64(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")
