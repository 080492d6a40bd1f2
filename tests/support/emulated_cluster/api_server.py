"""An in-memory Kubernetes API, complete enough for Helm and the Python client.

Supports create, get, list by labels, watch, patch (merge, and server-side apply with field
managers) and delete; resourceVersion, uid, generation and dry runs; and configurable pod logs and
pod proxies. There are no schemas.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from penstock.strict_yaml.loader import SafeLoader
from tests.support.emulated_cluster import fields, protobuf

LOOPBACK = "127.0.0.1"
Object = dict[str, Any]
Key = tuple[str, str, str, str]  # apiVersion, plural, namespace, name

RESOURCES = {
    "v1": {
        "namespaces": "Namespace",
        "configmaps": "ConfigMap",
        "secrets": "Secret",
        "services": "Service",
        "serviceaccounts": "ServiceAccount",
        "persistentvolumeclaims": "PersistentVolumeClaim",
        "pods": "Pod",
        "events": "Event",
    },
    "apps/v1": {"deployments": "Deployment", "statefulsets": "StatefulSet"},
    "batch/v1": {"jobs": "Job"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
    "rbac.authorization.k8s.io/v1": {"rolebindings": "RoleBinding"},
    "nvidia.com/v1beta1": {
        "dynamographdeployments": "DynamoGraphDeployment",
        "dynamographdeploymentscalingadapters": "DynamoGraphDeploymentScalingAdapter",
    },
    "resource.nvidia.com/v1beta1": {"computedomains": "ComputeDomain"},
    "monitoring.coreos.com/v1": {"podmonitors": "PodMonitor"},
    "leaderworkerset.x-k8s.io/v1": {"leaderworkersets": "LeaderWorkerSet"},
    "autoscaling/v2": {"horizontalpodautoscalers": "HorizontalPodAutoscaler"},
    "keda.sh/v1alpha1": {"scaledobjects": "ScaledObject"},
}


class ApiError(Exception):
    """An error response of the API."""

    def __init__(self, code: int, reason: str, message: str, causes: list[Object] | None = None):
        super().__init__(message)
        details = {"causes": causes} if causes else {}
        self.code = code
        self.status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message,
            "details": details,
        }


@dataclass
class Store:
    """The objects, and a log of their changes."""

    objects: dict[Key, Object] = field(default_factory=dict)
    log: list[tuple[int, str, Key, Object]] = field(default_factory=list)
    version: int = 100
    lock: threading.Condition = field(default_factory=threading.Condition)
    # Called with the new and the old object of a write, unless it is ``trusted``; may modify the
    # new object, or raise ApiError.
    admission: list[Callable[[Object, Object | None], None]] = field(default_factory=list)

    def write(
        self, key: Key, new: Object, *, dry_run: bool = False, trusted: bool = False
    ) -> Object:
        with self.lock:
            old = self.objects.get(key)
            made = fields.copied(new)
            for admit in () if trusted else self.admission:
                admit(made, old)
            meta = made.setdefault("metadata", {})
            meta |= {"name": key[3]} | ({"namespace": key[2]} if key[2] else {})
            was = old["metadata"] if old else {"uid": str(uuid.uuid4()), "generation": 0}
            meta["uid"] = was["uid"]
            meta.setdefault("creationTimestamp", "2026-11-21T00:00:00Z")
            changed = old is None or old.get("spec") != made.get("spec")
            meta["generation"] = was["generation"] + changed
            meta["resourceVersion"] = str(self.version + 1)
            if not dry_run:
                self.version += 1
                self.objects[key] = made
                self._log_event("MODIFIED" if old else "ADDED", key, made)
            return made

    def remove(self, key: Key) -> Object:
        with self.lock:
            if key not in self.objects:
                raise ApiError(404, "NotFound", f"{key[1]} {key[3]!r} not found")
            removed = self.objects.pop(key)
            self.version += 1
            self._log_event("DELETED", key, removed)
            return removed

    def _log_event(self, kind: str, key: Key, made: Object) -> None:
        self.log.append((self.version, kind, key, fields.copied(made)))
        self.lock.notify_all()

    def of_kind(self, kind: str) -> list[Object]:
        with self.lock:
            return [fields.copied(o) for o in self.objects.values() if o.get("kind") == kind]

    def events_after(self, version: int, until: float) -> Iterator[tuple[str, Key, Object]]:
        """Changes after ``version`` as they happen, until the clock reaches ``until``."""
        while (left := until - time.monotonic()) > 0:
            with self.lock:
                fresh = [entry for entry in self.log if entry[0] > version]
                if not fresh:
                    self.lock.wait(min(left, 0.2))
            for number, kind, key, made in fresh:
                version = number
                yield kind, key, made


@dataclass
class ApiServer:
    """`with ApiServer() as api:` serves on loopback; ``kubeconfig`` selects it."""

    store: Store = field(default_factory=Store)
    requests: list[str] = field(default_factory=list)
    gate: Callable[[str], None] = field(default=lambda _: None)  # may raise ApiError for a path
    logs: dict[str, str] = field(default_factory=dict)  # by pod
    served: dict[str, str] = field(default_factory=dict)  # response of every pod by "port/path"

    def __enter__(self) -> ApiServer:
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = ThreadingHTTPServer((LOOPBACK, 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        for name in ("default", "kube-system"):
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self.store.write(("v1", "namespaces", "", name), space)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    @property
    def kubeconfig(self) -> str:
        context = {"cluster": "emulated", "user": "tester", "namespace": "default"}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "emulated",
                "clusters": [{"name": "emulated", "cluster": {"server": self.url}}],
                "users": [{"name": "tester", "user": {"token": "no-secret"}}],
                "contexts": [{"name": "emulated", "context": context}],
            }
        )


class _Handler(BaseHTTPRequestHandler):
    api: ApiServer
    protocol_version = "HTTP/1.1"
    # With Nagle's algorithm the second packet of a response waits 40 ms for the first one's ACK.
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/openapi/v2":
            self._send(200, None)  # an empty document: clients skip kinds that are not in it
            return
        self.api.requests.append(f"{self.command} {self.path}")
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        try:
            self.api.gate(parts.path)
            body = None if self.command == "DELETE" else _read(raw)
            answer = self._answer([p for p in parts.path.split("/") if p], query, body)
        except ApiError as error:
            self._send(error.code, error.status)
            return
        if answer is not None:
            code, content = answer
            self._send(code, content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

    def _send(self, code: int, content: Object | None) -> None:
        self._send_text(code, json.dumps(content) if content is not None else "")

    def _send_text(self, code: int, text: str) -> None:
        raw = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _answer(self, path: list[str], query: Object, body: Any) -> tuple[int, Object] | None:
        if found := _discovery(path):
            return 200, found
        if text := self._text_of(path):
            self._send_text(*text)
            return None
        version, plural, namespace, name = _place(path)
        store = self.api.store
        key = (version, plural, namespace, name)
        kind = RESOURCES[version][plural]
        dry_run = query.get("dryRun") == "All"
        if self.command == "GET" and query.get("watch") in ("true", "1"):
            self._watch(key, query)
            return None
        if self.command == "GET" and not name:
            return 200, _listed(store, version, plural, namespace, query)
        if self.command == "GET":
            return 200, _existing(store, key)
        if self.command == "POST":
            key = (version, plural, namespace, str(body["metadata"]["name"]))
            if key in store.objects:
                raise ApiError(409, "AlreadyExists", f"{plural} {key[3]!r} already exists")
            made = {"apiVersion": version, "kind": kind, **body}
            manager = query.get("fieldManager", "unknown")
            return 201, store.write(key, fields.update(None, made, manager), dry_run=dry_run)
        if self.command == "DELETE":
            return 200, store.remove(key)
        old = store.objects.get(key)
        if self.command == "PUT":
            given = body["metadata"].get("resourceVersion")
            if old and given and given != old["metadata"]["resourceVersion"]:
                raise ApiError(409, "Conflict", f"{plural} {name!r}: the object has been modified")
            made = fields.update(old, body, query.get("fieldManager", "unknown"))
            return 200, store.write(key, made, dry_run=dry_run)
        applies = "apply-patch" in (self.headers.get("Content-Type") or "")
        new = _patched(key, old, body, query, applies=applies)
        return 200, store.write(key, new, dry_run=dry_run)

    def _text_of(self, path: list[str]) -> tuple[int, str] | None:
        """(status, text) of a pod's log or of a pod's proxied response."""
        match path:
            case ["api", "v1", "namespaces", _, "pods", pod, "log"]:
                return 200, self.api.logs.get(pod, "")
            case ["api", "v1", "namespaces", _, "pods", pod, "proxy", *rest]:
                answer = self.api.served.get("/".join([pod.partition(":")[2], *rest]))
                return (503, "no endpoints available") if answer is None else (200, answer)
        return None

    def _watch(self, key: Key, query: Object) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        since = int(query.get("resourceVersion") or 0)
        until = time.monotonic() + float(query.get("timeoutSeconds") or 30)
        for kind, changed, made in self.api.store.events_after(since, until):
            if changed[:2] == key[:2] and key[2] in ("", changed[2]) and _selected(made, query):
                try:
                    self.wfile.write(json.dumps({"type": kind, "object": made}).encode() + b"\n")
                    self.wfile.flush()
                except OSError:
                    return


def _read(raw: bytes) -> Any:
    if raw.startswith(protobuf.MAGIC):
        return protobuf.secret(raw)
    return json.loads(raw) if raw.startswith(b"{") else yaml.load(raw, SafeLoader)


def _discovery(path: list[str]) -> Object | None:
    match path:
        case ["version"]:
            return {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = [_group(version) for version in RESOURCES if "/" in version]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", "v1"]:
            return _resources("v1")
        case ["apis", group, version] if f"{group}/{version}" in RESOURCES:
            return _resources(f"{group}/{version}")
    return None


def _group(version: str) -> Object:
    name, number = version.split("/")
    here = {"groupVersion": version, "version": number}
    return {"name": name, "versions": [here], "preferredVersion": here}


def _resources(version: str) -> Object:
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    listed = [
        {
            "name": plural,
            "singularName": kind.lower(),
            "namespaced": plural != "namespaces",
            "kind": kind,
            "verbs": verbs,
        }
        for plural, kind in RESOURCES[version].items()
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": version,
        "resources": listed,
    }


def _place(path: list[str]) -> Key:
    """(apiVersion, plural, namespace, name) of a path; 404 for what is not known."""
    start = {"api": 2, "apis": 3}.get(path[0] if path else "", 0)
    version, rest = "/".join(path[1:start]), path[start:]
    namespace = ""
    if len(rest) >= 2 and rest[0] == "namespaces" and rest[2:]:
        namespace, rest = rest[1], rest[2:]
    plural, name = (*rest, "", "")[:2]
    if plural not in RESOURCES.get(version, {}):
        raise ApiError(404, "NotFound", "the server could not find the requested resource")
    return version, plural, namespace, name


def _existing(store: Store, key: Key) -> Object:
    if key not in store.objects:
        raise ApiError(404, "NotFound", f"{key[1]} {key[3]!r} not found")
    return store.objects[key]


def _listed(store: Store, version: str, plural: str, namespace: str, query: Object) -> Object:
    items = [
        made
        for key, made in sorted(store.objects.items())
        if key[:2] == (version, plural) and namespace in ("", key[2]) and _selected(made, query)
    ]
    kind = f"{RESOURCES[version][plural]}List"
    meta = {"resourceVersion": str(store.version)}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "items": items}


def _selected(made: Object, query: Object) -> bool:
    labels = made["metadata"].get("labels", {})
    selectors = [part.split("=", 1) for part in query.get("labelSelector", "").split(",") if part]
    chosen = query.get("fieldSelector", "")  # events only
    return chosen in ("", f"type={made.get('type')}") and all(
        labels.get(name.rstrip("=")) == value.lstrip("=") for name, value in selectors
    )


def _patched(key: Key, old: Object | None, patch: Any, query: Object, *, applies: bool) -> Object:
    manager = query.get("fieldManager", "unknown")
    if applies:
        force = query.get("force") == "true"
        try:
            return fields.apply(old, patch, manager, force=force)
        except fields.ConflictError as error:
            causes = [
                {
                    "reason": "FieldManagerConflict",
                    "field": path,
                    "message": f'conflict with "{who}"',
                }
                for who, path in error.fields
            ]
            raise ApiError(409, "Conflict", f"Apply failed: {error}", causes) from None
    if old is None:
        raise ApiError(404, "NotFound", f"{key[1]} {key[3]!r} not found")
    return fields.update(old, dict(_merged(old, patch)), manager)


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict) or not isinstance(old, dict):
        return patch
    result = dict(old)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(old.get(name), value)
    return result
