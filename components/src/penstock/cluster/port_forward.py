"""A local port for the frontends of a release, through the API server.

As a Service does, each new connection goes to a ready pod; `kubectl port-forward` stays with one.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kubernetes.client.exceptions import ApiException
from websocket import WebSocket, WebSocketException

import kubernetes
from penstock.cluster.api import Api
from penstock.cluster.pods import Pod, list_pods, refused_stream, stream_client
from penstock.cluster.release import Release
from penstock.cluster.status import frontend_port
from penstock.cluster.workloads import FRONTEND
from penstock.errors import ClusterError
from penstock.helm import ReleaseTarget

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
    method = kubernetes.client.CoreV1Api(stream_client(api)).connect_get_namespaced_pod_portforward
    try:
        # Not kubernetes.stream.portforward: its thread uses select(), which ends at 1,024 files.
        stream = kubernetes.stream.stream(
            method, pod, api.namespace, ports=str(port), _preload_content=False
        )
    except ApiException as error:
        raise refused_stream(error, pod, "portforward") from None
    connection: WebSocket = stream.sock
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
class _Frontends:
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
    frontends = _Frontends(api, target.name)
    return PortForward(api, frontend_port(release), frontends.ready)
