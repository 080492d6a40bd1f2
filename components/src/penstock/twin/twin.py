"""`penstock up --timing model`: configure the mockers, and compare them with the replay.

`cli.up` creates one `Twin` per run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.environments.paths import STAMP
from penstock.errors import MissingToolError, Problem
from penstock.local.predicted_timing import PredictedTiming
from penstock.manifests.source import Source
from penstock.serving.understand import Hints
from penstock.simulate.acceptance import Acceptance
from penstock.simulate.cache import environment_cache
from penstock.simulate.metrics import served_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Job, Replays, Result, as_trace, require_environment
from penstock.simulate.replayable import replayable
from penstock.twin.compare import comparison_line, comparison_requests
from penstock.twin.engines import Engines, live_engine, notes, replayed_engines, require_all
from penstock.twin.live_client import LiveClient, LiveError
from penstock.workload import Request

WARM_UP = 2  # requests before the measured ones: a mocker's first step loads its step times


class Twin:
    """``speed``: simulation speed; 0.5 takes twice as long as the real hardware."""

    def __init__(self, speed: float, hints: Hints, acceptance: Acceptance | None = None) -> None:
        self._python = _require_mocker(require_environment())
        self._speed, self._hints, self._acceptance = speed, hints, acceptance
        self._engines: Engines = {}
        self._requests: tuple[Request, ...] = ()
        self._answer: Result = {}

    def timed(self, source: Source) -> PredictedTiming:
        """The timing of a graph. SimulationError when it cannot be replayed, or when there are no
        measured kernels for it."""
        deployment = replayable(source, self._hints, self._acceptance)
        requested = replayed_engines(deployment, whole_experts=False)
        require_all(source.deployment, requested)
        if requested != self._engines:  # a change of replicas needs no new replay
            self._requests = comparison_requests(deployment.context, self._speed)
            self._answer = self._replay(deployment, self._requests)
            self._engines = requested
        whole_experts = bool(self._answer.get("whole_experts"))
        engines = replayed_engines(deployment, whole_experts=whole_experts)
        return PredictedTiming(
            python=str(self._python),
            engines={
                n: live_engine(e, deployment.context, self._speed) for n, e in engines.items()
            },
            notes=tuple(notes(deployment, engines, self._speed, whole_experts=whole_experts)),
        )

    def _replay(self, deployment: Replayable, requests: Sequence[Request]) -> Result:
        trace = as_trace(requests)
        job = Job(replayable=deployment, trace=trace, concurrency=None, sample_ms=1000.0)
        with Replays(environment_cache(self._python), processes=1) as replays:
            return replays.run([job])[0]

    async def compare(self, url: str, model: str, say: Callable[[str], None]) -> None:
        """Send the replayed requests to the endpoint and print both latencies, or why it failed."""
        live = LiveClient(url=url, model=model, speed=self._speed)
        requests, answer = self._requests, self._answer  # an edit may replace them meanwhile
        try:
            await live.serve(requests[:WARM_UP], salt="warm-up")
            measured = await live.serve(requests)
        except LiveError as error:
            say(f"twin: comparison with the replay failed: {error}")
            return
        say(comparison_line(measured, served_requests(answer), self._speed))


def _require_mocker(python: Path) -> Path:
    """MissingToolError for an older environment, which lacks what Dynamo's mocker imports."""
    if "uvloop" not in (python.parents[1] / STAMP).read_text():
        message = "the environment sim is outdated: it lacks packages that the mocker imports"
        fix = "Run `penstock tools env install sim`."
        raise MissingToolError(Problem(message=message, fix=fix))
    return python
