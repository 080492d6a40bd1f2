"""What `tune` recommends, for replays whose metrics are known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from penstock.cli import plan_router as command
from penstock.errors import SimulationError
from penstock.manifests.deployment import Role
from penstock.simulate.replay import Cache, Replays
from penstock.simulate.study import Row, Study
from penstock.simulate.window import Steadiness
from penstock.tune import report, tuning
from penstock.tune.settings import DYNAMO_DEFAULT, RouterSettings, grid, settings_of
from penstock.tune.tuning import (
    MIN_REQUESTS,
    MOST_REQUESTS,
    TAIL_REQUESTS,
    Confirmation,
    Search,
    exceeded,
    halves,
    is_hopeful,
    parts_of,
    possible_hits_of,
    ranked,
    ratio_of,
    with_enough_requests,
)
from penstock.workload.duration import MAX_REPLAYED_REQUESTS
from penstock.workload.load import LoadedWorkload, parse_workload
from tests.reports.read import text_of
from tests.simulate.test_metrics import answer, steady
from tests.tune.scripted import (
    LOADED,
    SEEDS,
    TUNED,
    deployment,
    faster,
    metrics,
    scripted_parts,
    trial,
    tuned,
)


@pytest.mark.parametrize("best", [TUNED, RouterSettings(8, 1), RouterSettings(1, 2)])
def test_the_best_settings_are_found_and_confirmed(best: RouterSettings) -> None:
    outcome = tuned(faster(best))
    assert outcome.recommended == best
    assert outcome.is_changed
    assert outcome.confirmation is not None
    assert outcome.confirmation.ratio.mean == pytest.approx(1 / 0.7)
    line = report.recommendation(outcome)
    assert line.startswith(
        f"{best}: TTFT p50/p90/p99 100/100/100 → 70/70/70 ms, ratio 1.43 (95% lower bound 1.43)"
    )


def test_a_queue_is_tried_for_the_best_settings_without_one() -> None:
    def behavior(settings: RouterSettings, seed: int) -> dict[str, Any]:
        gain = settings.prefill_load_scale + (settings.queue_threshold == 0)
        return {"ttft_ms": 100 - 3 * gain + seed % 2}

    outcome = tuned(behavior)
    assert outcome.recommended == RouterSettings(8, 1, 0.0)
    assert len(outcome.trials) == 9 + 3 * 3


def test_settings_that_were_only_lucky_are_not_recommended() -> None:
    def lucky(settings: RouterSettings, seed: int) -> dict[str, Any]:
        return {"ttft_ms": 70 if settings == TUNED and seed < SEEDS else 100}

    outcome = tuned(lucky)
    assert outcome.trials[0].settings == TUNED
    assert not outcome.is_changed
    assert outcome.recommended == DYNAMO_DEFAULT
    line = report.recommendation(outcome)
    assert line.startswith("keep Dynamo's default: prefill_load_scale 4")
    assert "lower bound of the ratio 1.00, needed 1.03" in line


def test_the_best_of_three_finalists_is_recommended_and_ties_are_named() -> None:
    """The best of the choice part is not the best on the other part."""
    strongest, second = RouterSettings(8, 1), RouterSettings(4, 2)

    def behavior(settings: RouterSettings, seed: int) -> dict[str, Any]:
        is_other_part = seed >= SEEDS
        ttft = {TUNED: 70, second: 71, strongest: 60 if not is_other_part else 90}
        return {"ttft_ms": ttft.get(settings, 100)}

    outcome = tuned(behavior)
    assert outcome.trials[0].settings == strongest
    assert outcome.recommended == second  # within the tie of TUNED, with as many changes
    assert report.recommendation(outcome).endswith(f"as good: {TUNED}")


def test_settings_that_break_a_margin_on_the_other_part_are_not_recommended() -> None:
    def slow_tail(settings: RouterSettings, seed: int) -> dict[str, Any]:
        is_late = settings == TUNED and seed >= SEEDS
        return {**faster(TUNED)(settings, seed), "ttft_p99_ms": 300 if is_late else 100}

    outcome = tuned(slow_tail)
    assert not outcome.is_changed
    assert "on the confirmation part, TTFT p99 is 200% higher" in report.recommendation(outcome)


def test_without_a_difference_nothing_is_confirmed() -> None:
    outcome = tuned(lambda settings, seed: {"ttft_ms": 100.0})
    assert (outcome.confirmation, outcome.recommended) == (None, DYNAMO_DEFAULT)
    line = report.recommendation(outcome)
    assert line == "keep Dynamo's default: no other settings were better on the choice part"


def test_without_queues_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = tuned(lambda settings, seed: {"ttft_ms": 100.0})
    assert not outcome.indifference  # `steady` queues for 10 % of the TTFT
    monkeypatch.setattr(tuning, "QUEUED", 0.2)
    outcome = tuned(lambda settings, seed: {"ttft_ms": 100.0})
    assert "requests hardly queue (p90 of the prefill queue time is 10%" in report.recommendation(
        outcome
    )
    monkeypatch.setattr(tuning, "possible_hits", lambda *_, **__: 0.9)  # which no replay finds
    assert not tuned(lambda settings, seed: {"ttft_ms": 100.0}).indifference


def test_dynamos_default_is_a_candidate_for_a_graph_with_other_settings() -> None:
    configured = {"prefill_load_scale": 2, "overlap_score_credit": 3, "router_queue_threshold": 2.0}
    outcome = tuned(faster(DYNAMO_DEFAULT), **configured)
    assert outcome.base.settings == RouterSettings(2, 3, 2.0)
    assert outcome.recommended == DYNAMO_DEFAULT
    assert outcome.is_changed
    kept = tuned(faster(RouterSettings(2, 3, 2.0)), **configured)
    assert kept.recommended == RouterSettings(2, 3, 2.0)
    assert report.recommendation(kept).startswith("keep the graph's prefill_load_scale 2")
    assert DYNAMO_DEFAULT in {trial.settings for trial in kept.trials}


@pytest.mark.slow
@pytest.mark.parametrize("shape", range(4))
def test_the_search_is_within_three_percent_of_the_complete_grid(shape: int) -> None:
    def behavior(settings: RouterSettings, seed: int) -> dict[str, Any]:
        scale, credit = settings.prefill_load_scale, settings.overlap_score_credit
        queue = settings.queue_threshold == 0
        curves = (
            abs(scale - 4) + abs(credit - 4) - queue,
            abs(scale - 8) + 3 * credit + 2 * queue,
            scale + credit - 3 * queue,
            abs(scale - 4) * credit - queue * credit,
        )
        return {"ttft_ms": 100 + 4 * curves[shape] + (seed * 7 + scale) % 3}

    outcome = tuned(behavior)
    search = Search(deployment(), lambda *_: None, 99)
    trials = search.replay(scripted_parts(behavior).choice, grid(), "choice")
    best = ranked(trials[0], trials)[0]
    assert ratio_of(best, outcome.trials[0]).mean > 0.97


def test_the_output_has_both_parts_and_the_margins() -> None:
    outcome = tuned(faster(TUNED))
    text = text_of(report.report_of(outcome))
    lines = text.splitlines()
    assert lines[0] == "ours, chat: Poisson, 4 requests/s; simulated, not measured"
    assert "ITL p90 more than 5% higher" in text
    assert "choice (seeds 0 to 2), the best of 18 combinations:" in text
    assert "confirmation (seeds 3 to 8):" in text
    assert "1 / 1 / unset / unset (Dynamo's default)" in text
    assert sum(line.startswith("recommended: ") for line in lines) == 1
    assert "not simulated in any graph" in text


def test_json_has_a_schema_version_and_the_recommendation() -> None:
    output = json.loads(report.as_json(tuned(faster(TUNED)), "model: …"))
    assert output["schema_version"] == 2
    assert output["recommended"]["prefill_load_scale"] == 4
    assert output["recommended"]["queue_threshold"] is None
    assert output["recommended"]["is_changed"] is True
    assert output["margins"]["needed_ratio"] == 1.03
    current, best, *_ = output["confirmation"]["settings"]
    assert current["router"] == DYNAMO_DEFAULT.keys
    assert best["ratio"]["low"] == pytest.approx(1 / 0.7)
    assert best["figures"]["ttft_p90_ms"]["median"] < current["figures"]["ttft_p90_ms"]["median"]
    assert output["graph"] == "model: …"


def test_the_help_names_the_number_of_seeds_that_is_used() -> None:
    names = ("MIN_SEEDS", "SEEDS", "MAX_SEEDS")
    assert [getattr(command, n) for n in names] == [getattr(tuning, n) for n in names]


BASE = trial(DYNAMO_DEFAULT, [200, 100, 400])


def test_the_ratio_is_a_geometric_mean_over_the_same_seeds() -> None:
    ratio = ratio_of(BASE, trial(TUNED, [100, 50, 200]))
    assert ratio.mean == pytest.approx(2)
    assert ratio.low == pytest.approx(2)  # every seed agrees
    mixed = ratio_of(BASE, trial(TUNED, [100, 100, 200]))
    assert mixed.mean == pytest.approx(4 ** (1 / 3))
    assert mixed.low is not None
    assert mixed.low < 1  # three seeds that differ by so much show nothing
    assert ratio_of(BASE, trial(TUNED, [100])).low is None


def test_more_seeds_give_a_tighter_bound() -> None:
    few = ratio_of(trial(DYNAMO_DEFAULT, [100] * 3), trial(TUNED, [80, 90, 85]))
    many = ratio_of(trial(DYNAMO_DEFAULT, [100] * 15), trial(TUNED, [80, 90, 85] * 5))
    assert few.low is not None
    assert many.low is not None
    assert few.low < many.low < many.mean == pytest.approx(few.mean)


@pytest.mark.parametrize(
    ("values", "clause"),
    [
        ({"ttft_p99_ms": 126}, "TTFT p99 is 26% higher"),
        ({"ttft_p99_ms": 124}, None),
        ({"ttft_p50_ms": 111}, "TTFT p50 is 11% higher"),
        ({"ttft_p90_ms": 109}, None),
        ({"itl_p90_ms": 10.6}, "ITL p90 is 6% higher"),
        ({"itl_p90_ms": 10.4}, None),
        ({"goodput": 0.98}, "98.0% instead of 100.0% of requests are within the SLO"),
        ({"goodput": 0.995}, None),
        ({"goodput": None}, None),
        ({"itl_p90_ms": None}, None),  # every output has one token
    ],
)
def test_the_margins(values: dict[str, Any], clause: str | None) -> None:
    base = trial(DYNAMO_DEFAULT, [100] * 3)
    assert exceeded(base, trial(TUNED, [100] * 3, **values)) == ([clause] if clause else [])


def test_no_latency_has_a_margin_where_more_requests_meet_the_slo() -> None:
    base = trial(DYNAMO_DEFAULT, [100] * 3, goodput=0.8)
    slow_tail = trial(TUNED, [100] * 3, ttft_p99_ms=300, goodput=0.9)
    faster_tail = trial(RouterSettings(8, 1), [50] * 3, goodput=0.8)
    assert exceeded(base, slow_tail) == []
    assert ranked(base, [base, faster_tail, slow_tail]) == [slow_tail, faster_tail, base]


def test_the_best_is_within_the_margins_and_changes_least() -> None:
    best = trial(TUNED, [100, 50, 200])
    slow_tail = trial(RouterSettings(8, 4), [10, 10, 10], ttft_p99_ms=900)
    equal = trial(RouterSettings(4, 1), [100.5, 50, 200])
    worse = trial(RouterSettings(8, 1), [300, 300, 400])
    assert ranked(BASE, [BASE, best, slow_tail, worse]) == [best, BASE, slow_tail, worse]
    assert ranked(BASE, [equal, best]) == [best, equal]
    confirmation = Confirmation(base=BASE, finalists=(best, equal, worse), others=())
    assert (confirmation.chosen, confirmation.tied) == (equal, [best])
    assert not is_hopeful(BASE, trial(TUNED, [199, 99, 399]))


REPLAYS = Replays(Cache(None, ""), processes=1)


def trace(count: int) -> LoadedWorkload:
    rows = (
        {"timestamp": 100 * i, "input_length": 64 + i, "output_length": 5, "hash_ids": [i]}
        for i in range(count)
    )
    loaded = parse_workload("trace: {format: mooncake}\n", "recorded.yaml")
    text = "\n".join(json.dumps(row) for row in rows)
    return LoadedWorkload(
        name=loaded.name,
        workload=loaded.workload,
        source=loaded.source,
        trace_text=text,
        trace_source="t.jsonl",
    )


def test_sampled_traffic_is_confirmed_with_other_seeds() -> None:
    parts = parts_of(LOADED, REPLAYS, 3)
    assert (parts.choice_name, parts.confirmation_name) == ("seeds 0 to 2", "seeds 3 to 8")
    choice = parts.choice._sampled(LOADED, [deployment()])
    confirmation = parts.confirmation._sampled(LOADED, [deployment()])
    assert choice == [LOADED.requests(seed) for seed in range(3)]
    assert confirmation == [LOADED.requests(seed) for seed in range(3, 9)]
    jobs = parts.confirmation._jobs(deployment(), LOADED, confirmation)
    assert [job.seed for job in jobs] == list(range(3, 9))


def test_the_halves_of_a_trace_have_each_request_once() -> None:
    loaded = trace(401)
    first, second = (half.requests(0) for half in halves(loaded))
    assert [r.input_tokens for r in (*first, *second)] == [64 + i for i in range(401)]
    assert (len(first), len(second)) == (200, 201)
    assert first[0].at_ms == second[0].at_ms == 0.0
    assert second[-1].at_ms == pytest.approx(20_000)
    parts = parts_of(loaded, REPLAYS, 3)
    assert parts.choice.workload.requests(7) == first
    assert parts.confirmation.workload.requests(0) == second


def test_too_little_traffic_is_refused() -> None:
    with pytest.raises(SimulationError, match=f"half of the trace has 199 .* least {MIN_REQUESTS}"):
        parts_of(trace(399), REPLAYS, 3)
    few = LOADED.with_workload(LOADED.workload.with_requests(199))
    with pytest.raises(SimulationError, match=r"chat\.yaml: the workload has 199 requests"):
        parts_of(few, REPLAYS, 3)


def conversations(requests: int, every_s: float = 1.0) -> LoadedWorkload:
    return parse_workload(
        f"requests: {requests}\ninput: 100\noutput: 10\narrival: {{poisson: {1 / every_s}}}\n"
        "conversation: {turns: 8, think: 3}\n",
        "agents.yaml",
    )


def enough(loaded: LoadedWorkload, request_s: float, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """The requests with which a graph is tuned that takes ``request_s`` for each."""
    result = answer(*((1000 * at, 1000 * at, 1000 * (at + request_s), 10) for at in range(9)))

    def rows(_: Study, deployments: list[Any], progress: object) -> list[Row]:
        return [Row(replayable=deployments[0], metrics=(metrics(),), results=(result,))]

    monkeypatch.setattr(Study, "rows", rows)
    return with_enough_requests(loaded, deployment(), REPLAYS).workload.requests


@pytest.mark.parametrize(("needed", "expected"), [(2000, 2560), (10**6, MOST_REQUESTS)])
def test_traffic_is_lengthened_until_caches_are_full_and_replays_are_steady(
    needed: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``needed``: requests with which a replay is steady with the settings of the hint."""
    text = "requests: 300\ninput: 4096\noutput: 9\narrival: {poisson: 4}\nsystem_prompts: "
    shared = parse_workload(f"{text}{{tokens: 2048, count: 128}}\n", "docs.yaml")
    asked = []

    def row(graph: Any, requests: int) -> Row:
        is_hinted = settings_of(graph).prefill_load_scale == 8
        window_s = 100.0 if is_hinted and requests >= needed else 3.0
        state = Steadiness(window_s=window_s, request_s=1, offered_rate=4, served_rate=4)
        return Row(replayable=graph, metrics=(metrics(steadiness=state),), results=(steady(),))

    def rows(study: Study, graphs: list[Any], _: object) -> list[Row]:
        requests = study.workload.workload.requests or 0
        asked.append(requests)
        return [row(graph, requests) for graph in graphs]

    monkeypatch.setattr(Study, "rows", rows)
    assert with_enough_requests(shared, deployment(), REPLAYS).workload.requests == expected
    assert asked[0] == 20 * 128


def test_conversations_last_until_their_number_is_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation takes 184 s if a request takes 20; 8 requests/s arrive."""
    assert enough(conversations(300), 1, monkeypatch) == TAIL_REQUESTS
    assert enough(conversations(300), 20, monkeypatch) == pytest.approx(8 * 184 * 2.125, abs=1)
    assert enough(conversations(9000), 1, monkeypatch) == 9000
    assert enough(conversations(300, every_s=0.01), 9, monkeypatch) == MAX_REPLAYED_REQUESTS
    assert enough(LOADED, 9, monkeypatch) == TAIL_REQUESTS


def test_the_reason_is_left_out_where_settings_make_little_difference() -> None:
    outcome = tuned(lambda settings, seed: {"ttft_ms": 100.0})
    explained = replace(outcome, hint="most of it is shared")
    assert "most of it is shared" in text_of(report.report_of(explained))
    indifferent = replace(explained, indifference="requests hardly queue")
    assert "most of it is shared" not in text_of(report.report_of(indifferent))


def test_cached_outputs_are_possible_hits_of_aggregated_workers_only() -> None:
    conversations = parse_workload(
        "requests: 40\ninput: 64\noutput: 640\narrival: {poisson: 1}\n"
        "conversation: {turns: 4, cached_output: true}\n",
        "conversations.yaml",
    )
    row = tuned(lambda settings, seed: {"ttft_ms": 100.0}).base.row
    (pool,) = row.replayable.pools
    prefill = replace(row.replayable, pools=(replace(pool, role=Role.PREFILL),))
    aggregated = possible_hits_of(row, conversations, seed=0)
    assert aggregated > possible_hits_of(replace(row, replayable=prefill), conversations, 0) > 0
