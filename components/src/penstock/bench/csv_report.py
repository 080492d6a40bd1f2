"""The figures of a run, a sweep or a comparison as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

from penstock.bench.compare import Comparison
from penstock.bench.measurement import Bench, Percentiles
from penstock.bench.sweep import Level, Sweep

Cell = str | float | bool | None

REQUEST_COLUMNS = (
    *("conversation", "turn", "sent_ms", "input_tokens", "cached_tokens", "output_tokens"),
    *("ttft_ms", "itl_ms", "e2e_ms", "is_counted", "meets_slo", "failure"),
)
PERCENTILES = ("p50", "p90", "p99")
LEVEL_COLUMNS = (
    *("scale", "requests_per_second", "tokens_per_second", "tokens_per_second_gpu"),
    "tokens_per_second_user",
    *(f"{latency}_{p}_ms" for latency in ("ttft", "itl", "e2e") for p in PERCENTILES),
    *("prefix_hit_rate", "goodput", "meets_slo", "is_on_pareto_front"),
    *("sent", "failed", "counted", "interrupted"),
)
# With the fields of `Difference`.
METRIC_COLUMNS = {"metric": "metric", "a_ms": "first_ms", "b_ms": "second_ms"}
METRIC_COLUMNS |= {name: name for name in ("change", "low", "high", "claim")}
HEADERS = [",".join(columns) for columns in (REQUEST_COLUMNS, LEVEL_COLUMNS, METRIC_COLUMNS)]
"""First lines, by which a file of `bench` is recognized."""


def run_csv(bench: Bench) -> str:
    """One row for each request that was sent, in order of the times at which they were sent."""
    rows = sorted(_request_rows(bench), key=lambda pair: pair[0])
    return _text(REQUEST_COLUMNS, [row for _, row in rows])


def _request_rows(bench: Bench) -> Iterator[tuple[float, dict[str, Cell]]]:
    """(time in ms, row)."""
    log = bench.log
    counted = set(map(id, log.counted))
    for (conversation, turn), served in log.records.served.items():
        yield (
            served.arrived_ms,
            {
                "conversation": conversation,
                "turn": turn,
                "sent_ms": served.arrived_ms - log.first_ms,
                "input_tokens": served.input_tokens,
                "cached_tokens": served.cached_tokens,
                "output_tokens": served.tokens,
                "ttft_ms": served.ttft_ms,
                "itl_ms": served.itl_ms,
                "e2e_ms": served.e2e_ms,
                "is_counted": id(served) in counted,
                "meets_slo": served.meets(bench.slo) if bench.slo else None,
            },
        )
    for failed in log.records.failed:
        conversation, turn = failed.key
        yield (
            failed.sent_ms,
            {
                "conversation": conversation,
                "turn": turn,
                "sent_ms": failed.sent_ms - log.first_ms,
                "input_tokens": log.requests[failed.key].input_tokens,
                "is_counted": False,
                "meets_slo": False if bench.slo else None,
                "failure": failed.reason,
            },
        )


def sweep_csv(sweep: Sweep) -> str:
    """One row for each load, lowest first."""
    return _text(LEVEL_COLUMNS, [_level_row(sweep, level) for level in sweep.levels])


def _level_row(sweep: Sweep, level: Level) -> dict[str, Cell]:
    bench, measured = level.bench, level.bench.measurement
    latencies = {"ttft": measured.ttft_ms, "itl": measured.itl_ms, "e2e": measured.e2e_ms}
    return {
        "scale": level.scale,
        "requests_per_second": measured.request_rate,
        "tokens_per_second": measured.output_rate,
        "tokens_per_second_gpu": sweep.gpu_rate(level),
        "tokens_per_second_user": measured.user_rate,
        **{
            f"{latency}_{p}_ms": _percentile(values, p)
            for latency, values in latencies.items()
            for p in PERCENTILES
        },
        "prefix_hit_rate": measured.prefix_hit_rate,
        "goodput": measured.goodput,
        "meets_slo": bench.meets_slo,
        "is_on_pareto_front": level in sweep.front,
        "sent": measured.failures.sent,
        "failed": measured.failures.total,
        "counted": measured.counted,
        "interrupted": bench.interrupted,
    }


def _percentile(values: Percentiles | None, name: str) -> float | None:
    return None if values is None else getattr(values, name)


def comparison_csv(comparison: Comparison) -> str:
    """One row for each metric; none if too few requests were served to compare."""
    rows = [
        {column: getattr(difference, name) for column, name in METRIC_COLUMNS.items()}
        for difference in comparison.differences
    ]
    return _text(tuple(METRIC_COLUMNS), rows)


def _text(columns: Sequence[str], rows: Iterable[Mapping[str, Cell]]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(content) for name, content in row.items()})
    return file.getvalue()


def _cell(content: Cell) -> str:
    if isinstance(content, bool):
        return str(content).lower()
    # Six digits behind the point are nanoseconds.
    rounded = round(content, 6) if isinstance(content, float) else content
    return "" if rounded is None else str(rounded)
