"""The report of `penstock bench shadow`, and its exit code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.bench.compare_report import change_figures, changes_of
from penstock.bench.run import INTERRUPTED
from penstock.bench.shadow.compare import DifferenceClass
from penstock.bench.shadow.live import LiveCounts
from penstock.bench.shadow.response import ShadowResponse
from penstock.bench.shadow.run import Comparison, Pair
from penstock.bench.shadow.verdict import ClassVerdict, ShadowVerdict, Status, Verdict
from penstock.errors import BenchError, LimitError, UndecidedError
from penstock.reports import model
from penstock.reports.model import (
    GRAY,
    Axis,
    Chart,
    Figure,
    Figures,
    Mark,
    Part,
    Report,
    Section,
    Series,
    State,
    Table,
    height_of,
    notes_of,
)

STATES = {
    Verdict.FINDINGS: State.MISSED,
    Verdict.NO_FINDINGS: State.MET,
    Verdict.UNDECIDED: State.INCOMPLETE,
}
LABELS = {
    DifferenceClass.ERROR: "only one succeeds",
    DifferenceClass.PROMPT_TOKENS: "prompt tokens",
    DifferenceClass.TOOL_CALLS: "tool calls",
    DifferenceClass.TOOL_ARGUMENTS: "tool arguments",
    DifferenceClass.JSON: "valid JSON",
    DifferenceClass.REASONING: "reasoning",
    DifferenceClass.FINISH_REASON: "finish reason",
    DifferenceClass.LENGTH: "output length",
    DifferenceClass.TEXT: "text",
}
STATUSES = {
    Status.FINDING: "FINDING",
    Status.NO_FINDING: "no finding",
    Status.NOT_COMPARABLE: "not comparable",
    Status.TOO_FEW: "too few",
}
LOOK = {
    DifferenceClass.ERROR: "Read the log of the endpoint that fails. With --results, `detail` "
    "in the file has the beginning of its error message.",
    DifferenceClass.PROMPT_TOKENS: "Compare the chat templates, tokenizers and context lengths.",
    DifferenceClass.TOOL_CALLS: "Compare the tool-call parsers of the frontends.",
    DifferenceClass.TOOL_ARGUMENTS: "Compare the tool-call parsers and the weights.",
    DifferenceClass.JSON: "Compare the guided decoding of the engines.",
    DifferenceClass.REASONING: "Compare the reasoning parsers and the chat templates.",
    DifferenceClass.FINISH_REASON: "Compare stop tokens and limits of the output length.",
    DifferenceClass.LENGTH: "Compare stop tokens, sampling defaults and weights.",
    DifferenceClass.TEXT: "Compare weights, quantization, chat templates and parsers.",
}
AROUND = 30  # characters of a text before and after the first that differs


@dataclass(frozen=True, kw_only=True)
class ShadowResult:
    run: Comparison
    total: int
    """Number of requests that should be compared."""
    pairs: Sequence[Pair]
    verdict: ShadowVerdict
    interrupted: str
    counts: LiveCounts | None = None
    """Of requests of clients; None for those of a file."""


def report_of(result: ShadowResult, *, show_text: bool) -> Report:
    """``show_text``: include excerpts of the responses that differ."""
    verdict = result.verdict
    findings = [each for each in verdict.classes if each.status is Status.FINDING]
    unproven = [each for each in verdict.classes if each.status is not Status.FINDING]
    differences: list[Part] = []
    if verdict.classes:
        differences = [_rates(verdict.classes), _classes_table(verdict.classes)]
    notes = [
        *(_not_compared(result.counts) if result.counts else ()),
        *(line for each in unproven for line in _details(each)),
        *_notes(result),
    ]
    texts = _texts(result) if show_text else ()
    compared = f"compared: {verdict.pairs} of {result.total} requests"
    endpoints = [*_endpoint_lines(result), f"{compared}, {verdict.repeated} sent to A twice"]
    return Report(
        kind="Comparison of responses",
        title=" and ".join(endpoint.url for endpoint in result.run.endpoints),
        subtitle="measured",
        verdicts=list(_verdicts(result)),
        sections=[
            Section("", [Figures(list(_figures(verdict)))], is_detail=True),
            Section("Endpoints", notes_of(endpoints)),
            Section("Differences", differences),
            Section("Findings", notes_of(line for each in findings for line in _details(each))),
            Section("Responses that differ", notes_of(texts)),
            Section("Latency (not part of the verdict)", changes_of(verdict.latencies, [])),
            Section("Notes", notes_of(notes)),
        ],
    )


def _verdicts(result: ShadowResult) -> Iterator[model.Verdict]:
    if result.interrupted:
        yield model.Verdict(State.INCOMPLETE, f"incomplete: {result.interrupted}")
    verdict = result.verdict
    yield model.Verdict(STATES[verdict.verdict], f"verdict: {sentence(verdict)}")


def _figures(verdict: ShadowVerdict) -> Iterator[Figure]:
    yield Figure(
        "compared requests", f"{verdict.pairs:,}", f"{verdict.repeated:,} of them sent to A twice"
    )
    findings = sum(each.status is Status.FINDING for each in verdict.classes)
    yield Figure("findings", str(findings), f"{len(verdict.classes)} kinds of difference compared")
    yield from change_figures(verdict.latencies)


def _rates(classes: Sequence[ClassVerdict]) -> Chart:
    """How often B differs from A, and A from itself."""
    counts = {
        "A and B": [(each.differing, each.compared) for each in classes],
        "A and A": [(each.differing_repeated, each.repeated) for each in classes],
    }
    series = []
    for name, pairs in counts.items():
        rows = {row: pair for row, pair in enumerate(pairs) if pair[1]}
        if rows:  # none without repeats
            points = Series(
                name=name,
                x=[100 * hits / total for hits, total in rows.values()],
                y=list(rows),
                mark=Mark.POINTS,
                style=0 if name == "A and B" else 1,
                color="" if name == "A and B" else GRAY,
                texts=[
                    f"{name}: {LABELS[classes[row].name]}: {hits} of {total}"
                    for row, (hits, total) in rows.items()
                ],
            )
            series.append(points)
    return Chart(
        title="How often responses differ",
        x=Axis("requests whose responses differ", "%", limits=(-2, 102)),
        y=Axis("", names=[LABELS[each.name] for each in classes]),
        series=series,
        height=height_of(len(classes) + 1),
    )


def _endpoint_lines(result: ShadowResult) -> Iterator[str]:
    for endpoint in result.run.endpoints:
        model = endpoint.model or "the model of each request"
        yield f"{endpoint.name}: {model} at {endpoint.url}"


def _not_compared(counts: LiveCounts) -> Iterator[str]:
    for number, reason in (
        (counts.skipped, "B was too slow or unreachable"),
        (counts.disconnected, "the client closed the connection"),
        (counts.unreadable, "the body or the response could not be read"),
    ):
        if number:
            yield f"not compared: {number} requests, as {reason}"


def _classes_table(classes: Sequence[ClassVerdict]) -> Table:
    rows = [
        (
            LABELS[verdict.name],
            _share(verdict.differing, verdict.compared),
            _share(verdict.differing_repeated, verdict.repeated),
            STATUSES[verdict.status],
        )
        for verdict in classes
    ]
    return Table(("difference", "A and B", "A and A", "result"), rows)


def _share(hits: int, total: int) -> str:
    return f"{hits} of {total} ({hits / total:.1%})" if total else "not measured"


def _details(verdict: ClassVerdict) -> Iterator[str]:
    if verdict.status is Status.FINDING:
        yield f"{LABELS[verdict.name]}: {LOOK[verdict.name]}"
        for example in verdict.examples:
            at = "" if example.position is None else f", from character {example.position} on"
            yield f"  request {example.id}: {example.detail}{at}"
    elif verdict.status is Status.NOT_COMPARABLE:
        count = f"{verdict.differing_repeated} of {verdict.repeated}"
        why = f"A differs from itself in {count} requests"
        yield f"{LABELS[verdict.name]}: cannot be compared, as {why}"


def _texts(result: ShadowResult) -> Iterator[str]:
    """Around the first character that differs."""
    by_id = {pair.request.id: pair for pair in result.pairs}
    for verdict in result.verdict.classes:
        if verdict.name is not DifferenceClass.TEXT:
            continue
        for example in verdict.examples:
            pair, at = by_id[example.id], example.position or 0
            is_reasoning = pair.first.reasoning != pair.second.reasoning
            yield f"request {example.id}:"
            for name, response in (("A", pair.first), ("B", pair.second)):
                yield f"  {name}: {_excerpt(response, at, is_reasoning)}"


def _excerpt(response: ShadowResponse, at: int, is_reasoning: bool) -> str:
    text = response.reasoning if is_reasoning else response.text
    return ascii(text[max(0, at - AROUND) : at + AROUND])  # no control codes of a terminal


def _notes(result: ShadowResult) -> Iterator[str]:
    verdict = result.verdict
    if verdict.both_failed:
        yield f"failed on both: {verdict.both_failed} requests"
    for name, responses in (
        ("A", [pair.first for pair in result.pairs]),
        ("B", [pair.second for pair in result.pairs]),
    ):
        counts: dict[str, int] = {}
        for response in responses:
            if response.error:
                counts[response.error] = counts.get(response.error, 0) + 1
        for error, count in sorted(counts.items()):
            yield f"{name}: {count} requests failed: {error}"
    if verdict.sampled:
        yield (
            f"text: not compared in {verdict.sampled} requests without temperature 0 and "
            "without a seed"
        )
    if verdict.without_usage:
        yield f"prompt tokens are not compared in {verdict.without_usage} requests without usage"


def sentence(verdict: ShadowVerdict) -> str:
    names = [
        LABELS[finding.name] for finding in verdict.classes if finding.status is Status.FINDING
    ]
    if verdict.unreachable and names:
        names.insert(0, "B unreachable")
    if names:
        return f"B differs from A: {', '.join(names)}"
    text = next((each for each in verdict.classes if each.name is DifferenceClass.TEXT), None)
    if verdict.verdict is Verdict.UNDECIDED:
        return "undecided: too few requests were served by both, or sent to A twice"
    if text is None or text.status is Status.NOT_COMPARABLE:
        return "no finding, but the texts cannot be compared"
    share = (text.found_from or 0) / text.compared
    return f"no finding (texts that differ in {share:.1%} of the requests would be one)"


def require_equal(result: ShadowResult) -> None:
    """After the result was printed: KeyboardInterrupt if the user ended the run, BenchError if an
    endpoint did, LimitError for findings, UndecidedError if there is no verdict."""
    verdict = result.verdict
    if result.interrupted == INTERRUPTED:
        raise KeyboardInterrupt
    if result.interrupted:
        message = f"the run is incomplete: {result.interrupted}"
        fix = "Correct the cause and repeat the run; with --results, it continues."
        raise BenchError(message, fix=fix)
    if verdict.pairs and verdict.both_failed == verdict.pairs:
        reasons = sorted({pair.first.error for pair in result.pairs})
        fix = "Read the logs of both endpoints; correct the requests, or raise --request-timeout."
        message = f"both endpoints failed all requests: {', '.join(reasons)}"
        raise BenchError(message, fix=fix)
    if verdict.verdict is Verdict.FINDINGS:
        raise LimitError(sentence(verdict))
    if verdict.verdict is Verdict.UNDECIDED:
        fix = "Send more requests, and raise --repeats."
        raise UndecidedError(sentence(verdict), fix=fix)
