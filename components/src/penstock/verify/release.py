"""A release on a cluster as a `ProbeTarget`: a forwarded port, and metrics and logs of its pods."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.cluster.api import Api
from penstock.cluster.pods import forwarded_url, list_pods
from penstock.cluster.rights import Preflight, Verb
from penstock.helm import ReleaseTarget
from penstock.live.cluster.source import PATH, ReleaseReader
from penstock.live.cluster.state import PodReplica
from penstock.local.reconcile import ReplicaState
from penstock.verify.target import Process

# From its start; the connections of UCX are older than most lines of a log.
LOG_BYTES = {"limitBytes": str(32 * 2**20)}


@contextmanager
def opened_release(
    target: ReleaseTarget, say: Callable[[str], None]
) -> Iterator[tuple[str, tuple[Process, ...]]]:
    """The URL of a local port for the ready frontends, and the ready pods.

    ClusterError if the cluster or the release cannot be used, or if no frontend is ready.
    """
    api = Api.connect(target)
    Preflight(api, target, Verb.VERIFY, say).require()
    reader = ReleaseReader(api, target)
    release = reader.first()
    state = reader.read(time.monotonic())
    if state is not None and state.phase != "ready":
        say(f"release {target} is not ready: {state.progress}")
    containers = {pod.name: pod.container for pod in list_pods(api, target.name)}

    def process(pod: PodReplica) -> Process:
        port = pod.system_port
        read = None if port is None else lambda _: api.get_from_pod(pod.name, port, PATH)
        return Process(
            name=pod.name,
            pool=pod.program,
            role=pod.role,
            metrics=read,
            log=lambda: api.log(pod.name, containers[pod.name], LOG_BYTES),
        )

    replicas = state.replicas if state is not None else ()
    with forwarded_url(api, release, target) as url:
        yield url, tuple(process(r) for r in replicas if r.state is ReplicaState.READY)
