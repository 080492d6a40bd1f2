"""The output speed of a single request on 8 × B200, with and without EAGLE-3."""

from __future__ import annotations

from typing import Any

from penstock.simulate.acceptance import Acceptance, constant_rate
from penstock.simulate.replay import Replays
from published.replays import figures, graph, load, part_result, rows_of, user_rate

REQUESTS = 10
# Input and output: of most public measurements, and of Artificial Analysis' default test.
LENGTHS = ((1024, 1024), (10_000, 1500))
DRAFT_TOKENS = 3
# Tokens per step of gpt-oss-120b with nvidia/gpt-oss-120b-Eagle3-long-context and three draft
# tokens, in TensorRT-LLM on one B200: SPEED-Bench (arXiv:2604.09557), table 1, temperature 0.
# The last value: how long drafting takes, from the draft model's size or as in Dynamo's mocker.
EAGLE3 = (
    (2.25, "mean of SPEED-Bench", True),
    (2.25, "mean of SPEED-Bench", False),
    (2.46, "coding and math", True),
    (1.87, "roleplay", True),
)


def without_drafts(replays: Replays) -> dict[str, Any]:
    deployment = graph("gpt-oss-120b-b200-latency")
    cases, rows = [], {}
    for isl, osl in LENGTHS:
        (row,) = rows_of(replays, load(REQUESTS, isl, osl, concurrency=1), deployment)
        name = f"{isl:,} + {osl:,} tokens"
        cases.append(user_rate(row, name))
        rows[name] = figures(row)
    return part_result({"single-user": cases}, simulated=rows)


def with_eagle3(replays: Replays) -> dict[str, Any]:
    isl, osl = LENGTHS[-1]
    loaded = load(REQUESTS, isl, osl, concurrency=1)
    cases, rows = [], {}
    for length, text, prices_draft in EAGLE3:
        rates = (constant_rate(length, DRAFT_TOKENS),) * DRAFT_TOKENS
        acceptance = Acceptance(rates, prices_draft=prices_draft)
        deployment = graph("gpt-oss-120b-b200-latency-eagle3", acceptance=acceptance)
        (row,) = rows_of(replays, loaded, deployment)
        time = "the draft model" if prices_draft else "one layer for each draft token"
        name = f"{length} tokens per step ({text}), with the time of {time}"
        cases.append(user_rate(row, name))
        rows[name] = figures(row) | {"acceptance rate": rates[0]}
    return part_result({"eagle3": cases}, simulated=rows)
