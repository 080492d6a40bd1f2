"""An in-memory Kubernetes API, complete enough for Helm and the Python client.

Supports create, get, list by labels, watch, replace, all patches (`writes`: with defaults, field
managers and resource versions) and delete; dry runs; and configurable pod logs and pod proxies.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from penstock.strict_yaml.loader import SafeLoader
from tests.support.emulated_cluster import (
    access,
    pods,
    protobuf,
    requests,
    validation,
    websocket,
    writes,
)
from tests.support.emulated_cluster.access import Access
from tests.support.emulated_cluster.kubelet import is_scheduled
from tests.support.emulated_cluster.store import (
    CLUSTER_SCOPED,
    RESOURCES,
    ApiError,
    Key,
    Object,
    Store,
    not_found,
)
from tests.support.scripted_http import QuietServer

LOOPBACK = "127.0.0.1"
REVIEW = (f"{access.REVIEWS}/v1", "selfsubjectaccessreviews", "", "")
# Kinds with the subresource `scale`.
SCALED = (
    "deployments", "dynamographdeploymentscalingadapters", "leaderworkersets", "replicasets",
    "statefulsets",
)  # fmt: skip
NOT_FOUND = "404 page not found"  # for a kind that the API server does not know
TOO_MANY = "Too many requests, please try again later."


@dataclass
class ApiServer:
    """`with ApiServer() as api:` serves on loopback; ``kubeconfig`` selects it."""

    store: Store = field(default_factory=Store)
    requests: list[str] = field(default_factory=list)
    gate: Callable[[str], None] = field(default=lambda _: None)  # may raise ApiError for a path
    # Reviews that Kubernetes refuses: penstock must send none. The note of `Preflight` hides them.
    refused_reviews: list[ApiError] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # of the emulator itself
    webhook_down: str = ""  # the address of the operator's webhook, which refuses connections
    absent: set[tuple[str, str]] = field(default_factory=set)  # (version, plural) not served
    logs: dict[str, str] = field(default_factory=dict)  # by pod
    served: dict[str, str] = field(default_factory=dict)  # by "port/path", or "pod:port/path"
    # The status and the body of a GET of a path from a pod, unless ``served`` has it.
    answer: Callable[[Object, str], tuple[int, str] | None] = field(default=lambda pod, path: None)
    # The chain and its key. Without TLS, Helm sends no token, so that every user is unrestricted.
    certificate: tuple[Path, Path] | None = None
    forwarded: dict[int, int] = field(default_factory=dict)  # local port by the pods' port
    access: Access = field(init=False)
    containers: pods.Containers = field(init=False)

    def __post_init__(self) -> None:
        self.access = Access(self.store)
        self.containers = pods.Containers(self.store)
        self.store.admission.append(self.containers.admit)

    def __enter__(self) -> ApiServer:
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = QuietServer((LOOPBACK, 0), handler)
        self._server.daemon_threads = True
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.certificate)
            plain = self._server.socket
            self._server.socket = context.wrap_socket(
                plain,
                server_side=True,
                do_handshake_on_connect=False,  # left to each thread
            )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        for name in ("default", "kube-system"):
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self.store.write(("v1", "namespaces", "", name), space)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        assert (self.refused_reviews, self.faults) == ([], [])

    def refuse(
        self, part: str, error: ApiError, method: str = "", *, of_dry_runs: bool = True
    ) -> None:
        """Answer with the error where both patterns match. ``of_dry_runs``: also a dry run."""

        def gate(path: str) -> None:
            request = self.requests[-1]
            is_chosen = re.match(method, request) and (of_dry_runs or "dryRun" not in request)
            if re.search(part, path) and is_chosen:
                raise error

        self.gate = gate

    @property
    def resources(self) -> dict[str, dict[str, str]]:
        """The served kinds by plural and version."""
        kept = {
            version: {p: kind for p, kind in kinds.items() if (version, p) not in self.absent}
            for version, kinds in RESOURCES.items()
        }
        return {version: kinds for version, kinds in kept.items() if kinds}

    @property
    def url(self) -> str:
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://{LOOPBACK}:{self._server.server_address[1]}"

    @property
    def kubeconfig(self) -> str:
        context = {"cluster": "emulated", "user": "tester", "namespace": "default"}
        cluster = {"server": self.url}
        if self.certificate:
            chain = self.certificate[0].read_bytes()
            cluster["certificate-authority-data"] = base64.b64encode(chain).decode()
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "emulated",
                "clusters": [{"name": "emulated", "cluster": cluster}],
                "users": [{"name": "tester", "user": {"token": "no-secret"}}],
                "contexts": [{"name": "emulated", "context": context}],
            }
        )


# How a line of a log begins, if a test reads it with timestamps.
STAMP = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z ")


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
            requests.require_size(length)
            is_read = self.command != "DELETE" or raw.startswith(b"{")  # Helm's are protobuf
            body = _read(raw, self.headers.get("Content-Type") or "") if is_read else None
            answer = self._answer([p for p in parts.path.split("/") if p], query, body)
        except ApiError as error:
            self._refuse(error)
            return
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            self.api.faults.append(f"{self.command} {self.path}: {error!r}")
            self._refuse(ApiError(500, "InternalError", f"Internal error occurred: {error!r}"))
            return
        if answer is not None:
            code, content = answer
            self._send(code, content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

    def _refuse(self, error: ApiError) -> None:
        if str(error) in (NOT_FOUND, TOO_MANY):  # not a Status
            self._send_text(error.code, f"{error}\n", "text/plain; charset=utf-8")
        else:
            self._send(error.code, error.status)

    def _send(self, code: int, content: Object | None) -> None:
        self._send_text(code, json.dumps(content) if content is not None else "")

    def _send_text(self, code: int, text: str, media: str = "application/json") -> None:
        raw = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _answer(self, path: list[str], query: Object, body: Any) -> tuple[int, Object] | None:
        self._authorize(path, query, body)
        resources = self.api.resources
        if document := _discovery(path, resources):
            return 200, document
        if websocket.is_upgrade(self):
            self._stream(path)
            return None
        if text := self._text_of(path):
            self._send_text(*text)
            return None
        if path[:2] == ["apis", access.REVIEWS]:
            return self._review(path[-1], body, query)
        key, subresource = _place(path, resources)
        store = self.api.store
        requests.require_method(key, subresource, self.command)
        requests.require_options(self.command, query)
        is_graph = key[1] == "dynamographdeployments" and self.command not in ("GET", "DELETE")
        if is_graph and self.api.webhook_down:
            raise requests.webhook_error(self.api.webhook_down)
        agent = self.headers.get("User-Agent") or ""
        if subresource == "token":
            return 201, {"status": {"token": self.api.access.token(key[2], key[3])}}
        if subresource == "eviction":
            return 201, pods.evict(store, key, body)
        if key[1] == "pods" and subresource in ("log", "proxy"):
            return 200, store.existing((*key[:3], key[3].partition(":")[0]))
        if subresource and (key[1] not in SCALED or subresource != "scale"):
            raise not_found(key)
        if subresource == "scale":
            if self.command == "GET":
                return 200, _scale(store.existing(key))
            return 200, _scale(writes.set_scale(store, key, body, query, agent, self.command))
        match self.command:
            case "GET" if query.get("watch") in ("true", "1"):
                self._watch(key, query)
                return None
            case "GET":
                requests.require_list(store, query)
                return 200, store.existing(key) if key[3] else _listed(store, key, query)
            case "POST":
                return 201, writes.create(store, key, body, query, agent)
            case "PUT":
                return 200, writes.replace(store, key, body, query, agent)
            case "DELETE":
                return 200, writes.delete(store, key, body or {}, query)
        is_new = key not in store.objects
        media = (self.headers.get("Content-Type") or writes.MERGE).partition(";")[0]
        requests.require_media(key, media)
        written = writes.patch(store, key, body, query, agent, media)
        return 201 if is_new else 200, written

    def _authorize(self, path: list[str], query: Object, body: Any) -> None:
        """Raises ApiError (403)."""
        user = self.api.access.user(self.headers.get("Authorization"))
        action = access.action_of(self.command, path, query)
        if user is None or action is None:
            return
        self.api.access.require(user, action)
        is_review = action.group == access.REVIEWS
        key, subresource = (None, "") if is_review else _place(path, self.api.resources)
        if key is None or subresource or self.command == "GET":
            return
        if action.verb == "patch" and key not in self.api.store.objects:
            self.api.access.require(user, access.created_by_apply(action))
        if bound := access.binding_of(key, body, action):
            self.api.access.require(user, bound)

    def _review(self, kind: str, body: Any, query: Object) -> tuple[int, Object]:
        user = self.api.access.user(self.headers.get("Authorization"))
        if kind != "selfsubjectaccessreviews":
            raise ApiError(404, "", NOT_FOUND)
        try:
            strict = query.get("fieldValidation") == "Strict"
            body = {"apiVersion": REVIEW[0], "kind": "SelfSubjectAccessReview", **body}
            validation.require_types(REVIEW, body, by_apply=False, strict=strict)
            requests.require_review(body)
        except ApiError as error:
            self.api.refused_reviews.append(error)
            raise
        answer = {
            "kind": "SelfSubjectAccessReview",
            "apiVersion": f"{access.REVIEWS}/v1",
            "metadata": {},
            "spec": body["spec"],
            "status": self.api.access.review(user, body["spec"]),
        }
        return 201, answer

    def _stream(self, path: list[str]) -> None:
        """exec and portforward of a pod."""
        key, subresource = _place(path, self.api.resources)
        self.api.store.existing(key)
        query = parse_qs(urlsplit(self.path).query)
        if subresource == "exec":
            code, output = self.api.containers.run(key, query["command"])
            websocket.answer_exec(self, code, output)
        else:
            port = int(query["ports"][0])
            websocket.forward(self, port, self.api.forwarded[port])

    def _text_of(self, path: list[str]) -> tuple[int, str] | None:
        """(status, text) of a pod's log or of a pod's proxied response."""
        match path:
            case ["readyz"]:
                return 200, "ok"
            case ["api", "v1", "namespaces", space, "pods", pod, "log" | "proxy", *_] if (
                not self._has_pod(space, pod.partition(":")[0])
            ):
                return None  # 404 of the pod
            case ["api", "v1", "namespaces", _, "pods", pod, "log"]:
                query = parse_qs(urlsplit(self.path).query)
                return 200, _log(self.api.logs.get(pod, ""), query)
            case ["api", "v1", "namespaces", space, "pods", pod, "proxy", *rest]:
                name, of_all = ("/".join([n, *rest]) for n in (pod, pod.partition(":")[2]))
                text = self.api.served.get(name, self.api.served.get(of_all))
                if text is not None:
                    return 200, text
                key = ("v1", "pods", space, pod.partition(":")[0])
                live = self.api.store.existing(key)
                if not is_scheduled(live):
                    raise ApiError(400, "BadRequest", "address not allowed")
                if (answer := self.api.answer(live, "/".join(rest))) is None:
                    cause = "dial tcp: connect: connection refused"
                    text = f"error trying to reach service: {cause}"
                    raise ApiError(503, "ServiceUnavailable", text)
                return answer
        return None

    def _has_pod(self, namespace: str, name: str) -> bool:
        return ("v1", "pods", namespace, name) in self.api.store.objects

    def _watch(self, key: Key, query: Object) -> None:
        since = requests.require_watch(query)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        if 0 < since < requests.FIRST_VERSION:
            self.wfile.write(requests.expired_event(since))
            return
        until = time.monotonic() + float(query.get("timeoutSeconds") or 30)
        for kind, changed, manifest in self.api.store.events_after(since, until):
            if changed[:2] == key[:2] and key[2] in ("", changed[2]) and _selected(manifest, query):
                try:
                    self.wfile.write(
                        json.dumps({"type": kind, "object": manifest}).encode() + b"\n"
                    )
                    self.wfile.flush()
                except OSError:
                    return


def _read(raw: bytes, media: str) -> Any:
    if raw.startswith(protobuf.MAGIC):
        return protobuf.secret(raw)
    if media == writes.APPLY and not raw.startswith(b"{"):
        try:
            return yaml.load(raw, SafeLoader)
        except yaml.YAMLError as error:
            text = getattr(error, "problem", "") or str(error)
            line = f"yaml: line 1: {text}"
            message = f"error decoding YAML: error converting YAML to JSON: {line}"
            raise ApiError(400, "BadRequest", message) from None
    try:
        return json.loads(raw) if raw else None
    except ValueError as error:
        text = f"couldn't get version/kind; json parse error: {error} ({raw[:80].decode()})"
        raise ApiError(400, "BadRequest", f"the object provided is unrecognized: {text}") from None


def _discovery(path: list[str], resources: dict[str, dict[str, str]]) -> Object | None:
    match path:
        case ["version"]:
            return {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            names = dict.fromkeys(v.split("/")[0] for v in resources if "/" in v)
            groups = [_group(name, resources) for name in names]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", name] if any(v.startswith(f"{name}/") for v in resources):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, resources)}
        case ["api", "v1"]:
            return _resources("v1", resources)
        case ["apis", group, version] if f"{group}/{version}" in resources:
            return _resources(f"{group}/{version}", resources)
    return None


def _group(name: str, resources: dict[str, dict[str, str]]) -> Object:
    versions = [
        {"groupVersion": v, "version": v.split("/")[1]}
        for v in resources
        if v.startswith(f"{name}/")
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(version: str, resources: dict[str, dict[str, str]]) -> Object:
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    listed = [
        {
            "name": plural,
            "singularName": kind.lower(),
            "namespaced": plural not in CLUSTER_SCOPED,
            "kind": kind,
            "verbs": verbs,
        }
        for plural, kind in resources[version].items()
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": version,
        "resources": listed,
    }


def _place(path: list[str], resources: dict[str, dict[str, str]]) -> tuple[Key, str]:
    """The object or the list of a path, and the subresource; 404 for what is not known."""
    version, namespace, plural, name, subresource = access.split_path(path)
    if plural not in resources.get(version, {}):
        raise ApiError(404, "", NOT_FOUND)
    return (version, plural, namespace, name), subresource


def _listed(store: Store, place: Key, query: Object) -> Object:
    version, plural, namespace, _ = place
    items = [
        manifest
        for key, manifest in sorted(store.objects.items())
        if key[:2] == (version, plural) and namespace in ("", key[2]) and _selected(manifest, query)
    ]
    kind = f"{RESOURCES[version][plural]}List"
    meta = {"resourceVersion": str(store.version)}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "items": items}


def _scale(manifest: Object) -> Object:
    meta = {k: manifest["metadata"][k] for k in ("name", "namespace", "uid", "resourceVersion")}
    spec = {"replicas": manifest["spec"].get("replicas", 1)}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta, "spec": spec}


def _selected(manifest: Object, query: Object) -> bool:
    labels = manifest["metadata"].get("labels", {})
    selectors = [part.split("=", 1) for part in query.get("labelSelector", "").split(",") if part]
    chosen = query.get("fieldSelector", "")  # of events, or of the pods on a node
    node = (manifest.get("spec") or {}).get("nodeName")
    return chosen in ("", f"type={manifest.get('type')}", f"spec.nodeName={node}") and all(
        labels.get(name.rstrip("=")) == value.lstrip("=") for name, value in selectors
    )


def _log(text: str, query: dict[str, list[str]]) -> str:
    """The last `tailLines` of a log. Each of its lines begins with its timestamp, which the server
    prints only with `timestamps`. With `sinceTime`, of which it reads whole seconds: those since.
    """
    lines = text.splitlines(keepends=True)
    if since := query.get("sinceTime"):
        lines = [line for line in lines if line[:19] >= since[0][:19]]
    if count := query.get("tailLines"):
        lines = lines[-int(count[0]) :] if int(count[0]) else []
    if query.get("timestamps") != ["true"]:
        lines = [line.partition(" ")[2] if STAMP.match(line) else line for line in lines]
    return "".join(lines)
