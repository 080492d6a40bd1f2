"""The result of agentperf-local as text and as JSON; the verdict is the tool's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.bench.methods.agentperf import COMPARABLE, VERSION, AgentPerf
from penstock.bench.methods.documents import SCHEMA_VERSION, AgentPerfDocument
from penstock.simulate.report import aligned

ROWS = {"TTFT": "time_to_first_token", "end-to-end": "e2e"}


def lines(found: AgentPerf) -> Iterator[str]:
    summary = found.summary
    totals = summary["totals"]
    yield f"{found.replay} ({VERSION}), {found.model} at {found.url}"
    yield f"turns: {totals['successful_turns']} of {totals['turns']} succeeded"
    yield from verdict(found)
    yield from aligned([("ms", "p50", "p95"), *_rows(summary["latency_distributions_ms"])])
    yield (
        f"output: {_rate(summary['output_tokens_per_second'])} after the first token, "
        f"{_rate(summary['end_to_end_output_tokens_per_second'])} with TTFT"
    )
    yield (
        f"tokens reported by the server: {totals['total_server_prompt_tokens']:,} of input, "
        f"{totals['total_server_cached_prompt_tokens']:,} of them cached, "
        f"{totals['total_server_output_tokens']:,} of output"
    )
    yield from (f"agentperf-local: {line}" for line in found.remarks)


def verdict(found: AgentPerf) -> Iterator[str]:
    """What the tool says about the context, and what its documentation says about the replay."""
    context = found.result["context"]
    observed, full = context["observed_tokens"], context["full_benchmark_tokens"]
    shown = f"{observed:,} tokens" if observed else f"unknown ({context['observed_reason']})"
    stated = "full" if found.has_full_context else "reduced, so the run is not comparable"
    yield f"context: {shown}; the benchmark needs {full:,}; agentperf-local: {stated}"
    if found.replay != COMPARABLE:
        yield f"{found.replay} checks the setup. Only results of {COMPARABLE} are comparable"


def _rows(latencies: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, key in ROWS.items():
        values = latencies[key]
        shown = (values.get(one) for one in ("p50", "p95"))
        yield (name, *("-" if value is None else f"{value:.1f}" for value in shown))


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} tokens/s"


def document(found: AgentPerf) -> AgentPerfDocument:
    return AgentPerfDocument(
        schema_version=SCHEMA_VERSION,
        kind="artificial-analysis-agentperf",
        method="artificial-analysis",
        part="agentperf",
        url=found.url,
        model=found.model,
        client=VERSION,
        replay=found.replay,
        context=found.result["context"],
        has_full_context=found.has_full_context,
        summary=found.summary,
        remarks=list(found.remarks),
    )


def as_json(found: AgentPerf) -> str:
    return document(found).as_json()
