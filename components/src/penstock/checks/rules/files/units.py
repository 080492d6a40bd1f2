"""Rules about the objectives of a graph: milliseconds that look like seconds, contradictions."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import ARITHMETIC
from penstock.engines.settings import Location
from penstock.serving.deployment import ServingDeployment
from penstock.significant import limit_text

# Milliseconds. A frontend, tokenizer and router alone need more than the first of each pair; the
# second is ten minutes.
LIMITS = {"ttft_ms": (10.0, 600_000.0), "itl_ms": (1.0, 600_000.0), "e2e_ms": (10.0, 36_000_000.0)}


@rule(
    id="PS007",
    title="a latency objective in the wrong unit",
    level=Level.WARNING,
    cause="A time below `slo` is so short or so long that it is probably in another unit. All "
    "times there are in milliseconds.",
    effect="`simulate`, `plan` and the planner give useless results, because no deployment "
    "meets the objective, or every deployment does.",
    remedy="Give the time in milliseconds.",
    source="penstock.graph.slo",
    versions=ARITHMETIC,
)
def unit_of_objective(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, (least, most) in LIMITS.items():
        value = getattr(deployment.slo, name, None)
        if value is None or least <= value <= most:
            continue
        near = limit_text(value * 1000 if value < least else value / 1000)
        yield RuleResult(
            location=Location("", "graph", ("slo", name)),
            message=f"slo.{name} is {limit_text(value)} ms",
            fix=Fix(text=f"Did you mean {near} ms?", graph={f"slo.{name}": float(near)}),
        )


@rule(
    id="PS008",
    title="objectives that contradict each other",
    level=Level.ERROR,
    cause="`slo.e2e_ms`, the time of the whole response, is shorter than `slo.ttft_ms`, the "
    "time to the first token, which is a part of it.",
    effect="A request that takes all of ttft_ms always misses e2e_ms.",
    remedy="Raise e2e_ms above ttft_ms.",
    source="penstock.graph.slo",
    versions=ARITHMETIC,
)
def contradicting_objectives(deployment: ServingDeployment) -> Iterable[RuleResult]:
    slo = deployment.slo
    if slo is None:
        return
    ttft, total = slo.ttft_ms, slo.e2e_ms
    if ttft is not None and total is not None and total < ttft:
        yield RuleResult(
            location=Location("", "graph", ("slo", "e2e_ms")),
            message=f"slo.e2e_ms is {limit_text(total)}, but slo.ttft_ms is {limit_text(ttft)}",
            fix=Fix(text=f"Raise e2e_ms above {limit_text(ttft)}."),
        )
