"""Clients for Dynamo's worker discovery: files in a folder, or keys in etcd.

The name of a record ends in the worker's id in hexadecimal. A drain begins by deleting the record:
the router stops choosing the worker, which finishes the requests it has.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx

from penstock.local.state_file import DiscoveryState, EtcdDiscoveryState

CARDS = "mdc"  # model deployment cards


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One registered worker endpoint."""

    worker_id: int
    namespace: str
    component: str
    endpoint: str
    address: str


class Discovery(Protocol):
    """Reads as empty when the backend does not respond: the drain continues, and Dynamo removes the
    worker's records by itself."""

    async def instances(self) -> tuple[Instance, ...]: ...

    async def remove(self, worker_id: int) -> None:
        """Delete all records of the worker: endpoints, model card and event sources."""

    async def remove_model_card(self, worker_id: int) -> None:
        """Delete only the model card. Without the last card of a generation, frontends choose that
        generation for no new request, while running requests still find its workers."""


def open_discovery(state: DiscoveryState) -> Discovery:
    """A client for the discovery backend that the state file names."""
    if isinstance(state, EtcdDiscoveryState):
        return EtcdDiscovery(state.endpoint, state.namespace)
    return FileDiscovery(Path(state.folder))


def _instance(record: dict[str, Any]) -> Instance | None:
    if record.get("type") != "Endpoint":
        return None
    transport = record.get("transport") or {}
    return Instance(
        worker_id=int(record["instance_id"]),
        namespace=str(record["namespace"]),
        component=str(record["component"]),
        endpoint=str(record["endpoint"]),
        address=str(next(iter(transport.values()), "")),
    )


def _is_of(worker_id: int, name: str, content: str) -> bool:
    """Whether a record is the worker's: by its name, or by its content (event sources)."""
    return name.endswith(f"{worker_id:x}") or f'"worker_id":{worker_id},' in content


class FileDiscovery:
    """`DYN_DISCOVERY_BACKEND=file`: `<root>/v1/{instances,mdc,event_sources}/…`."""

    def __init__(self, root: Path) -> None:
        self._root = root / "v1"

    async def instances(self) -> tuple[Instance, ...]:
        found = (_instance(_json(p)) for p in sorted((self._root / "instances").glob("*")))
        return tuple(i for i in found if i is not None)

    async def remove(self, worker_id: int) -> None:
        self._unlink("*", worker_id)

    async def remove_model_card(self, worker_id: int) -> None:
        self._unlink(CARDS, worker_id)

    def _unlink(self, kind: str, worker_id: int) -> None:
        for path in self._root.glob(f"{kind}/*"):
            if _is_of(worker_id, path.name, _text(path)):
                path.unlink(missing_ok=True)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # the worker removed it meanwhile


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_text(path) or "{}")
    except json.JSONDecodeError:
        return {}  # still being written; the next poll reads it
    return content if isinstance(content, dict) else {}


class EtcdDiscovery:
    """`DYN_DISCOVERY_BACKEND=etcd`, through etcd's JSON gateway, which needs no client library.

    Deletes keys, never leases: a worker whose lease is revoked shuts down at once.
    """

    def __init__(self, endpoint: str, namespace: str) -> None:
        self._url = endpoint.rstrip("/")
        self._namespace = namespace

    async def instances(self) -> tuple[Instance, ...]:
        found = (_instance(_loads(value)) for _, value in await self._records("v1/instances/"))
        return tuple(i for i in found if i is not None and i.namespace.startswith(self._namespace))

    async def remove(self, worker_id: int) -> None:
        await self._delete("v1/", worker_id)

    async def remove_model_card(self, worker_id: int) -> None:
        await self._delete(f"v1/{CARDS}/", worker_id)

    async def _delete(self, prefix: str, worker_id: int) -> None:
        for key, value in await self._records(prefix):
            if self._namespace in key and _is_of(worker_id, key, value):
                await self._post("deleterange", {"key": _b64(key)})

    async def _records(self, prefix: str) -> list[tuple[str, str]]:
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        answer = await self._post("range", {"key": _b64(prefix), "range_end": _b64(end)})
        return [(_unb64(kv["key"]), _unb64(kv.get("value", ""))) for kv in answer.get("kvs", [])]

    async def _post(self, verb: str, body: dict[str, str]) -> dict[str, Any]:
        async with httpx.AsyncClient(timeout=5, trust_env=False) as client:
            try:
                answer = await client.post(f"{self._url}/v3/kv/{verb}", json=body)
                answer.raise_for_status()
            except httpx.HTTPError:
                return {}
            content = answer.json()
            return content if isinstance(content, dict) else {}


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
