"""Results as lines for a person, each as it comes, and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape

from penstock.verify.result import Verdict
from penstock.verify.run_probes import ProbeRun

COLOUR = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.CANNOT_TELL: "yellow"}


def print_results(results: Iterable[ProbeRun]) -> list[ProbeRun]:
    """Print each result as it comes, then the sum; returns them."""
    console = Console(highlight=False, soft_wrap=True)
    shown = []
    for result in results:
        shown.append(result)
        verdict = result.result.verdict
        mark = f"[{COLOUR[verdict]}]{verdict:<11}[/]"
        because = "because " if verdict is Verdict.CANNOT_TELL else ""
        needed = "" if result.ok or verdict is Verdict.FAIL else " (the graph says it must pass)"
        detail = escape(f"{because}{result.result.detail}{needed}")
        console.print(f"{mark} {result.name:<17} {result.seconds:6.1f} s  {detail}")
        if result.result.hint and verdict is not Verdict.PASS:
            console.print(f"{'':<40}hint: {escape(result.result.hint)}")
    count = {v: sum(r.result.verdict is v for r in shown) for v in Verdict}
    console.print(", ".join(f"{number} {verdict}" for verdict, number in count.items()))
    return shown


def print_json(results: Iterable[ProbeRun]) -> list[ProbeRun]:
    """Print all results as one JSON document; returns them."""
    shown = list(results)
    document = {
        "ok": all(r.ok for r in shown),
        "probes": [
            {
                "name": r.name,
                "verdict": str(r.result.verdict),
                "detail": r.result.detail,
                "hint": r.result.hint,
                "seconds": round(r.seconds, 3),
                "required": r.required,
                "ok": r.ok,
            }
            for r in shown
        ],
    }
    json.dump(document, sys.stdout, indent=1)
    print()
    return shown
