"""A local port for the frontends of a release, through the API server.

As a Service does, each new connection goes to a ready pod; `kubectl port-forward` stays with one.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable
from typing import Any

from kubernetes.client.exceptions import ApiException

import kubernetes
from penstock.cluster.api import Api
from penstock.cluster.pods import Pod, refused_stream, stream_client
from penstock.errors import ClusterError

LOOPBACK = "127.0.0.1"
CHUNK = 65536


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
        """Without a pod the client sees a closed connection, as at a Service without endpoints."""
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


def connect(api: Api, pod: str, port: int) -> Any:
    """A socket to a port of a pod. Raises ClusterError."""
    method = kubernetes.client.CoreV1Api(stream_client(api)).connect_get_namespaced_pod_portforward
    try:
        forward = kubernetes.stream.portforward(method, pod, api.namespace, ports=str(port))
    except ApiException as error:
        raise refused_stream(error, pod, "portforward") from None
    return forward.socket(port)


def _join(client: socket.socket, upstream: Any) -> None:
    """Copy in both directions until one side closes."""
    back = threading.Thread(target=_copy, args=(upstream, client), daemon=True)
    back.start()
    _copy(client, upstream)
    back.join()


def _copy(source: Any, sink: Any) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
