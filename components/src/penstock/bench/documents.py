"""The JSON documents of `penstock bench`, from which their published schema is generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer

from penstock.bench import aiperf
from penstock.bench.compare import NAMES, Comparison, LimitCheck, Slicing
from penstock.bench.difference import LEVEL, Difference
from penstock.bench.measurement import Bench, Failures, Measurement, Prediction
from penstock.bench.quick import QuickFigures, QuickRun
from penstock.bench.sweep import Sweep
from penstock.graph.slo import Slo
from penstock.reports.json_document import Document, VersionedDocument, set_fields
from penstock.simulate.calibration import Calibration
from penstock.workload.model import Workload


class NamedWorkload(Workload):
    name: str = Field(description="Name of the workload.")

    @classmethod
    def of(cls, name: str, workload: Workload) -> NamedWorkload:
        """``workload`` is not validated again: its scale and its length may have been changed."""
        return cls.model_construct(name=name, **dict(workload))


GivenSlo = Annotated[Slo, PlainSerializer(set_fields)]
GivenNamedWorkload = Annotated[NamedWorkload, PlainSerializer(set_fields)]


def _without_length(workload: NamedWorkload) -> dict[str, Any]:
    """How many requests are sent follows from the slices."""
    return {**set_fields(workload), "requests": None}


SlicedWorkload = Annotated[NamedWorkload, PlainSerializer(_without_length)]


class SteadyState(Document):
    """Whether the run was long enough for latencies that do not depend on its length."""

    window_s: float
    """Length of the measured window in seconds."""
    request_s: float
    """p99 of the request duration in the window, in seconds."""
    offered_rate: float
    """Requests/s that were sent in the window; with conversations, the rate of the workload."""
    served_rate: float
    """Requests/s that completed in the window."""
    warm_up_s: float
    """Seconds before the window."""
    short_request_s: float
    """Duration of a request without a queue, in seconds."""
    fill_s: float
    """Seconds until the number of concurrent conversations is steady; 0 without conversations."""
    is_steady: bool
    """Whether the window is long enough, and as many requests completed in it as were sent."""


class RunHeader(VersionedDocument):
    """Which run it is, and whether its figures hold."""

    kind: Literal["run"]
    """Form of the document."""
    url: str
    """URL of the endpoint, without `/v1`."""
    model: str
    """Model that was requested."""
    client: str
    """Load generator and its version."""
    seed: int
    """Seed of the sampled requests."""
    speed: float
    """Simulation speed of a target that `--start` started; all times are simulated."""
    engine_is_substitute: bool | None
    """Whether mockers served instead of an engine; null if that is not known."""
    workload: GivenNamedWorkload
    """Workload that was sent, as in a workload file; fields that are not set are missing."""
    slo: GivenSlo
    """SLO of the run; limits that are not set are missing."""
    attain: float
    """Share of requests that must meet the SLO."""
    meets_slo: bool | None
    """Whether enough requests meet the SLO; null without an SLO, and if no request was counted."""
    prediction: Prediction | None
    """Figures of `--predict`; null without it."""
    calibration: Calibration | None
    """Factors of `--calibrate`; null without it."""
    interrupted: str | None
    """What ended the run early; null if it is complete."""
    distortion: str | None
    """Why this machine may have distorted the latencies; null if it has not."""


class RunDocument(Measurement, RunHeader):
    """One run against one target."""

    steadiness: SteadyState | None  # type: ignore[assignment]
    """Whether the latencies are those of a steady state; null with a fixed concurrency."""


class LevelDocument(RunDocument):
    """One load of a sweep."""

    scale: float
    """Multiple of the workload's arrival rate or concurrency."""
    tokens_per_second_gpu: float | None
    """Output tokens/s/GPU; null if the number of GPUs is not known."""
    is_on_pareto_front: bool
    """Whether no other load has more tokens/s for each user without fewer tokens/s in total."""


class SweepDocument(VersionedDocument):
    """Runs against one target at several loads."""

    kind: Literal["sweep"]
    """Form of the document."""
    engine_is_substitute: bool | None
    """Whether mockers served instead of an engine; null if that is not known."""
    gpus: int | None
    """GPUs of the target; null if not known."""
    highest_scale_within_slo: float | None
    """Scale of the last load that meets the SLO; null without an SLO, and if none meets it."""
    interrupted: str | None
    """What ended the sweep early; null if it is complete."""
    unmeasured_scales: Sequence[float]
    """Scales that were not measured, because the sweep ended before them."""
    levels: Sequence[LevelDocument]
    """Runs, lowest load first."""


class TargetDocument(Document):
    """One target of a comparison."""

    url: str
    """URL of the endpoint, without `/v1`."""
    model: str
    """Model that was requested."""
    graph: str
    """File of the graph; empty if the target was named by its URL."""
    is_chat: bool
    """Whether chat requests were sent, else completions."""
    speed: float
    """Simulation speed; always 1, because comparisons are in real time."""
    engine_is_substitute: bool | None
    """Whether mockers served instead of an engine; null if that is not known."""
    failures: Failures
    """Failed requests of the complete run."""
    unsent: int
    """Number of requests that were not sent, or have no record."""


class ComparisonDocument(VersionedDocument):
    """One run against two targets, which get the same requests in alternating slices."""

    kind: Literal["comparison"]
    """Form of the document."""
    client: str
    """Load generator and its version."""
    seed: int
    """Seed of the sampled requests and of the order of slices."""
    workload: SlicedWorkload
    """Workload that was sent, as in a workload file, with null as its number of requests."""
    targets: Mapping[Literal["A", "B"], TargetDocument]
    """Both targets by name."""
    slicing: Slicing
    """Slices of the run."""
    pairs: int
    """Number of pairs of slices that are counted."""
    requests: int
    """Number of counted requests, each served by both targets."""
    level: float
    """Highest probability that the run makes any wrong claim."""
    has_verdict: bool
    """Whether the served requests represent the traffic of both targets."""
    differences: Sequence[Difference]
    """Changes from A to B; empty if too few requests were served to compare."""
    limits: Sequence[LimitCheck]
    """Outcome of each `--fail-if`."""
    skew_ms: float
    """How much later the load of one target began, in ms."""
    overlapping: float
    """Share of the responses that ended after the other target's slice had begun."""
    distortion: str | None
    """Why this machine may have distorted the latencies; null if it has not."""
    interrupted: str | None
    """What ended the run early; null if it is complete."""


class QuickDocument(QuickFigures, VersionedDocument):
    """A quick calibration."""

    kind: Literal["quick-calibration"]
    """Form of the document."""
    url: str
    """URL of the endpoint, without `/v1`."""
    model: str
    """Model that was requested."""
    speed: float
    """Simulation speed of a target that `--start` started; all times are simulated."""
    engine_is_substitute: bool | None
    """Whether mockers served instead of an engine; null if that is not known."""
    calibration: Calibration | None
    """Factors; null without `--predict`, and if they are too uncertain."""


WorkloadDocument = RunDocument | SweepDocument | ComparisonDocument | QuickDocument
"""With `--workload` or `--calibrate quick`."""


def quick_document(quick: QuickRun) -> QuickDocument:
    return QuickDocument.of(quick.figures, quick, quick.endpoint)


def run_document(bench: Bench) -> RunDocument:
    return RunDocument.of(bench, bench.endpoint, bench.measurement, **_run_fields(bench))


def _run_fields(bench: Bench) -> dict[str, Any]:
    """Fields of a `RunDocument` that differ from the attributes of a run."""
    return {
        "client": aiperf.VERSION,
        "workload": NamedWorkload.of(bench.workload.name, bench.workload.workload),
        "distortion": bench.measurement.distorted_by,
    }


def sweep_document(sweep: Sweep) -> SweepDocument:
    return SweepDocument.of(
        sweep,
        engine_is_substitute=sweep.levels[0].bench.endpoint.engine_is_substitute,
        highest_scale_within_slo=sweep.highest.scale if sweep.highest else None,
        unmeasured_scales=sweep.unmeasured,
        levels=[
            LevelDocument.of(
                *(level, level.bench, level.bench.endpoint, level.bench.measurement),
                **_run_fields(level.bench),
                tokens_per_second_gpu=sweep.gpu_rate(level),
                is_on_pareto_front=level in sweep.front,
            )
            for level in sweep.levels
        ],
    )


def comparison_document(
    comparison: Comparison, checked: Sequence[LimitCheck]
) -> ComparisonDocument:
    request = comparison.request
    targets = zip(NAMES, request.endpoints, comparison.failures, comparison.unsent, strict=True)
    return ComparisonDocument.of(
        comparison,
        request,
        client=aiperf.VERSION,
        workload=NamedWorkload.of(request.workload.name, request.workload.workload),
        targets={
            name: TargetDocument.of(endpoint, failures=failures, unsent=unsent)
            for name, endpoint, failures, unsent in targets
        },
        level=LEVEL,
        limits=checked,
    )
