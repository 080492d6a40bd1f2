"""Print the logs of a release's pods: `gpt-oss-decode-… | line`.

To follow them, each log is read again every POLL_S from its last timestamp on, so that a broken
connection or a restarted container loses no line.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.cluster.api import Api
from penstock.cluster.pods import Pod, list_pods
from penstock.cluster.wait import Clock
from penstock.errors import ClusterError, Problem, UsageError
from penstock.helm import ReleaseTarget

POLL_S = 2.0


@dataclass(kw_only=True)
class PodLogs:
    """The logs of the pods with ``name``: a component, a pod, or "" for all."""

    api: Api
    target: ReleaseTarget
    name: str
    # Of the containers before their last restart.
    previous: bool = False
    # The timestamp of the last line that was printed, by the pod's uid.
    _last: dict[str, str] = field(default_factory=dict)

    def show(self, lines: int) -> None:
        """Print the last ``lines`` of each log. Raises ClusterError, UsageError."""
        self._print({"tailLines": str(lines)})

    def follow(self, clock: Clock) -> None:
        """Print what is logged after `show`, also by new pods, until Ctrl-C."""
        while True:
            clock.sleep(POLL_S)
            self._print({})

    def _print(self, query: dict[str, str]) -> None:
        pods = self._pods()
        width = max(len(pod.name) for pod in pods)
        for pod in pods:
            for line in self._new_lines(pod, query):
                print(f"{pod.name:<{width}} | {line}", flush=True)

    def _pods(self) -> list[Pod]:
        pods = [pod for pod in list_pods(self.api, self.target.name) if pod.component]
        chosen = [pod for pod in pods if self.name in ("", pod.component, pod.name)]
        if chosen:
            return chosen
        if pods:
            names = ", ".join(dict.fromkeys(pod.component for pod in pods))
            message = f"no component or pod of it is called {self.name!r}"
            fix = f"Use one of {names}, or the name of a pod."
            raise UsageError(Problem(place=f"release {self.target}", message=message, fix=fix))
        fix = "Select another release with --release and --namespace, or run `penstock status`."
        raise ClusterError(Problem(place=f"release {self.target}", message="has no pods", fix=fix))

    def _new_lines(self, pod: Pod, query: dict[str, str]) -> Iterator[str]:
        last = self._last.get(pod.uid, "")
        since = {"sinceTime": last} if last else {}
        previous = {"previous": "true"} if self.previous else {}
        text = self.api.log(pod.name, pod.container, {**query, **since, **previous})
        stamped = (line.partition(" ") for line in text.splitlines())
        new = itertools.dropwhile(lambda found: _order(found[0]) <= _order(last), stamped)
        for stamp, _, line in new:
            self._last[pod.uid] = stamp
            yield line


def _order(stamp: str) -> tuple[str, str]:
    """A sort key of a timestamp, whose fraction of a second has no trailing zeros."""
    seconds, _, fraction = stamp.rstrip("Z").partition(".")
    return seconds, fraction.ljust(9, "0")
