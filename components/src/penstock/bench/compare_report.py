"""The report of a comparison of two endpoints, and the changes that `shadow` shows too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.bench.compare import NAMES, Comparison, LimitCheck, Outcome
from penstock.bench.difference import INTERVAL, Difference, highest_shown, interval
from penstock.bench.report import distorted, failures_line, kind_of, on_mockers
from penstock.graph.slo import Slo
from penstock.reports.model import (
    BAD,
    GOOD,
    GRAY,
    Axis,
    Chart,
    Figure,
    Figures,
    Limit,
    Mark,
    Notes,
    Part,
    Report,
    Section,
    Series,
    State,
    Table,
    Verdict,
    height_of,
    notes_of,
)
from penstock.simulate.charts import latency_charts
from penstock.simulate.report import arrival_of

LATENCIES = {"ttft": "TTFT", "itl": "ITL", "e2e": "end-to-end"}
STATISTICS = {"mean": "geometric mean", "p50": "p50", "p90": "p90"}
HEADINGS = ("latency (ms)", "A", "B", "change from A to B", INTERVAL)
MUCH = 0.01  # of the responses
KINDS = {1: ("B is slower", BAD), -1: ("B is faster", GOOD), 0: ("no claim", GRAY)}
OUTCOMES = {
    Outcome.EXCEEDED: (State.MISSED, "limit exceeded"),
    Outcome.UNDECIDED: (State.INCOMPLETE, "limit undecided"),
    Outcome.PASSED: (State.MET, "limit kept"),
}


def report_of(comparison: Comparison, checked: Sequence[LimitCheck]) -> Report:
    """``checked``: of the limits, as `check_limits` returns it."""
    request = comparison.request
    requests = {
        f"{name}: {endpoint.model}": [both[number] for pair in comparison.served for both in pair]
        for number, (name, endpoint) in enumerate(zip(NAMES, request.endpoints, strict=True))
    }
    counted = f"{comparison.requests} requests in {comparison.pairs} pairs of slices"
    return Report(
        kind="Comparison",
        title=f"{request.workload.name} ({arrival_of(request.workload)}) on two targets",
        subtitle=kind_of(is_substitute=bool(comparison.mocked)),
        verdicts=list(_verdicts(comparison, checked)),
        sections=[
            Section("", [Figures(_figures(comparison))], is_detail=True),
            Section(
                "Targets",
                [Notes([f"{n}: {e}" for n, e in zip(NAMES, request.endpoints, strict=True)])],
            ),
            Section(
                "Change from A to B",
                [
                    *changes_of(comparison.differences, checked),
                    f"counted: {counted} after the warm-up, each served by both targets",
                ],
            ),
            Section("Latency of the counted requests", [*latency_charts(requests, Slo())]),
            Section("Notes", notes_of(_notes(comparison))),
        ],
    )


def _verdicts(comparison: Comparison, checked: Sequence[LimitCheck]) -> Iterator[Verdict]:
    for model in comparison.mocked:
        yield Verdict(State.INCOMPLETE, on_mockers(model))
    if comparison.interrupted:
        yield Verdict(State.INCOMPLETE, f"incomplete: {comparison.interrupted}")
    state = State.NONE if comparison.has_verdict else State.INCOMPLETE
    yield Verdict(state, "; ".join(_claims(comparison)))
    for check in checked:
        state, _ = OUTCOMES[check.outcome]
        yield Verdict(state, f"--fail-if {check}")


def _claims(comparison: Comparison) -> Iterator[str]:
    claims = [difference for difference in comparison.differences if difference.claim]
    if not comparison.has_verdict:
        yield f"no verdict: {comparison.no_verdict}"
    elif not claims:
        yield "no significant difference"
    else:
        for claim in claims:
            direction = "higher" if claim.claim > 0 else "lower"
            change = f"{abs(claim.change):.1%} {direction}"
            yield f"{name_of(claim.metric)} of B is {change} than that of A"


def name_of(metric: str) -> str:
    latency, statistic = metric.split("_")
    return f"{LATENCIES[latency]} ({STATISTICS[statistic]})"


def _figures(comparison: Comparison) -> list[Figure]:
    pairs = f"in {comparison.pairs} pairs of slices"
    return [
        *change_figures(comparison.differences),
        Figure("counted requests", f"{comparison.requests:,}", pairs),
        *(
            Figure(f"failed requests to {name}", f"{failures.total} of {failures.sent}")
            for name, failures in zip(NAMES, comparison.failures, strict=True)
        ),
    ]


def _notes(comparison: Comparison) -> Iterator[str]:
    for name, failures, unsent in zip(NAMES, comparison.failures, comparison.unsent, strict=True):
        if unsent:
            yield f"{name}: {unsent} requests were not sent, or have no record"
        if line := failures_line(failures):
            yield f"{name}: {line}"
    if comparison.distortion:
        yield distorted(comparison.distortion)
    if comparison.skew_ms > comparison.request.slicing.gap_ms:
        seconds = f"{comparison.skew_ms / 1000:.1f} s"
        yield f"slices overlapped, because AIPerf started {seconds} later for one of the targets"
    elif comparison.overlapping > MUCH:
        share = f"{comparison.overlapping:.0%} of the responses"
        yield (
            f"{share} ended during the other target's slice; if the targets share hardware, use a "
            "longer --gap"
        )


def change_figures(differences: Sequence[Difference]) -> Iterator[Figure]:
    """Of the mean latencies."""
    for mean in differences:
        if mean.metric.endswith("_mean"):
            note = f"{mean.first_ms:,.1f} → {mean.second_ms:,.1f} ms"
            yield Figure(name_of(mean.metric), f"{mean.change:+.1%}", note)


def changes_of(differences: Sequence[Difference], checked: Sequence[LimitCheck]) -> list[Part]:
    """A chart and a table of all latencies; nothing without a difference."""
    if not differences:
        return []
    return [_forest(differences, checked), Table(HEADINGS, list(map(_cells, differences)))]


def _cells(difference: Difference) -> tuple[str, ...]:
    return (
        name_of(difference.metric),
        f"{difference.first_ms:.1f}",
        f"{difference.second_ms:.1f}",
        f"{difference.change:+.1%}",
        interval(difference),
    )


def _forest(differences: Sequence[Difference], checked: Sequence[LimitCheck]) -> Chart:
    """Each change with its interval, and the limits of `--fail-if`."""
    rows = {difference.metric: row for row, difference in enumerate(differences)}
    series = []
    for claim, (kind, color) in KINDS.items():
        claimed = [difference for difference in differences if difference.claim == claim]
        if claimed:
            points = Series(
                name=kind,
                x=[difference.change * 100 for difference in claimed],
                y=[rows[difference.metric] for difference in claimed],
                mark=Mark.POINTS,
                color=color,
                symbols=["circle"],
                errors=[_reach(difference) for difference in claimed],
                texts=[f"{name_of(d.metric)}\n{INTERVAL}: {interval(d)}" for d in claimed],
            )
            series.append(points)
    return Chart(
        title=f"Change of each latency, with its {INTERVAL}",
        x=Axis("change from A to B", "%", is_free=True),
        y=Axis("", names=[name_of(metric) for metric in rows]),
        series=series,
        limits=[
            Limit(
                name=f"{OUTCOMES[check.outcome][1]}: {check.limit}",
                at=check.limit.most * 100,
                is_vertical=True,
                row=rows[check.limit.metric],
            )
            for check in checked
            if check.limit.metric in rows
        ],
        height=height_of(len(rows) + 1),
    )


def _reach(difference: Difference) -> tuple[float, float]:
    """How far the interval reaches below and above the change, in percent; 0 without one."""
    if difference.low is None or difference.high is None:
        return 0.0, 0.0
    high = min(difference.high, highest_shown(difference))
    return (difference.change - difference.low) * 100, (high - difference.change) * 100
