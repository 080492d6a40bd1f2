"""The figures of Artificial Analysis' performance test as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.bench import aiperf
from penstock.bench.methods.artificial_analysis import PartResult, Spread
from penstock.bench.methods.definitions import DEFINITIONS, SPEED, THROUGHPUT, definition_lines
from penstock.bench.methods.documents import SCHEMA_VERSION, PromptsDocument
from penstock.bench.report import failures_line, simulated_time
from penstock.simulate.report import aligned

HEADINGS = ("", "median", "lowest", "highest")


def lines(found: PartResult) -> Iterator[str]:
    part = found.part
    yield f"artificial-analysis {part.name}, {found.endpoint}"
    yield f"{found.requests} requests: {part}"
    if found.endpoint.speed != 1.0:
        yield simulated_time(found.endpoint.speed)
    if found.interrupted:
        yield f"incomplete: {found.interrupted}"
    if found.unsent:
        yield f"{found.unsent} requests were not sent, or have no record"
    yield from aligned([HEADINGS, *_rows(found)])
    yield from definition_lines()
    yield from remarks(found)


def _rows(found: PartResult) -> Iterator[tuple[str, ...]]:
    yield _row("TTFT (ms)", found.ttft_ms)
    yield _row("end-to-end (ms)", found.e2e_ms)
    yield _row(f"{SPEED} (tokens/s)", found.output_speed)
    yield _row(f"{THROUGHPUT} (tokens/s)", found.throughput)


def _row(name: str, spread: Spread | None) -> tuple[str, ...]:
    values = (None,) * 3 if spread is None else (spread.median, spread.lowest, spread.highest)
    return (name, *("-" if value is None else f"{value:.1f}" for value in values))


def remarks(found: PartResult) -> Iterator[str]:
    """What limits the comparison with published figures."""
    yield (
        "prompts are random token IDs, and the server counts tokens; Artificial Analysis sends "
        "text and counts tokens of o200k_base"
    )
    if found.has_large_chunks:
        yield (
            f"a chunk of a stream has {found.tokens_per_chunk:.1f} tokens on average, but the "
            "output speed counts only one token for the first chunk, so it is too high"
        )
    if line := failures_line(found.failures):
        yield line
    if found.distortion:
        yield f"this machine may have distorted the latencies: {found.distortion}"


def document(found: PartResult) -> PromptsDocument:
    own = {name: getattr(found, name) for name in PartResult.__dataclass_fields__}
    return PromptsDocument(
        **own
        | {
            "schema_version": SCHEMA_VERSION,
            "kind": "artificial-analysis-prompts",
            "method": "artificial-analysis",
            "client": aiperf.VERSION,
            "definitions": DEFINITIONS,
            "distortion": found.distortion or None,
            "interrupted": found.interrupted or None,
            "remarks": list(remarks(found)),
        }
    )


def as_json(found: PartResult) -> str:
    return document(found).as_json()
