"""Print the logs of a release's pods: `gpt-oss-decode-… | line`.

To follow them, each log is read again every POLL_S from its last timestamp on, so that a broken
connection or a restarted container loses no line.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.cluster.api import Api
from penstock.cluster.api_errors import UnavailableError
from penstock.cluster.pods import Pod, list_pods
from penstock.cluster.release import release_error
from penstock.cluster.wait import Clock
from penstock.errors import Problem, UsageError
from penstock.helm import ReleaseTarget

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
            raise UsageError(Problem(place=f"release {self.target}", message=message, fix=fix))
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
