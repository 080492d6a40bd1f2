"""The levels of a sweep as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.bench.documents import SCHEMA_VERSION, LevelDocument, SweepDocument
from penstock.bench.measurement import Percentiles
from penstock.bench.report import Bench, failures_line, limits_of, on_mockers, run_fields
from penstock.bench.sweep import Level, Sweep, scale_text
from penstock.simulate.report import aligned, arrival_of

FRONT = "*"


def lines(found: Sweep) -> Iterator[str]:
    first = found.levels[0].found
    yield f"{first.workload.name}, {first.model} at {first.url}"
    if first.engine_is_substitute:
        yield on_mockers(first.model)
    yield from aligned([headings(found), *(tuple(cells(found, level)) for level in found.levels)])
    yield f"{FRONT}: on the Pareto front of tokens/s per user and tokens/s"
    for level in found.levels:
        yield from (f"scale {level.name}: {remark}" for remark in remarks(level.found))
    if found.interrupted:
        yield f"incomplete: {found.interrupted}"
    yield from highest_lines(found)


def headings(found: Sweep) -> tuple[str, ...]:
    per_gpu = ("tokens/s/GPU",) if found.gpus else ()
    slo = ("within SLO",) if found.levels[0].found.slo else ()
    rates = ("requests/s", "tokens/s", *per_gpu, "tokens/s per user")
    return ("", "scale", "load", *rates, "TTFT p50 / p99 (ms)", "ITL p50 / p99 (ms)", *slo)


def cells(found: Sweep, level: Level) -> Iterator[str]:
    bench, measured = level.found, level.found.measurement
    yield FRONT if level in found.front else ""
    yield level.name
    yield arrival_of(bench.workload)
    yield f"{measured.request_rate:.2f}"
    yield f"{measured.output_rate:.0f}"
    gpu_rate = found.gpu_rate(level)
    if gpu_rate is not None:
        yield f"{gpu_rate:.0f}"
    yield "-" if measured.user_rate is None else f"{measured.user_rate:.1f}"
    yield _percentiles(measured.ttft_ms, 0)
    yield _percentiles(measured.itl_ms, 1)
    if bench.slo:
        yield "-" if measured.goodput is None else f"{measured.goodput:.1%}"


def _percentiles(values: Percentiles | None, decimals: int) -> str:
    if values is None:
        return "-"
    p99 = "-" if values.p99 is None else f"{values.p99:.{decimals}f}"
    return f"{values.p50:.{decimals}f} / {p99}"


def remarks(bench: Bench) -> Iterator[str]:
    """What limits the meaning of a level."""
    found = bench.measurement
    if line := failures_line(found.failures):
        yield line
    yield from limits_of(found)


def highest_lines(found: Sweep) -> Iterator[str]:
    last = found.levels[-1]
    if last.found.meets_slo is None:
        return
    highest = found.highest
    if highest is None:
        yield f"the SLO ({last.found.slo}) is missed at the lowest scale"
    else:
        more = "" if last.found.meets_slo else f", and missed at {last.name}"
        yield f"the SLO ({last.found.slo}) is met up to scale {highest.name}{more}"
    if found.unmeasured:
        rest = ", ".join(map(scale_text, found.unmeasured))
        yield f"not measured: {rest}"


def as_json(found: Sweep) -> str:
    highest = found.highest
    return SweepDocument(
        schema_version=SCHEMA_VERSION,
        kind="sweep",
        engine_is_substitute=found.levels[0].found.engine_is_substitute,
        gpus=found.gpus,
        highest_scale_within_slo=highest.scale if highest else None,
        interrupted=found.interrupted or None,
        unmeasured_scales=list(found.unmeasured),
        levels=[
            LevelDocument(
                kind="run",
                **run_fields(level.found),
                scale=level.scale,
                tokens_per_second_gpu=found.gpu_rate(level),
                is_on_pareto_front=level in found.front,
            )
            for level in found.levels
        ],
    ).as_json()
