"""A release on a cluster as the target of `penstock bench`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.cluster.api import Api
from penstock.cluster.pods import forwarded
from penstock.cluster.progress import OwnObjects, read_progress
from penstock.cluster.release import require_installed
from penstock.cluster.rights import Preflight, Verb
from penstock.errors import BenchError
from penstock.helm import ReleaseTarget


@contextmanager
def forwarded_release(target: ReleaseTarget, say: Callable[[str], None]) -> Iterator[str]:
    """The URL of a local port for the frontends of the release.

    ClusterError if the cluster or the release cannot be used, BenchError if it is not ready.
    """
    api = Api.connect(target)
    Preflight(api, target, Verb.BENCH, say).require()
    release = require_installed(target, api)
    progress = read_progress(OwnObjects(api, target), release)
    if not progress.is_done:
        fix = "Wait until `penstock status --cluster` shows it as ready."
        message = f"is not ready: {progress}"
        raise BenchError(message, place=f"release {target}", fix=fix)
    say(
        f"release {target}: requests go through the API server, which adds latency; to avoid this, "
        "run bench in the cluster with the URL of the frontend's service"
    )
    with forwarded(api, release, target) as forward:
        yield f"http://127.0.0.1:{forward.port}"
