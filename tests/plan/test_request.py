"""What `plan` refuses of a workload, and what it plans for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import UsageError
from penstock.graph.slo import Slo
from penstock.plan.request import Objective, PlanRequest, plan_request
from penstock.workload import find_workload
from penstock.workload.load import LoadedWorkload, parse_workload
from tests.simulate.test_calibration import ENTRY, FACTORS, file_of

pytestmark = pytest.mark.needs("sim")

POSITIONS = 131072  # of gpt-oss-20b
ONE_TOKEN = parse_workload(
    "requests: 20\ninput: 2000\noutput: 1\narrival: {poisson: 4}\n", "score.yaml"
)
TTFT = Slo(ttft_ms=300)


CHAT = find_workload("short-chat").with_requests(40)


def requested(
    loaded: LoadedWorkload,
    folder: Path,
    *,
    model: str = "gpt-oss-20b",
    gpu: str = "h100",
    gpus: int = 2,
    slo: Slo = TTFT,
    objective: Objective = Objective.COST,
    **options: Any,
) -> PlanRequest:
    return plan_request(
        model,
        loaded,
        scratch=folder,
        gpu=gpu,
        gpus=gpus,
        slo=slo,
        objective=objective,
        attain=0.95,
        **options,
    )


def test_outputs_of_one_token_are_planned_for_with_a_ttft(tmp_path: Path) -> None:
    assert requested(ONE_TOKEN, tmp_path).slo == TTFT


def recorded(*inputs: int) -> LoadedWorkload:
    """A trace with one request per second."""
    loaded = parse_workload("trace: {format: mooncake}\n", "recorded.yaml")
    rows = [
        {"timestamp": 1000 * at, "input_length": tokens, "output_length": 10, "hash_ids": []}
        for at, tokens in enumerate(inputs)
    ]
    return replace(loaded, trace_text="\n".join(map(json.dumps, rows)))


def test_requests_of_a_trace_that_the_model_does_not_take_do_not_set_the_context(
    tmp_path: Path,
) -> None:
    assert requested(recorded(*[1000] * 30, POSITIONS), tmp_path).context == 8192


def too_long(long: int, total: int) -> LoadedWorkload:
    return recorded(*[1000] * (total - long), *[POSITIONS] * long)


LONG = parse_workload(
    "requests: 20\ninput: 131072\noutput: 8\narrival: {poisson: 4}\n", "long.yaml"
)
SHORTEN = "Shorten the requests, or use another model."
TOO_LONG = (
    "{share} of the requests of recorded are longer than the 131072 tokens that "
    "openai/gpt-oss-20b takes, so 95% cannot meet the SLO"
)
ONE = "every output of score has one token, so there "
NO_POINTS = (
    "there are fewer than 6 measured points of {missing} for gpt-oss-20b with trtllm on b200, so "
    "there is no interval"
)
B200: dict[str, Any] = {"gpu": "b200", "confidence": 0.9}
MEASURED: dict[str, Any] = {
    "model": "gpt-oss-120b",
    "gpu": "b200",
    "slo": Slo(ttft_ms=400, itl_ms=10, e2e_ms=9000),
}


@pytest.mark.parametrize(
    ("loaded", "options", "place", "message", "fix"),
    [
        (
            ONE_TOKEN,
            {"objective": Objective.INTERACTIVITY},
            "--objective",
            f"{ONE}are no output tokens/s per user to compare",
            "Use --objective cost.",
        ),
        (
            ONE_TOKEN,
            {"slo": Slo(ttft_ms=300, itl_ms=10)},
            "--itl",
            f"{ONE}is no inter-token latency to limit",
            "Use --ttft or --e2e instead.",
        ),
        (too_long(2, 20), {}, "--workload", TOO_LONG.format(share="10.0%"), SHORTEN),
        (too_long(3, 3), {}, "--workload", TOO_LONG.format(share="100.0%"), SHORTEN),
        (
            LONG,
            {},
            "--workload",
            "a request of long has 131080 tokens; openai/gpt-oss-20b takes 131072",
            SHORTEN,
        ),
        (
            CHAT,
            {"gpus": 1, "survives_loss": True},
            "--n-minus-one",
            "2 replicas need more than 1 GPU",
            "Remove it, or raise --gpus.",
        ),
        (
            CHAT,
            {**MEASURED, "confidence": 0.95},
            "--confidence",
            "0.95 is more than 12 measured points can show",
            "Use at most 0.92.",
        ),
        # Without measured points, before the replays.
        *(
            (
                CHAT,
                {**B200, "slo": slo},
                "--confidence",
                NO_POINTS.format(missing=missing),
                "Remove --confidence.",
            )
            for slo, missing in (
                (Slo(ttft_ms=400, itl_ms=10), "TTFT and ITL"),
                (Slo(itl_ms=10), "ITL"),
                (Slo(e2e_ms=9000), "TTFT and ITL"),
            )
        ),
    ],
)
def test_what_cannot_be_planned_is_refused_before_the_replays(
    loaded: LoadedWorkload,
    options: dict[str, Any],
    place: str,
    message: str,
    fix: str,
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError) as refused:
        requested(loaded, tmp_path, **options)
    (problem,) = refused.value.problems
    assert (problem.place, problem.message, problem.fix) == (place, message, fix)


def test_a_request_keeps_its_confidence_and_n_minus_one_needs_two_workers(tmp_path: Path) -> None:
    assert requested(CHAT, tmp_path, **MEASURED, confidence=0.9).confidence == 0.9
    assert requested(CHAT, tmp_path, survives_loss=True).min_replicas == 2


def test_a_request_has_the_factors_of_its_model_gpu_and_engine(tmp_path: Path) -> None:
    request = requested(CHAT, tmp_path, model="gpt-oss-120b")
    assert request.calibrated(file_of(ENTRY)).factors == FACTORS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"gpu": "b200"},
            "c.yaml has no entry for gpt-oss-120b, b200, trtllm; its entries are for",
        ),
        ({"acceptance": (0.8, 0.6)}, "graphs with speculative decoding"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    request = requested(CHAT, tmp_path, model="gpt-oss-120b", **options)
    with pytest.raises(UsageError, match=message):
        request.calibrated(file_of(ENTRY))
