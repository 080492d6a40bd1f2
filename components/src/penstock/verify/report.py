"""Print probe results as lines or as JSON."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape

from penstock.files import page
from penstock.text.terminal import fitted
from penstock.verify.documents import SCHEMA_VERSION, ProbeDocument, VerifyDocument
from penstock.verify.probes import NOT_COVERED
from penstock.verify.result import Verdict
from penstock.verify.run_probes import ProbeRun

ON_MOCKERS = (
    "no engine runs: mockers simulate it, so the probes test the frontend, the router and the graph"
)
MARGIN = 40  # columns before a detail
COLOR = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.CANNOT_TELL: "yellow"}


def print_results(results: Iterable[ProbeRun], *, is_mocked: bool = False) -> list[ProbeRun]:
    """Print each result when its probe ends, then the counts; return all results."""
    console = Console(highlight=False, soft_wrap=True)
    if is_mocked:
        console.print("\n".join(fitted(ON_MOCKERS)), markup=False)
    shown = []
    for probe in results:
        shown.append(probe)
        verdict = probe.result.verdict
        required = "" if probe.ok or verdict is Verdict.FAIL else " (listed in verify.must_pass)"
        facts = f"{verdict:<11} {probe.name:<17} {probe.seconds:6.1f} s"
        lines = fitted(f"{facts}  {probe.result.detail}{required}", MARGIN)
        mark, first = lines[0][: len(verdict)], lines[0][len(verdict) :]
        console.print(f"[{COLOR[verdict]}]{mark}[/]{escape(first)}")
        if probe.result.hint and verdict is not Verdict.PASS:
            lines += fitted(f"{'':<{MARGIN}}hint: {probe.result.hint}", MARGIN)
        for line in lines[1:]:
            console.print(line, markup=False)
    count = {v: sum(r.result.verdict is v for r in shown) for v in Verdict}
    console.print(", ".join(f"{number} {verdict}" for verdict, number in count.items()))
    if count[Verdict.PASS]:
        text = f"What a pass does not cover: --json, --report and {page('verify')} state it."
        console.print("\n".join(fitted(text)), markup=False)
    return shown


def print_json(results: Iterable[ProbeRun], *, is_mocked: bool = False) -> list[ProbeRun]:
    """Print all results as one JSON document; return them."""
    shown = list(results)
    document = VerifyDocument(
        schema_version=SCHEMA_VERSION,
        ok=all(r.ok for r in shown),
        engine_is_substitute=is_mocked,
        probes=[
            ProbeDocument(
                name=r.name,
                verdict=r.result.verdict,
                detail=r.result.detail,
                not_covered=NOT_COVERED[r.name],
                hint=r.result.hint,
                seconds=round(r.seconds, 3),
                required=r.required,
                ok=r.ok,
            )
            for r in shown
        ],
    )
    print(document.as_json(indent=1))
    return shown
