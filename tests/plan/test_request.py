"""What `plan` refuses of a workload, and what it plans for."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.graph.slo import Slo
from penstock.plan.request import Objective, PlanRequest, plan_request
from penstock.workload.load import LoadedWorkload, parse_workload

ONE_TOKEN = parse_workload(
    "requests: 20\ninput: 2000\noutput: 1\narrival: {poisson: 4}\n", "score.yaml"
)
TTFT = Slo(ttft_ms=300)


def requested(
    loaded: LoadedWorkload,
    folder: Path,
    *,
    slo: Slo = TTFT,
    objective: Objective = Objective.COST,
) -> PlanRequest:
    return plan_request(
        "gpt-oss-20b", loaded, scratch=folder, gpu="h100", gpus=2, slo=slo, objective=objective
    )


@pytest.mark.parametrize(
    ("slo", "objective", "place", "cause", "fix"),
    [
        (
            TTFT,
            Objective.INTERACTIVITY,
            "--objective",
            "no output tokens/s per user to compare",
            "Use --objective cost.",
        ),
        (
            Slo(ttft_ms=300, itl_ms=10),
            Objective.COST,
            "--itl",
            "no inter-token latency to limit",
            "Use --ttft or --e2e instead.",
        ),
    ],
)
def test_what_needs_two_output_tokens_is_refused_for_outputs_of_one(
    slo: Slo, objective: Objective, place: str, cause: str, fix: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        requested(ONE_TOKEN, tmp_path, slo=slo, objective=objective)
    (problem,) = refused.value.problems
    assert (problem.place, problem.fix) == (place, fix)
    assert problem.message.startswith("every output of score has one token, so there")
    assert problem.message.endswith(cause)


def test_outputs_of_one_token_are_planned_for_with_a_ttft(tmp_path: Path) -> None:
    assert requested(ONE_TOKEN, tmp_path).slo == TTFT
