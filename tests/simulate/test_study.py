"""The search for the highest scale, for a deployment that fails at a known scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from penstock.errors import InputError
from penstock.graph.slo import Slo
from penstock.plan.report import table_width
from penstock.reports.model import State
from penstock.reports.text import NARROW, table_lines
from penstock.simulate.documents import as_json
from penstock.simulate.frontend import Frontends
from penstock.simulate.metrics import replay_metrics
from penstock.simulate.model import InputLimit, Replayable
from penstock.simulate.replay import Cache, Job, Replays, Result
from penstock.simulate.report import (
    Simulated,
    never_simulated,
    notes,
    report_of,
    sustained_load_line,
    table_of,
    title,
)
from penstock.simulate.study import LONG, Row, Study
from penstock.workload import find_workload
from penstock.workload.duration import MAX_SEARCHED_REQUESTS
from penstock.workload.load import LoadedWorkload, parse_workload
from penstock.workload.model import Arrival
from tests.simulate.test_metrics import answer, steady
from tests.simulate.test_replayable import of
from tests.support.outputs import read_output

ANSWER = steady()
WELL, BADLY = Slo(ttft_ms=51), Slo(ttft_ms=49)  # `steady` takes 50


def replayed_deployment() -> Replayable:
    return of("gpt-oss-120b-b200-throughput")


def round_robin() -> Replayable:
    return of("gpt-oss-120b-b200-throughput", "router.mode=round-robin")


@dataclass(frozen=True, kw_only=True)
class Breaking(Study):
    breaks_at: float
    long_breaks_at: float = 1e9

    def at(self, deployment: Replayable, scale: float, repeat: int = 1) -> Row:
        breaks_at = min(self.breaks_at, self.long_breaks_at) if repeat > 1 else self.breaks_at
        slo = WELL if scale < breaks_at else BADLY
        seeds = (replay_metrics(ANSWER, 1, slo),)
        return Row(replayable=deployment, metrics=seeds, results=(ANSWER,), scale=scale)


def study(breaks_at: float) -> Breaking:
    replays = Replays(Cache(None, ""), processes=1)
    return Breaking(workload=find_workload("short-chat"), replays=replays, breaks_at=breaks_at)


@pytest.mark.parametrize("breaks_at", [0.01, 0.3, 0.99, 1.01, 7, 900])
def test_the_highest_scale_is_found_within_three_percent(breaks_at: float) -> None:
    reported: list[str] = []
    (load,) = study(breaks_at).sustained_loads([replayed_deployment()], reported.append)
    assert load.highest is not None
    assert load.lowest_failing is not None
    assert load.highest.scale < breaks_at <= load.lowest_failing.scale
    assert load.lowest_failing.scale / load.highest.scale < 1.03
    factors = [row.scale for row in load.rows]
    assert factors == sorted(factors)
    assert len(reported) == len(factors) <= 18


def test_a_scale_that_misses_the_slo_only_in_a_long_replay_is_not_sustained() -> None:
    asked = replace(study(7), long_breaks_at=5)
    (load,) = asked.sustained_loads([replayed_deployment()])
    assert load.highest is not None
    assert load.lowest_failing is not None
    assert 4.5 < load.highest.scale < 5 <= load.lowest_failing.scale < 5.5
    (never,) = replace(study(7), long_breaks_at=0).sustained_loads([replayed_deployment()])
    assert never.highest is None


def test_the_line_of_a_sustained_load_says_how_its_replay_differs_from_one_of_the_scale() -> None:
    asked = study(5)
    (load,) = asked.sustained_loads([replayed_deployment()])
    assert load.highest is not None
    line = sustained_load_line(load, asked.workload)
    once = asked.workload.at_scale(load.highest.scale).workload.requests
    long = asked.workload.for_search(load.highest.scale, repeat=5).workload.requests
    assert f"of a replay with {long:,} requests" in line
    assert line.endswith(f"`--scale {load.highest.scale:.2f}` replays {once:,}")
    capped = asked.workload.with_workload(asked.workload.workload.with_requests(20_000))
    (load,) = replace(asked, workload=capped).sustained_loads([replayed_deployment()])
    assert "`--scale" not in sustained_load_line(load, capped)  # 20,000 in both


def test_an_slo_that_is_never_and_always_met() -> None:
    (never,) = study(0).sustained_loads([replayed_deployment()])
    assert (never.highest, never.lowest_failing) == (None, never.rows[0])
    (always,) = study(1e9).sustained_loads([replayed_deployment()])
    assert always.lowest_failing is None
    assert always.highest == always.rows[-1]


@pytest.mark.parametrize(("cores", "meets"), [(1.0, True), (0.01, False)])
def test_a_graph_whose_frontends_are_overloaded_misses_the_slo(cores: float, meets: bool) -> None:
    frontends = Frontends(replicas=2, cores=cores)  # 10 requests/s need 0.04 cores
    deployment = replace(replayed_deployment(), frontends=frontends)
    asked = study(1e9)
    (load,) = asked.sustained_loads([deployment])
    row = load.highest or load.rows[0]
    assert row.goodput == 1.0
    assert row.meets_slo(0.95) is asked.meets(row) is meets
    line = sustained_load_line(load, asked.workload)
    reason = "the frontends cannot serve the requests as fast as they arrive: 0.04 CPU cores"
    assert (reason in line) is not meets
    study_of_row = Simulated(
        rows=[row], sustained=[], loaded=asked.workload, attain=0.95, sets=[None]
    )
    (verdict,) = report_of(study_of_row).verdicts
    assert (verdict.state is State.MET, reason in verdict.text) == (meets, not meets)
    document = read_output("simulate", as_json([row], asked.workload, [], [None], 0.95))
    assert document["graphs"][0]["frontends"]["is_saturated"] is not meets
    assert document["graphs"][0]["meets_slo"] is meets


def test_the_frontends_of_an_overloaded_engine_get_the_requests_that_arrive() -> None:
    """100 requests/s, which take 100 times as long as they arrive."""
    overloaded = answer(*((10.0 * i, 1000.0 * i + 900, 1000.0 * i + 1000, 11) for i in range(100)))
    metrics = replay_metrics(overloaded, 1, WELL)
    row = Row(replayable=replayed_deployment(), metrics=(metrics,), results=(overloaded,))
    assert metrics.request_rate < 2
    assert row.offered_rate == pytest.approx(100)
    clients = replace(row, is_closed_loop=True)
    assert clients.offered_rate == metrics.request_rate


def test_a_faster_workload_lasts_as_long() -> None:
    loaded = find_workload("short-chat")
    assert loaded.at_scale(4).workload.requests == 2000
    assert loaded.at_scale(100).workload.requests == 20_000
    assert loaded.at_scale(0.5).workload.requests == 500
    assert loaded.at_scale(0.5, min_requests=100).workload.requests == 250
    assert loaded.at_scale(0.01, min_requests=100).workload.requests == 100
    assert loaded.for_search(4, repeat=5).workload.requests == 10_000
    assert loaded.for_search(100, repeat=100).workload.requests == 20_000
    users = loaded.workload.model_copy(update={"arrival": Arrival(concurrency=100)})
    assert replace(loaded, workload=users).at_scale(10).workload.requests == 8000
    arrival = loaded.at_scale(4).workload.arrival
    assert arrival is not None
    assert arrival.poisson == 16


@dataclass
class RecordedReplays(Replays):
    """Returns a result at once, and keeps the jobs."""

    jobs: list[Job] = field(default_factory=list)

    def run(
        self, jobs: Sequence[Job], progress: Callable[[int, int], None] | None = None
    ) -> list[Result]:
        self.jobs.extend(jobs)
        return [steady() for _ in jobs]


def jobs_of(deployment: Replayable, loaded: LoadedWorkload, **more: Any) -> tuple[list[Job], Row]:
    replays = RecordedReplays(cache=Cache(None, ""), processes=1)
    (row,) = Study(workload=loaded, replays=replays, **more).rows([deployment], None)
    return replays.jobs, row


def test_each_seed_samples_other_traffic_even_where_replays_are_not_random() -> None:
    assert not round_robin().is_random
    jobs, row = jobs_of(round_robin(), find_workload("short-chat"))
    assert len({job.digest for job in jobs}) == len(row.metrics) == 3
    assert len(jobs_of(round_robin(), find_workload("short-chat"), seeds=2)[0]) == 2


def test_a_trace_is_replayed_again_only_where_replays_are_random() -> None:
    text = "".join(
        f'{{"timestamp": {at}, "input_length": 9, "output_length": 9}}\n' for at in range(5)
    )
    loaded = replace(parse_workload("trace: {format: mooncake}\n", "t.yaml"), trace_text=text)
    assert len(jobs_of(round_robin(), loaded)[0]) == 1
    assert len(jobs_of(replayed_deployment(), loaded)[0]) == 3


def test_a_search_uses_one_seed_and_decides_with_three() -> None:
    replays = RecordedReplays(cache=Cache(None, ""), processes=1)
    asked = Study(workload=find_workload("short-chat"), replays=replays)
    assert len(asked.at(round_robin(), 2).metrics) == 1
    assert len(asked.at(round_robin(), 1, LONG).metrics) == 3
    assert len(asked.at(round_robin(), 2, LONG).metrics) == 1  # with 5,000 requests
    assert asked.workload.for_search(100).workload.requests == MAX_SEARCHED_REQUESTS
    assert asked.workload.for_search(0.1).workload.requests == 500


def prompts(*tokens: int) -> LoadedWorkload:
    lines = (
        f'{{"timestamp": {at}, "input_length": {length}, "output_length": 9}}\n'
        for at, length in enumerate(tokens)
    )
    loaded = parse_workload("trace: {format: mooncake}\n", "t.yaml")
    return replace(loaded, trace_text="".join(lines))


def test_inputs_beyond_a_step_without_chunked_prefill_are_rejected_and_counted() -> None:
    short = replace(replayed_deployment(), input_limit=InputLimit(pool="worker", tokens=100))
    jobs, row = jobs_of(short, prompts(100, 101, 50, 10**9), seeds=1)
    assert (row.too_long, row.over_input_limit) == (2, 1)
    assert len(jobs[0].trace.splitlines()) == 2
    lines = [line for line in notes([row], [None]) if "rejected" in line]
    limited = "rejected requests: 1 (input longer than 100 tokens, the maximum per step of worker"
    assert any(limited in line for line in lines)
    assert any("rejected requests: 1 (input and output longer than" in line for line in lines)


def test_if_every_input_is_beyond_the_step_the_pool_and_the_fix_are_named() -> None:
    short = replace(replayed_deployment(), input_limit=InputLimit(pool="worker", tokens=100))
    with pytest.raises(InputError, match="longer than 100 tokens, the step of worker") as caught:
        jobs_of(short, prompts(101, 200))
    assert "Enable chunked prefill of worker" in caught.value.problems[0].fix


def test_if_every_request_of_a_trace_is_too_long_the_trace_is_named() -> None:
    with pytest.raises(InputError, match="every request is longer than the") as caught:
        jobs_of(replayed_deployment(), replace(prompts(10**9), trace_source="long.jsonl"))
    (problem,) = caught.value.problems
    assert problem.file == "long.jsonl"
    assert "model.context_length" not in problem.fix


def test_requests_of_a_trace_without_output_are_reported() -> None:
    loaded = prompts(10, 10, 10)
    assert title(loaded, []) == "t: recorded arrivals"
    zero = loaded.trace_text.replace('"output_length": 9', '"output_length": 0', 1)
    left = replace(loaded, trace_text=zero)
    assert title(left, []) == "t: recorded arrivals, 1 request without output left out"
    assert len(left.requests(0)) == 2


def test_the_search_stops_at_the_limit_of_sampled_requests() -> None:
    ramp = "arrival: {ramp: {start: 100, end: 100, seconds: 2500}}\n"
    loaded = parse_workload(f"input: 10\noutput: 10\n{ramp}", "ramp.yaml")
    (load,) = replace(study(1e9), workload=loaded).sustained_loads([replayed_deployment()])
    assert [row.scale for row in load.rows] == [1.0, 2.0, 4.0, 4.0]


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("", None),
        ("conversation: {turns: 4}\n", "(`conversation.cached_output` is not set)"),
        ("conversation: {turns: 4, cached_output: true}\n", None),
    ],
)
def test_hits_on_outputs_are_a_note_only_where_they_are_possible(
    text: str, note: str | None
) -> None:
    workload = f"requests: 8\ninput: 100\noutput: 10\narrival: {{poisson: 1}}\n{text}"
    lines = "; ".join(never_simulated(parse_workload(workload, "w.yaml").workload))
    assert ("prefix-cache hits" in lines) is bool(note)
    assert note is None or note in lines


def test_only_a_disaggregated_row_has_a_decode_queue() -> None:
    queued = steady()
    (row,) = (
        Row(
            replayable=replayed_deployment(),
            metrics=(replay_metrics(queued, 1, WELL),),
            results=(queued,),
        ),
    )
    assert "decode queue" not in next(iter(table_lines(table_of([row]))))
    queued["requests"]["decode_queue_ms"] = [7.0] * 100
    split = replace(row, replayable=of("gpt-oss-120b-b200-disagg"))
    both = [row, replace(split, metrics=(replay_metrics(queued, 1, WELL),))]
    head, aggregated, disaggregated = table_lines(table_of(both))
    at = head.index("decode queue p99")
    assert aggregated[at:].startswith("- ")
    assert disaggregated[at:].startswith("7 ")


def test_the_narrow_table_fits_80_columns_and_keeps_long_names() -> None:
    answer = steady()
    row = Row(
        replayable=replace(replayed_deployment(), name="short"),
        metrics=(replay_metrics(answer, 1, WELL),),
        results=(answer,),
    )
    name = "gpt-oss-120b-h200-latency-eagle3"
    long = replace(row, replayable=replace(row.replayable, name=name))
    head, short, first, second = table_lines(table_of([row, long]), NARROW)
    assert max(map(len, (head, short, first, second))) <= 80
    assert first == name
    assert short.startswith("short ")
    assert short.split()[1:] == second.split()
    (_, full) = table_lines(table_of([row]))
    assert short.split()[2] == "/".join(full.split()[2:5:2])
    assert head.split()[:3] == ["graph", "GPUs", "TTFT"]


def test_the_narrow_table_keeps_the_cost_that_an_option_asked_for() -> None:
    answer = steady()
    row = Row(
        replayable=replace(replayed_deployment(), gpu_hour_price=3.5),
        metrics=(replay_metrics(answer, 1, WELL),),
        results=(answer,),
    )
    head, *_, cells = table_lines(table_of([row]), NARROW)
    assert head.endswith("cost/Mtok")
    assert cells.split()[-1] == list(table_lines(table_of([row])))[1].split()[-1]
    assert max(map(len, (head, cells))) <= 80


@pytest.mark.parametrize("width", [None, 80, 100, 120, 150, 300])
@pytest.mark.parametrize("length", [5, 50, 75])
def test_a_table_of_plan_fits_120_columns_with_the_cost(width: int | None, length: int) -> None:
    answer = steady()
    row = Row(
        replayable=replace(replayed_deployment(), name="x" * length, gpu_hour_price=3.5),
        metrics=(replay_metrics(answer, 1, WELL),),
        results=(answer,),
    )
    head, *cells = table_lines(table_of([row]), table_width(width))
    assert max(map(len, (head, *cells))) <= min(width or 120, 120)
    assert head.endswith("cost/Mtok")
