"""The result of `penstock bench shadow` as text and as JSON, and its exit code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from penstock.bench.compare_report import HEADINGS, cells
from penstock.bench.shadow.compare import DifferenceClass
from penstock.bench.shadow.documents import (
    SCHEMA_VERSION,
    MirrorCounts,
    ShadowDocument,
    ShadowTarget,
)
from penstock.bench.shadow.live import LiveCounts
from penstock.bench.shadow.response import ShadowResponse
from penstock.bench.shadow.run import INTERRUPTED, Comparison, Pair
from penstock.bench.shadow.verdict import LEVEL, ClassVerdict, ShadowVerdict, Status, Verdict
from penstock.errors import BenchError, LimitError, Problem, UndecidedError
from penstock.simulate.report import aligned

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


def lines(found: ShadowResult, *, show_text: bool) -> Iterator[str]:
    verdict = found.verdict
    yield from endpoint_lines(found)
    if found.interrupted:
        yield f"incomplete: {found.interrupted}"
    yield compared_line(found)
    if found.counts is not None:
        yield from not_compared(found.counts)
    yield from aligned(list(classes_table(verdict.classes)))
    for one in verdict.classes:
        yield from details(one)
    if show_text:
        yield from texts(found)
    yield from notes(found)
    if verdict.latencies:
        yield from aligned([HEADINGS, *map(cells, verdict.latencies)])
    yield f"verdict: {sentence(verdict)}"


def endpoint_lines(found: ShadowResult) -> Iterator[str]:
    for endpoint in found.run.endpoints:
        model = endpoint.model or "the model of each request"
        yield f"{endpoint.name}: {model} at {endpoint.url}"


def compared_line(found: ShadowResult) -> str:
    of = f"{found.verdict.pairs} of {found.total} requests"
    return f"compared: {of}, {found.verdict.repeated} sent to A twice"


def not_compared(counts: LiveCounts) -> Iterator[str]:
    for number, reason in (
        (counts.skipped, "B was too slow or unreachable"),
        (counts.disconnected, "the client closed the connection"),
        (counts.unreadable, "the body or the response could not be read"),
    ):
        if number:
            yield f"not compared: {number} requests, as {reason}"


def classes_table(classes: Sequence[ClassVerdict]) -> Iterator[tuple[str, ...]]:
    """The headings, and one row for each class."""
    yield ("difference", "A and B", "A and A", "result")
    for one in classes:
        yield (
            LABELS[one.name],
            _share(one.differing, one.compared),
            _share(one.differing_repeated, one.repeated),
            STATUSES[one.status],
        )


def _share(hits: int, total: int) -> str:
    return f"{hits} of {total} ({hits / total:.1%})" if total else "not measured"


def details(one: ClassVerdict) -> Iterator[str]:
    if one.status is Status.FINDING:
        yield f"{LABELS[one.name]}: {LOOK[one.name]}"
        for example in one.examples:
            at = "" if example.position is None else f", from character {example.position} on"
            yield f"  request {example.id}: {example.detail}{at}"
    elif one.status is Status.NOT_COMPARABLE:
        own = f"{one.differing_repeated} of {one.repeated}"
        yield f"{LABELS[one.name]}: cannot be compared, as A differs from itself in {own} requests"


def texts(found: ShadowResult) -> Iterator[str]:
    """Around the first character that differs."""
    by_id = {pair.request.id: pair for pair in found.pairs}
    for one in found.verdict.classes:
        if one.name is not DifferenceClass.TEXT:
            continue
        for example in one.examples:
            pair, at = by_id[example.id], example.position or 0
            is_reasoning = pair.first.reasoning != pair.second.reasoning
            yield f"request {example.id}:"
            for name, response in (("A", pair.first), ("B", pair.second)):
                yield f"  {name}: {_excerpt(response, at, is_reasoning)}"


def _excerpt(response: ShadowResponse, at: int, is_reasoning: bool) -> str:
    text = response.reasoning if is_reasoning else response.text
    return ascii(text[max(0, at - AROUND) : at + AROUND])  # no control codes of a terminal


def notes(found: ShadowResult) -> Iterator[str]:
    verdict = found.verdict
    if verdict.both_failed:
        yield f"failed on both: {verdict.both_failed} requests"
    for name, responses in (
        ("A", [pair.first for pair in found.pairs]),
        ("B", [pair.second for pair in found.pairs]),
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
    names = [LABELS[one.name] for one in verdict.classes if one.status is Status.FINDING]
    if verdict.unreachable and names:
        names.insert(0, "B unreachable")
    if names:
        return f"B differs from A: {', '.join(names)}"
    text = next((one for one in verdict.classes if one.name is DifferenceClass.TEXT), None)
    if verdict.verdict is Verdict.UNDECIDED:
        return "undecided: too few requests were served by both, or sent to A twice"
    if text is None or text.status is Status.NOT_COMPARABLE:
        return "no finding, but the texts cannot be compared"
    share = (text.found_from or 0) / text.compared
    return f"no finding (texts that differ in {share:.1%} of the requests would be one)"


def as_json(found: ShadowResult) -> str:
    run, verdict = found.run, found.verdict
    return ShadowDocument(
        schema_version=SCHEMA_VERSION,
        kind="shadow",
        targets={
            "A": ShadowTarget(url=run.endpoints[0].url, model=run.endpoints[0].model),
            "B": ShadowTarget(url=run.endpoints[1].url, model=run.endpoints[1].model),
        },
        as_sent=run.as_sent,
        concurrency=run.concurrency,
        seed=run.seed,
        requests=found.total,
        compared=verdict.pairs,
        repeated=verdict.repeated,
        verdict=verdict.verdict,
        level=LEVEL,
        classes=list(verdict.classes),
        latencies=list(verdict.latencies),
        both_failed=verdict.both_failed,
        without_usage=verdict.without_usage,
        sampled=verdict.sampled,
        unreachable=verdict.unreachable,
        mirror=MirrorCounts(**asdict(found.counts)) if found.counts is not None else None,
        interrupted=found.interrupted or None,
    ).as_json()


def require_equal(found: ShadowResult) -> None:
    """After the result was printed: KeyboardInterrupt if the user ended the run, BenchError if an
    endpoint did, LimitError for findings, UndecidedError if there is no verdict."""
    verdict = found.verdict
    if found.interrupted == INTERRUPTED:
        raise KeyboardInterrupt
    if found.interrupted:
        message = f"the run is incomplete: {found.interrupted}"
        fix = "Correct the cause and repeat the run; with --results, it continues."
        raise BenchError(Problem(message=message, fix=fix))
    if verdict.pairs and verdict.both_failed == verdict.pairs:
        reasons = sorted({pair.first.error for pair in found.pairs})
        fix = "Read the logs of both endpoints; correct the requests, or raise --request-timeout."
        message = f"both endpoints failed all requests: {', '.join(reasons)}"
        raise BenchError(Problem(message=message, fix=fix))
    if verdict.verdict is Verdict.FINDINGS:
        raise LimitError(sentence(verdict))
    if verdict.verdict is Verdict.UNDECIDED:
        fix = "Send more requests, and raise --repeats."
        raise UndecidedError(Problem(message=sentence(verdict), fix=fix))
