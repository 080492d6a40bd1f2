"""The JSON document of `penstock simulate`, and parts of that of `plan`; source of its schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, SerializerFunctionWrapHandler, model_serializer

from penstock.graph.slo import Slo
from penstock.reports.json_document import Document, Number, VersionedDocument, set_fields
from penstock.simulate.accuracy import row_intervals
from penstock.simulate.calibration import Calibration
from penstock.simulate.frontend import FrontendLoad
from penstock.simulate.interval import Interval
from penstock.simulate.metrics import Spread, spreads
from penstock.simulate.report import assumed, never_simulated
from penstock.simulate.scaling import Event, Scaling
from penstock.simulate.study import Row, SustainedLoad
from penstock.simulate.window import Steadiness
from penstock.simulate.working_set import WorkingSet
from penstock.workload.load import LoadedWorkload
from penstock.workload.model import Workload

NOT_KNOWN: Any = Field(default=None)
GivenWorkload = Annotated[Workload, PlainSerializer(set_fields)]


class Figures(Document):
    """Metrics of the counted requests. Metrics that a replay does not have are missing."""

    requests: Spread = NOT_KNOWN
    """Number of counted requests."""
    unfinished: Spread = NOT_KNOWN
    """Number of requests that did not finish."""
    refused_share: Spread = NOT_KNOWN
    """Share of the requests that did not finish, or are longer than the engines accept."""
    ttft_p50_ms: Spread = NOT_KNOWN
    """Median time to first token in ms."""
    ttft_p90_ms: Spread = NOT_KNOWN
    """p90 of the time to first token in ms."""
    ttft_p99_ms: Spread = NOT_KNOWN
    """p99 of the time to first token in ms; missing if more than 1% of the requests failed."""
    itl_p50_ms: Spread = NOT_KNOWN
    """Median of the requests' mean inter-token latency in ms."""
    itl_p90_ms: Spread = NOT_KNOWN
    """p90 of the requests' mean inter-token latency in ms."""
    itl_p99_ms: Spread = NOT_KNOWN
    """p99 of the requests' mean inter-token latency in ms."""
    token_gap_p99_ms: Spread = NOT_KNOWN
    """p99 of the time between two tokens, over all tokens, in ms."""
    prefill_queue_p99_ms: Spread = NOT_KNOWN
    """p99 of the prefill queue time in ms."""
    decode_queue_p99_ms: Spread = NOT_KNOWN
    """p99 of the decode queue time in ms; missing without a decode pool."""
    user_rate: Spread = NOT_KNOWN
    """Output tokens/s of the median request."""
    output_rate: Spread = NOT_KNOWN
    """Output tokens/s of the deployment."""
    gpu_rate: Spread = NOT_KNOWN
    """Output tokens/s/GPU."""
    request_rate: Spread = NOT_KNOWN
    """Requests/s."""
    goodput: Spread = NOT_KNOWN
    """Share of requests that meet the SLO; missing without an SLO."""
    prefix_hit_rate: Spread = NOT_KNOWN
    """Share of input tokens that were found in a prefix cache."""
    gpu_hours: Spread = NOT_KNOWN
    """GPU-hours of the complete replay."""
    gpu_hours_per_million: Spread = NOT_KNOWN
    """GPU-hours for 1,000,000 output tokens."""

    @model_serializer(mode="wrap")
    def _known(self, handler: SerializerFunctionWrapHandler) -> Any:
        return {name: value for name, value in handler(self).items() if value is not None}


class Intervals(Document):
    """Factors of the predicted figures. Metrics without enough measured points are missing."""

    itl: Interval = NOT_KNOWN
    """Interval of the median inter-token latency."""
    ttft: Interval = NOT_KNOWN
    """Interval of the median time to first token."""
    rate: Interval = NOT_KNOWN
    """Interval of the output tokens/s; missing if the arrivals decide the rate."""

    @model_serializer(mode="wrap")
    def _known(self, handler: SerializerFunctionWrapHandler) -> Any:
        return {name: value for name, value in handler(self).items() if value is not None}


class Workers(Document):
    """Number of workers of a pool from a moment on."""

    at_s: float
    """Simulated time in seconds."""
    serving: int
    """Number of workers that are ready."""
    allocated: int
    """Number of workers that hold GPUs."""


class ScalingDocument(Document):
    """What the planner did in the replay of one seed."""

    events: Sequence[Event]
    """Decisions of the planner."""
    gpus: float
    """Average number of allocated GPUs."""
    workers: Mapping[str, Sequence[Workers]]
    """Number of workers over time, by the name of the pool."""


class WorkingSetDocument(Document):
    """Prompt tokens that are needed again, and the KV cache for them."""

    tokens: int
    """Most prompt tokens, at any time, that were computed and are needed again later."""
    pool: str
    """Name of the pool that computes prompts."""
    workers: int
    """Number of workers of the pool."""
    worker_tokens: int
    """KV cache of one worker in tokens, which running requests use too."""
    fits: bool
    """Whether the caches of all workers together hold these tokens."""


class GraphFigures(Document):
    """One deployment at one scale of the workload."""

    graph: str
    """Name of the graph."""
    gpu: str
    """GPU of the workers."""
    gpus: Number
    """Number of GPUs; with a planner, the average."""
    shape: str
    """Pools, workers and their parallelism."""
    slo: Slo
    """SLO; null is no limit."""
    stage_rate: float | None
    """Arrival rate of the stage of a ladder, in requests/s or conversations/s; null without one."""
    scale: float
    """Multiple of the workload's arrival rate or concurrency."""
    seeds: int
    """Number of replays, each with another sample of the requests."""
    steadiness: Steadiness | None
    """Length and rates of the least steady seed; null if all requests are counted. Of a stage of a
    ladder: null unless its queue grows."""
    is_steady: bool
    """Whether the figures do not depend on the length of the replay."""
    too_long: int
    """Number of requests that the engines refuse because of their length."""
    over_input_limit: int
    """Number of these requests whose input is longer than an engine step."""
    figures: Figures
    """Metrics, each over the seeds."""
    intervals: Intervals
    """90% intervals of the measured figures, as factors of the predicted ones."""
    scaling: Sequence[ScalingDocument] | None
    """Scaling in the replay of each seed; null without a planner."""
    cost_per_million: float | None
    """Price of 1,000,000 output tokens in the currency of `--gpu-hour-price`; null without one."""
    assumed: Sequence[str]
    """Assumptions of the prediction."""
    calibration: Calibration | None
    """Factors of `--calibration`; null without it, and if the file has none for this graph."""
    not_simulated: Sequence[str]
    """Settings of the graph that are not simulated."""


class FrontendsDocument(Document):
    """CPU cores that the arriving requests need in the frontends."""

    replicas: int
    """Number of frontends."""
    cores: float | None
    """CPU cores that each frontend requests; null if unset: 8 are assumed."""
    busy_cores: float
    """CPU cores that the requests keep busy, over all frontends."""
    needed_replicas: int
    """Number of frontends in which requests do not queue."""
    is_saturated: bool
    """Whether requests arrive faster than the frontends can serve them. The SLO is missed then,
    unless clients wait for responses."""


class SimulatedGraph(GraphFigures):
    """One deployment with its verdict, its working set and its frontends."""

    meets_slo: bool | None
    """Whether enough requests (`--attain`) meet the SLO, and the frontends are not overloaded; null
    without an SLO."""
    frontends: FrontendsDocument | None
    """Load of the frontends; null for a manifest without one."""

    working_set: WorkingSetDocument | None
    """Prompt tokens that are needed again; null without prefix caching or shared prefixes."""


class TriedScale(Document):
    scale: float
    """Multiple of the workload's arrival rate or concurrency."""
    goodput: float | None
    """Share of requests that meet the SLO; null if none was counted."""


class SustainedLoadDocument(Document):
    """Result of the search for the highest load that meets the SLO."""

    graph: str
    """Name of the graph."""
    highest_scale: float | None
    """Highest multiple of the workload's load that meets the SLO; null if none does."""
    lowest_failing_scale: float | None
    """Lowest multiple that misses the SLO; null if none was found."""
    tried: Sequence[TriedScale]
    """Scales that were replayed, in order of the search."""


class SimulateDocument(VersionedDocument):
    """Graphs under one workload."""

    workload: GivenWorkload
    """Workload, as in a workload file; fields that are not set are missing."""
    graphs: Sequence[SimulatedGraph]
    """Figures of each graph; with a planner also without it."""
    sustained: Sequence[SustainedLoadDocument]
    """Result of `--until-slo-breaks` for each graph; empty without it."""
    not_simulated: Sequence[str]
    """What is not simulated in any graph."""


def as_json(
    rows: Sequence[Row],
    loaded: LoadedWorkload,
    sustained: Sequence[SustainedLoad],
    sets: Sequence[WorkingSet | None],
    attain: float,
) -> str:
    """``sets``: the working set of each row. ``attain``: share of requests that must meet the
    SLO."""
    return SimulateDocument.of(
        workload=loaded.workload,
        graphs=[
            SimulatedGraph(
                **_figures(row),
                meets_slo=row.meets_slo(attain),
                frontends=_frontends_document(row.frontend_load),
                working_set=working_set_document(working_set),
            )
            for row, working_set in zip(rows, sets, strict=True)
        ],
        sustained=list(map(_sustained_document, sustained)),
        not_simulated=never_simulated(loaded.workload),
    ).as_json()


def figures_of(row: Row) -> GraphFigures:
    return GraphFigures(**_figures(row))


def as_rows(rows: Sequence[Row]) -> list[dict[str, object]]:
    return [figures_of(row).model_dump(mode="json", warnings=False) for row in rows]


def working_set_document(working_set: WorkingSet | None) -> WorkingSetDocument | None:
    return WorkingSetDocument.of(working_set) if working_set else None


def _frontends_document(load: FrontendLoad | None) -> FrontendsDocument | None:
    if load is None:
        return None
    return FrontendsDocument(
        replicas=load.frontends.replicas,
        cores=load.frontends.cores,
        busy_cores=load.busy_cores,
        needed_replicas=load.needed,
        is_saturated=load.is_saturated,
    )


def _sustained_document(load: SustainedLoad) -> SustainedLoadDocument:
    return SustainedLoadDocument(
        graph=load.rows[0].replayable.name,
        highest_scale=load.highest.scale if load.highest else None,
        lowest_failing_scale=load.lowest_failing.scale if load.lowest_failing else None,
        tried=[TriedScale(scale=row.scale, goodput=row.goodput) for row in load.rows],
    )


def _figures(row: Row) -> dict[str, Any]:
    """The fields of `GraphFigures`."""
    figures = dict(spreads(row.metrics))
    price = row.replayable.gpu_hour_price
    hours = figures.get("gpu_hours_per_million")
    return {
        "graph": row.replayable.name,
        "gpu": row.replayable.gpu.name,
        "gpus": row.gpus,
        "shape": row.replayable.shape,
        "slo": row.replayable.slo,
        "stage_rate": row.stage and row.stage.rate,
        "scale": row.scale,
        "seeds": len(row.metrics),
        "steadiness": row.steadiness,
        "is_steady": row.is_steady,
        "too_long": row.too_long,
        "over_input_limit": row.over_input_limit,
        "figures": Figures(**figures),
        "intervals": Intervals(**row_intervals(row)),
        "scaling": [_scaling_document(scaling, row) for scaling in row.scalings]
        if row.replayable.planner
        else None,
        "cost_per_million": hours.median * price if price and hours and hours.median else None,
        "assumed": list(assumed(row)),
        "calibration": row.replayable.calibration,
        "not_simulated": row.replayable.not_simulated,
    }


def _scaling_document(scaling: Scaling, row: Row) -> ScalingDocument:
    names = ("+".join(pool.names) for pool in row.replayable.pools)
    return ScalingDocument(
        events=list(scaling.events),
        gpus=scaling.gpus(row.replayable),
        workers={
            name: [
                Workers(at_s=step.at_ms / 1000, serving=step.serving, allocated=step.allocated)
                for step in steps
            ]
            for name, steps in zip(names, scaling.steps, strict=True)
        },
    )
