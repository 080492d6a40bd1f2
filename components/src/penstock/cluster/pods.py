"""The pods of a release and what a drill does to them: delete, evict, kill, cordon their node."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes.client.exceptions import ApiException
from websocket import WebSocketException

import kubernetes
from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError, grant
from penstock.cluster.diagnose import is_ready, restarts
from penstock.cluster.workloads import POD_GRAPH, Object, component_of, named
from penstock.errors import ClusterError, Problem

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
    try:
        client = stream_client(api)
        socket = kubernetes.stream.stream(
            kubernetes.client.CoreV1Api(client).connect_get_namespaced_pod_exec,
            pod.name,
            api.namespace,
            container=pod.container,
            command=list(KILL),
            stdin=False,
            stdout=True,
            stderr=True,
            tty=False,
            _preload_content=False,
        )
    except ApiException as error:
        raise refused_stream(error, pod.name, "exec") from None
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
        raise ClusterError(Problem(place=f"Pod {pod.name}", message=message, fix=fix))


def stream_client(api: Api) -> Any:
    """A client of its own: a stream replaces the method by which its client sends requests."""
    return kubernetes.client.ApiClient(api.configuration)


def refused_stream(error: ApiException, pod: str, subresource: str) -> ClusterError:
    """The error of a websocket that was not opened."""
    text = str(error.reason or error.status).strip()
    problem = Problem(
        place=f"Pod {pod}",
        message=f"the API server refuses {subresource}: {text[:200]}",
        fix=grant(f"get and create pods/{subresource}"),
    )
    is_forbidden = error.status == 403 or "403" in text
    return ForbiddenError(problem) if is_forbidden else ClusterError(problem)


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
