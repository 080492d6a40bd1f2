"""The reports of published methods: Artificial Analysis' three tests, and OpenRouter's figures."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from penstock.bench.aiperf import Endpoint
from penstock.bench.methods.agentperf import COMPARABLE, VERSION, AgentPerf
from penstock.bench.methods.artificial_analysis import PartResult, Speeds, Spread
from penstock.bench.methods.frontend_counters import (
    Bounds,
    Counters,
    Estimate,
    fastest,
    quantile,
)
from penstock.bench.methods.openrouter import DURATION_S, POLL_S, Observation
from penstock.bench.methods.system_load import PHASE_S, TOKENS, Phase, SystemLoad
from penstock.bench.report import distorted, failures_line, kind_of, simulated_time
from penstock.reports.model import Notes, Part, Report, Section, State, Table, Verdict
from penstock.text.numbers import limit_text
from penstock.text.terminal import duration_text

SPEED, THROUGHPUT = "output speed (Artificial Analysis)", "throughput (OpenRouter)"
DEFINITIONS = {
    SPEED: "output tokens/s of a request after its first token: TTFT is excluded",
    THROUGHPUT: "output tokens of a request / its complete duration: TTFT is included",
}
PHASE_COLUMNS = (
    *("concurrency", "window (s)", "tokens/s", "responses"),
    *("TTFT (ms)", "end-to-end (ms)", "output speed", "throughput"),
)
SHORT = 0.99  # of the phase, from which a window counts as complete
SHARES = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99}
WINDOWS_S = {"5 min": 300.0, "30 min": 1800.0, "1 day": 86_400.0}
MS = 1000


def _report(title: str, kind: str, interrupted: str, parts: list[Part], *notes: str) -> Report:
    verdicts = [Verdict(State.INCOMPLETE, f"incomplete: {interrupted}")] if interrupted else []
    sections = [Section("Figures", parts), Section("Notes", [Notes(notes)])]
    return Report(
        kind="Benchmark", title=title, subtitle=kind, verdicts=verdicts, sections=sections
    )


def _definitions() -> list[str]:
    return [f"{name}: {text}" for name, text in DEFINITIONS.items()]


def _speed(endpoint: Endpoint) -> list[Part]:
    return [simulated_time(endpoint.speed)] if endpoint.speed != 1.0 else []


def _number(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.1f}{unit}"


def _limits(speeds: Speeds) -> Iterator[str]:
    if line := failures_line(speeds.failures):
        yield line
    if speeds.distorted_by:
        yield distorted(speeds.distorted_by)


def part_report(result: PartResult) -> Report:
    """Of the performance test of Artificial Analysis."""
    rows = [
        _spread("TTFT (ms)", result.ttft_ms),
        _spread("end-to-end (ms)", result.e2e_ms),
        _spread(f"{SPEED} (tokens/s)", result.output_speed),
        _spread(f"{THROUGHPUT} (tokens/s)", result.throughput),
    ]
    unsent = f"{result.unsent} requests were not sent, or have no record"
    return _report(
        f"artificial-analysis {result.part.name}, {result.endpoint}",
        kind_of(is_substitute=result.endpoint.engine_is_substitute),
        result.interrupted,
        [
            f"{result.requests} requests: {result.part}",
            *_speed(result.endpoint),
            *([unsent] if result.unsent else []),
            Table(("", "median", "lowest", "highest"), rows),
        ],
        *_definitions(),
        *part_remarks(result),
    )


def _spread(name: str, spread: Spread | None) -> tuple[str, ...]:
    values = (None,) * 3 if spread is None else (spread.median, spread.lowest, spread.highest)
    return (name, *map(_number, values))


def part_remarks(result: PartResult) -> Iterator[str]:
    """What limits the comparison with published figures."""
    yield (
        "prompts are random token IDs, and the server counts tokens; Artificial Analysis sends "
        "text and counts tokens of o200k_base"
    )
    if result.has_large_chunks:
        yield (
            f"a chunk of a stream has {result.tokens_per_chunk:.1f} tokens on average, but the "
            "output speed counts only one token for the first chunk, so it is too high"
        )
    yield from _limits(result)


def system_load_report(result: SystemLoad) -> Report:
    return _report(
        f"artificial-analysis system-load, {result.endpoint}",
        kind_of(is_substitute=result.endpoint.engine_is_substitute),
        result.interrupted,
        [
            f"{TOKENS:,} input and {TOKENS:,} output tokens per request; medians of each phase",
            *_speed(result.endpoint),
            Table(PHASE_COLUMNS, list(map(_phase, result.phases))),
            "tokens/s: output of all requests. Output speed and throughput, tokens/s of a request:",
        ],
        *_definitions(),
        *system_load_remarks(result),
    )


def _phase(phase: Phase) -> tuple[str, ...]:
    spreads = (phase.ttft_ms, phase.e2e_ms, phase.output_speed, phase.throughput)
    return (
        str(phase.concurrency),
        f"{phase.window_s:.0f}",
        f"{phase.system_throughput:.0f}",
        f"{phase.response_rate:.1%}",
        *(_number(spread.median if spread else None) for spread in spreads),
    )


def system_load_remarks(result: SystemLoad) -> Iterator[str]:
    """The result, and what limits the comparison with published figures."""
    best = result.best
    highest = f"{best.system_throughput:.0f} tokens/s at concurrency {best.concurrency}"
    yield f"highest throughput: {highest}" + (
        "" if result.reached_ceiling else "; the test ended before the throughput stopped rising"
    )
    if result.phase_s < PHASE_S:
        yield f"phases last {result.phase_s:g} s; those of Artificial Analysis last {PHASE_S:g} s"
    for phase in result.phases:
        if phase.window_s < SHORT * result.phase_s:
            yield (
                f"concurrency {phase.concurrency}: the window is shorter than a phase, because "
                "requests took longer than before, or all prompts were sent"
            )
        for line in _limits(phase):
            yield f"concurrency {phase.concurrency}: {line}"


def agentperf_report(result: AgentPerf) -> Report:
    """The verdict is the tool's own."""
    summary = result.summary
    totals, latencies = summary["totals"], summary["latency_distributions_ms"]
    rows = [
        _percentiles("TTFT", latencies["time_to_first_token"]),
        _percentiles("end-to-end", latencies["e2e"]),
    ]
    rates = [
        _number(summary[f"{which}output_tokens_per_second"], " tokens/s")
        for which in ("", "end_to_end_")
    ]
    return _report(
        f"{result.replay} ({VERSION}), {result.model} at {result.url}",
        "measured by the tool",
        "",
        [
            f"turns: {totals['successful_turns']} of {totals['turns']} succeeded",
            *_context(result),
            Table(("latency (ms)", "p50", "p95"), rows),
        ],
        f"output: {rates[0]} after the first token, {rates[1]} with TTFT",
        f"tokens reported by the server: {totals['total_server_prompt_tokens']:,} of input, "
        f"{totals['total_server_cached_prompt_tokens']:,} of them cached, "
        f"{totals['total_server_output_tokens']:,} of output",
        *(f"agentperf-local: {line}" for line in result.remarks),
    )


def _context(result: AgentPerf) -> Iterator[str]:
    """What the tool says about the context, and what its documentation says about the replay."""
    context = result.result["context"]
    observed, full = context["observed_tokens"], context["full_benchmark_tokens"]
    tokens = f"{observed:,} tokens" if observed else f"unknown ({context['observed_reason']})"
    stated = "full" if result.has_full_context else "reduced, so the run is not comparable"
    yield f"context: {tokens}; the benchmark needs {full:,}; agentperf-local: {stated}"
    if result.replay != COMPARABLE:
        yield f"{result.replay} checks the setup. Only results of {COMPARABLE} are comparable"


def _percentiles(name: str, values: Any) -> tuple[str, ...]:
    return (name, _number(values.get("p50")), _number(values.get("p95")))


def openrouter_report(observation: Observation) -> Report:
    took, total = duration_text(observation.seconds), observation.total
    estimates = [quantile(total.ttft, share) for share in SHARES.values()]
    bounds = [fastest(observation.known, observation.unknown, s) for s in SHARES.values()]
    windows = windows_of(observation)
    rows = [
        ("TTFT (ms)", *map(_estimate, estimates)),
        ("  its bucket (ms)", *map(_bucket, estimates)),
        (f"{THROUGHPUT} (tokens/s)", *map(_bounds, bounds)),
    ]
    return _report(
        f"openrouter, {observation.model} at {', '.join(observation.urls)}",
        f"traffic of all clients in {took}",
        observation.interrupted,
        [
            f"requests: {total.ok:.0f} successful, {total.errors:.0f} failed, "
            f"{total.client_errors:.0f} with an error of the client",
            Table(("", *SHARES), rows),
            Table(("", *windows), [("uptime", *map(_uptime, windows.values()))]),
        ],
        "TTFT is interpolated in its bucket",
        "pN of throughput: N% of requests are at least this fast",
        *_means(total),
        *_definitions(),
        "uptime: successful / (successful + failed) requests; of the last 5 min, 30 min and 1 day",
        *openrouter_remarks(observation),
    )


def _estimate(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    if estimate.value is None:
        return f"above {limit_text(estimate.low * MS)}"
    return f"{estimate.value * MS:.1f}"


def _bucket(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    high = "∞" if estimate.high == inf else limit_text(estimate.high * MS)
    return f"{limit_text(estimate.low * MS)} to {high}"


def _bounds(bounds: Bounds | None) -> str:
    if bounds is None or (bounds.low == 0 and bounds.high == inf):
        return "-"
    if bounds.high == inf:
        return f"at least {bounds.low:.1f}"
    if bounds.low == 0:
        return f"at most {bounds.high:.1f}"
    low, high = f"{bounds.low:.1f}", f"{bounds.high:.1f}"
    return low if low == high else f"{low} to {high}"


def mean_throughput(total: Counters) -> float | None:
    """Output tokens/s of all requests, TTFT included."""
    return total.tokens / total.duration_s if total.duration_s else None


def mean_speed(total: Counters) -> float | None:
    """Output tokens/s of all requests after their first token."""
    return total.gaps / total.gap_s if total.gap_s else None


def _means(total: Counters) -> Iterator[str]:
    rates = {THROUGHPUT: mean_throughput(total), SPEED: mean_speed(total)}
    known = (f"{name} {rate:.1f} tokens/s" for name, rate in rates.items() if rate is not None)
    if text := ", ".join(known):
        yield f"mean, weighted by duration: {text}"


def windows_of(observation: Observation) -> dict[str, Counters | None]:
    """None: longer than the run."""
    windows: dict[str, Counters | None] = {
        name: observation.last(seconds) for name, seconds in WINDOWS_S.items()
    }
    return windows | {
        "the run": observation.total,
        "since the frontends started": observation.since_start,
    }


def _uptime(counters: Counters | None) -> str:
    if counters is None:
        return "not observed"
    return "-" if counters.uptime is None else f"{counters.uptime:.2%}"


def openrouter_remarks(observation: Observation) -> Iterator[str]:
    """What limits the figures."""
    count = len(observation.known) + observation.unknown
    if observation.unknown:
        yield (
            f"the throughput of {observation.unknown} of {count} requests is not known, because "
            f"several ended within {POLL_S:g} s; the percentiles are bounds that allow for any "
            "value"
        )
    if observation.seconds < DURATION_S and not observation.interrupted:
        usual = duration_text(DURATION_S)
        yield f"the run is shorter than the {usual} over which OpenRouter computes percentiles"
    if observation.failed_readings:
        readings = f"{observation.failed_readings} of {observation.readings} readings"
        yield f"{readings} of the metrics failed"
    if observation.processes != len(observation.urls):
        yield (
            f"{observation.processes} frontend processes at {len(observation.urls)} addresses: a "
            "frontend restarted, or an address leads to several; then name each frontend by its "
            "own address"
        )
