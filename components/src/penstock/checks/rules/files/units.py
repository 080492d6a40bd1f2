"""Rules about the objectives of a graph: milliseconds that look like seconds, contradictions."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
from penstock.engines.settings import Location
from penstock.serving.deployment import ServingDeployment
from penstock.significant import limit_text

# Milliseconds. A frontend, tokenizer and router alone need more than the first of each pair; the
# second is ten minutes.
LIMITS = {"ttft_ms": (10.0, 600_000.0), "itl_ms": (1.0, 600_000.0), "e2e_ms": (10.0, 36_000_000.0)}


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
