"""The pods of a release: their logs, what a drill does to them, and a local port for the frontends.

To follow logs, each is read again every POLL_S from its last timestamp on, so that a broken
connection or a restarted container loses no line. As a Service does, each new connection to the
port goes to a ready pod; `kubectl port-forward` stays with one.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubernetes.client.exceptions import ApiException
from websocket import WebSocket, WebSocketException

import kubernetes
from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError, UnavailableError, grant
from penstock.cluster.diagnose import is_ready, restarts
from penstock.cluster.frontends import frontend_port
from penstock.cluster.release import Release, release_error
from penstock.cluster.rollout import Clock
from penstock.cluster.workloads import FRONTEND, POD_GRAPH, Object, component_of, named
from penstock.errors import ClusterError, Problem, UsageError
from penstock.helm import ReleaseTarget

# PID 1 of a container receives SIGKILL only from outside of it.
KILL = ("/bin/sh", "-c", "kill 1")
EXEC_S = 30
GONE, CHANGED, TOO_MANY = 404, 409, 429


@dataclass(frozen=True, kw_only=True)
class Pod:
    """One pod at one moment."""

    name: str
    uid: str
    # The graph's component; "" for a pod of something else.
    component: str
    # "" before it is scheduled.
    node: str
    # Ready, and not being deleted.
    is_ready: bool
    restarts: int
    # The first container's.
    container: str


def list_pods(api: Api, release: str) -> list[Pod]:
    """The release's pods by name. Raises ClusterError."""
    pods = (_pod(manifest) for manifest in api.list("Pod", f"{POD_GRAPH}={release}"))
    return sorted(pods, key=lambda pod: pod.name)


def _pod(manifest: Object) -> Pod:
    metadata, spec = manifest["metadata"], manifest["spec"]
    return Pod(
        name=str(metadata["name"]),
        uid=str(metadata["uid"]),
        component=component_of(manifest),
        node=str(spec.get("nodeName") or ""),
        is_ready=is_ready(manifest) and "deletionTimestamp" not in metadata,
        restarts=restarts(manifest),
        container=str(spec["containers"][0]["name"]),
    )


def delete(api: Api, pod: Pod) -> str:
    """Delete exactly this pod, not a new one of its name. Why it was not possible; "" if it was."""
    return _removed(api, "DELETE", _path(api, pod), _options(pod), pod)


def evict(api: Api, pod: Pod) -> str:
    """Ask for its eviction. Why the API server refuses, such as a disruption budget; "" if not."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": api.namespace},
        "deleteOptions": _options(pod),
    }
    return _removed(api, "POST", f"{_path(api, pod)}/eviction", body, pod)


def _options(pod: Pod) -> Object:
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}}


def _removed(api: Api, method: str, path: str, body: Object, pod: Pod) -> str:
    status, answer = api.request(
        method, path, body, named("Pod", pod.name), (GONE, CHANGED, TOO_MANY)
    )
    if status in (GONE, CHANGED):
        return "the pod was already gone"
    if status == TOO_MANY:
        causes = (answer.get("details") or {}).get("causes") or ()
        texts = [str(cause["message"]) for cause in causes if cause.get("message")]
        return "; ".join(texts) or str(answer.get("message") or "too many requests")
    return ""


def kill(api: Api, pod: Pod) -> None:
    """Send SIGTERM to process 1 of the pod's first container. Raises ClusterError."""
    streams = {"stdin": False, "stdout": True, "stderr": True, "tty": False}
    command = list(KILL)
    socket = _stream(api, pod.name, "exec", container=pod.container, command=command, **streams)
    code, output = 0, ""
    # The container may end before the status of the command is sent.
    with contextlib.suppress(OSError, WebSocketException, TypeError, LookupError, ValueError):
        socket.run_forever(timeout=EXEC_S)
        code = socket.returncode  # before read_all(), which drops the status
        output = str(socket.read_all()).strip()
    socket.close()
    if code:
        message = f"`{' '.join(KILL)}` exited with {code}: {output or 'no output'}"
        fix = "Choose the fault delete: this container has no shell, or its process may not."
        raise ClusterError(message, place=f"Pod {pod.name}", fix=fix)


def _stream(api: Api, pod: str, subresource: str, **options: Any) -> Any:
    """A websocket to a subresource of a pod. Raises ClusterError."""
    # A client of its own: a stream replaces the method by which its client sends requests.
    core = kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(api.configuration))
    method = getattr(core, f"connect_get_namespaced_pod_{subresource}")
    try:
        return kubernetes.stream.stream(
            method, pod, api.namespace, _preload_content=False, **options
        )
    except ApiException as error:
        text = str(error.reason or error.status).strip()
        problem = Problem(
            place=f"Pod {pod}",
            message=f"the API server refuses {subresource}: {text[:200]}",
            fix=grant(f"get and create pods/{subresource}"),
        )
        is_forbidden = error.status == 403 or "403" in text
        raise (ForbiddenError if is_forbidden else ClusterError)(problem) from None


def is_cordoned(api: Api, node: str) -> bool:
    """Whether the node accepts no new pods. Raises ClusterError."""
    _, live = api.request("GET", _node_path(node), None, named("Node", node))
    return bool(live["spec"].get("unschedulable"))


def set_cordoned(api: Api, node: str, *, is_cordoned: bool) -> None:
    """Raises ClusterError."""
    patch = {"spec": {"unschedulable": True if is_cordoned else None}}
    api.request("PATCH", _node_path(node), patch, named("Node", node))


def other_pods(api: Api, node: str, of_release: Sequence[Pod]) -> list[str] | None:
    """The node's pods that are not ``of_release``, as NAMESPACE/NAME; None if the user may not list
    them."""
    path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}"
    try:
        _, answer = api.request("GET", path, None, named("Node", node))
    except ForbiddenError:
        return None
    uids = {pod.uid for pod in of_release}
    foreign = [item["metadata"] for item in answer["items"] if item["metadata"]["uid"] not in uids]
    return sorted(f"{metadata['namespace']}/{metadata['name']}" for metadata in foreign)


def _path(api: Api, pod: Pod) -> str:
    return f"/api/v1/namespaces/{api.namespace}/pods/{pod.name}"


def _node_path(node: str) -> str:
    return f"/api/v1/nodes/{node}"


POLL_S = 2.0
STAMP = re.compile(r"\d{4}-\d\d-\d\dT")


@dataclass(kw_only=True)
class PodLogs:
    """The logs of the pods with ``name``: a component, a pod, or "" for all."""

    api: Api
    target: ReleaseTarget
    name: str
    # Whether to print the logs of the containers before their last restart.
    previous: bool = False
    # The timestamp of the last line that was printed, by the pod's uid.
    _last: dict[str, str] = field(default_factory=dict)

    def show(self, lines: int) -> None:
        """Print the last ``lines`` of each log. Raises ClusterError, UsageError."""
        self._print(self._required(), {"tailLines": str(lines)})

    def follow(self, clock: Clock) -> None:
        """Print what is logged after `show`, also by new pods, until Ctrl-C.

        A pool can be without a pod for a while, and a request can fail.
        """
        while True:
            clock.sleep(POLL_S)
            with contextlib.suppress(UnavailableError):
                self._print(self._chosen(), {})

    def _print(self, pods: Sequence[Pod], query: dict[str, str]) -> None:
        width = max((len(pod.name) for pod in pods), default=0)
        for pod in pods:
            for line in self._new_lines(pod, query):
                print(f"{pod.name:<{width}} | {line}", flush=True)

    def _chosen(self) -> list[Pod]:
        return [pod for pod in self._pods() if self.name in ("", pod.component, pod.name)]

    def _pods(self) -> list[Pod]:
        return [pod for pod in list_pods(self.api, self.target.name) if pod.component]

    def _required(self) -> list[Pod]:
        """The chosen pods. ClusterError if there are none, UsageError if none has the name."""
        if chosen := self._chosen():
            return chosen
        if pods := self._pods():
            names = ", ".join(dict.fromkeys(pod.component for pod in pods))
            message = f"no component or pod of it is called {self.name!r}"
            fix = f"Use one of {names}, or the name of a pod."
            raise UsageError(message, place=f"release {self.target}", fix=fix)
        fix = "Select another release with --release and --namespace, or run `penstock status`."
        raise release_error(self.target, "has no pods", fix)

    def _new_lines(self, pod: Pod, query: dict[str, str]) -> Iterator[str]:
        last = self._last.get(pod.uid, "")
        since = {"sinceTime": last} if last else {}
        previous = {"previous": "true"} if self.previous else {}
        text = self.api.log(pod.name, pod.container, {**query, **since, **previous})
        for line in text.split("\n"):  # a line may contain \r, as that of a progress bar
            stamp, _, rest = line.partition(" ")
            if not STAMP.match(stamp):  # the end, or a message of the kubelet
                yield from [line] if line else []
            elif _order(stamp) > _order(last):
                self._last[pod.uid] = stamp
                yield rest


def _order(stamp: str) -> tuple[str, str]:
    """A sort key of a timestamp, whose fraction of a second has no trailing zeros."""
    seconds, _, fraction = stamp.rstrip("Z").partition(".")
    return seconds, fraction.ljust(9, "0")


LOOPBACK = "127.0.0.1"
CHUNK = 65536
DATA = 0  # the channel; 1 is for errors
CLOSE_S = 1


class PortForward:
    """`with PortForward(api, port, pods) as forward:` listens at ``forward.port``."""

    def __init__(self, api: Api, port: int, ready_pods: Callable[[], list[Pod]]) -> None:
        """``port``: the pods'; ``ready_pods``: the pods to connect to, which must be quick."""
        self._api, self._port, self._ready_pods = api, port, ready_pods
        self._numbers = itertools.count()
        # Ports of clients by the name of the pod that they are connected to.
        self._clients: dict[int, str] = {}
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listener.getsockname()[1])

    def __enter__(self) -> PortForward:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def clients_of(self, pod: str) -> tuple[int, ...]:
        """The ports of the clients that are connected to the pod."""
        return tuple(port for port, name in list(self._clients.items()) if name == pod)

    def _accept(self) -> None:
        while True:
            try:
                client, (_, port) = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client, port), daemon=True).start()

    def _serve(self, client: socket.socket, port: int) -> None:
        """Connect the client to a pod. If there is none, its connection is closed, as by a Service
        without endpoints."""
        with client:
            try:
                pods = self._ready_pods()
                if not pods:
                    return
                pod = pods[next(self._numbers) % len(pods)]
                upstream = connect(self._api, pod.name, self._port)
            except ClusterError:
                return
            self._clients[port] = pod.name
            try:
                _join(client, upstream)
            finally:
                del self._clients[port]


def connect(api: Api, pod: str, port: int) -> WebSocket:
    """A websocket to a port of a pod. Raises ClusterError."""
    # Not kubernetes.stream.portforward: its thread uses select(), which ends at 1,024 files.
    connection: WebSocket = _stream(api, pod, "portforward", ports=str(port)).sock
    return connection


def _join(client: socket.socket, upstream: WebSocket) -> None:
    """Copy in both directions until one side closes."""
    back = threading.Thread(target=_receive, args=(upstream, client), daemon=True)
    back.start()
    with contextlib.suppress(OSError, WebSocketException):
        while data := client.recv(CHUNK):
            upstream.send_binary(bytes([DATA]) + data)
    with contextlib.suppress(OSError, WebSocketException):
        upstream.close(timeout=CLOSE_S)
    back.join()


def _receive(upstream: WebSocket, client: socket.socket) -> None:
    """The first message of each channel is its port; the error channel ends the connection."""
    is_open = set()
    with contextlib.suppress(OSError, WebSocketException):
        while message := upstream.recv():
            if isinstance(message, str):
                break  # the protocol is binary
            if message[0] not in is_open:
                is_open.add(message[0])
            elif message[0] != DATA:
                break
            else:
                client.sendall(message[1:])
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)


FRESH_S = 0.5  # how long a list of pods is used for new connections


@dataclass
class ReadyFrontends:
    """The ready frontends, listed at most every FRESH_S."""

    api: Api
    release: str
    _listed_at: float = float("-inf")
    _pods: list[Pod] = field(default_factory=list)

    def ready(self) -> list[Pod]:
        if time.monotonic() - self._listed_at > FRESH_S:
            pods = list_pods(self.api, self.release)
            self._pods = [pod for pod in pods if pod.is_ready and pod.component == FRONTEND]
            self._listed_at = time.monotonic()
        return self._pods


def forwarded(api: Api, release: Release, target: ReleaseTarget) -> PortForward:
    """A port on this machine for the frontends of the release ``target``."""
    frontends = ReadyFrontends(api, target.name)
    return PortForward(api, frontend_port(release), frontends.ready)


@contextlib.contextmanager
def forwarded_url(api: Api, release: Release, target: ReleaseTarget) -> Iterator[str]:
    """The URL of such a port. ClusterError without a ready frontend, or without the right to
    forward."""
    pods = ReadyFrontends(api, target.name).ready()
    if not pods:
        raise release_error(target, "has no ready frontend", "Read `penstock status` and its log.")
    connect(api, pods[0].name, frontend_port(release)).close()
    with forwarded(api, release, target) as forward:
        yield f"http://{LOOPBACK}:{forward.port}"
