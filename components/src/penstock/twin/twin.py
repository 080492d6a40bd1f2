"""`penstock up --timing model`: what its mockers run, and how far they agree with the replay.

`cli.up` makes one `Twin` for each graph that is up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.errors import MissingToolError, Problem
from penstock.local.predicted_timing import PredictedTiming
from penstock.manifests.source import Source
from penstock.serving.understand import Hints
from penstock.simulate.cache import kept
from penstock.simulate.metrics import served_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Answer, Job, Replays, as_trace, require_environment
from penstock.simulate.replayable import replayable
from penstock.simulate.timing import Acceptance
from penstock.twin.compare import comparison_line, comparison_requests
from penstock.twin.engines import Engines, live_engine, notes, replayed_engines, require_all
from penstock.twin.live_client import LiveClient, LiveError
from penstock.workload import Request

WARM_UP = 2  # requests before those that count: a mocker's first step loads its times


class Twin:
    """``speed``: of the mockers' clock; at 0.5 all takes twice as long as on real hardware."""

    def __init__(self, speed: float, hints: Hints, acceptance: Acceptance | None = None) -> None:
        self._python = _require_mocker(require_environment())
        self._speed, self._given, self._acceptance = speed, hints, acceptance
        self._engines: Engines = {}
        self._requests: tuple[Request, ...] = ()
        self._answer: Answer = {}

    def timed(self, source: Source) -> PredictedTiming:
        """For each reading of the graph. SimulationError where replay has no such deployment, or
        nobody measured its kernels."""
        found = replayable(source, self._given, self._acceptance)
        asked = replayed_engines(found, whole_experts=False)
        require_all(source.deployment, asked)
        if asked != self._engines:  # a change of replicas asks nothing new of the kernels
            self._requests = comparison_requests(found.context, self._speed)
            self._answer = self._replay(found, self._requests)
            self._engines = asked
        whole = bool(self._answer.get("whole_experts"))
        engines = replayed_engines(found, whole_experts=whole)
        return PredictedTiming(
            python=str(self._python),
            engines={n: live_engine(e, found.context, self._speed) for n, e in engines.items()},
            notes=tuple(notes(found, engines, self._speed, whole_experts=whole)),
        )

    def _replay(self, deployment: Replayable, requests: Sequence[Request]) -> Answer:
        trace = as_trace(requests)
        job = Job(replayable=deployment, trace=trace, users=None, sample_ms=1000.0)
        with Replays(kept(self._python), processes=1) as replays:
            return replays.run([job])[0]

    async def compare(self, url: str, model: str, say: Callable[[str], None]) -> None:
        """Ask the endpoint what was replayed, and say both; without an answer, say that."""
        live = LiveClient(url=url, model=model, speed=self._speed)
        requests, answer = self._requests, self._answer  # an edit may bring others meanwhile
        try:
            await live.serve(requests[:WARM_UP], salt="warm-up")
            seen = await live.serve(requests)
        except LiveError as error:
            say(f"twin: not compared with the replay: {error}")
            return
        say(comparison_line(seen, served_requests(answer), self._speed))


def _require_mocker(python: Path) -> Path:
    """An environment of before replays only lacks what Dynamo's mocker imports."""
    if "uvloop" not in (python.parents[1] / "installed.txt").read_text():
        message = "the environment sim is an older one, without what the mocker imports"
        raise MissingToolError(Problem(message=message, fix="penstock env install sim"))
    return python
