"""The ready frontends of a release, and a local port for them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from penstock.cluster.api import Api
from penstock.cluster.pods import Pod, list_pods
from penstock.cluster.port_forward import PortForward
from penstock.cluster.release import Release
from penstock.cluster.status import frontend_port
from penstock.cluster.workloads import FRONTEND
from penstock.helm import ReleaseTarget

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
