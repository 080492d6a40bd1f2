"""Rules about the objectives of a graph: milliseconds that look like seconds, contradictions."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import ARITHMETIC
from penstock.engines.settings import Location
from penstock.serving.deployment import ServingDeployment

# Milliseconds. A frontend, tokenizer and router alone need more than the first of each pair; the
# second is ten minutes.
LIMITS = {"ttft_ms": (10.0, 600_000.0), "itl_ms": (1.0, 600_000.0), "e2e_ms": (10.0, 36_000_000.0)}


@rule(
    id="PS007",
    title="an objective in another unit than milliseconds",
    level=Level.WARNING,
    cause="An objective below slo is shorter than any deployment can be, or longer than any user "
    "waits; it is in milliseconds.",
    effect="No deployment meets the objective, or each does: `simulate`, `plan` and the planner "
    "give useless results.",
    remedy="Give the time in milliseconds.",
    source="penstock.graph.slo",
    versions=ARITHMETIC,
)
def unit_of_objective(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, (least, most) in LIMITS.items():
        value = getattr(deployment.slo, name, None)
        if value is None or least <= value <= most:
            continue
        near = f"{value * 1000:g}" if value < least else f"{value / 1000:g}"
        yield RuleResult(
            location=Location("", "graph", ("slo", name)),
            message=f"slo.{name} is {value:g} ms",
            fix=Fix(text=f"Did you mean {near} ms?", graph={f"slo.{name}": float(near)}),
        )


@rule(
    id="PS008",
    title="objectives that contradict each other",
    level=Level.ERROR,
    cause="The end-to-end objective is shorter than that of the first token, a part of it.",
    effect="No request that uses its time to first token meets the objective.",
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
            message=f"slo.e2e_ms is {total:g}, but slo.ttft_ms is {ttft:g}",
            fix=Fix(text=f"Raise e2e_ms above {ttft:g}."),
        )
