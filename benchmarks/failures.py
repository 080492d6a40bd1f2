"""Documented failures of users that `penstock check` reports.

    python benchmarks/failures.py [SET…] [--label LABEL] [--engine-dry-run]

benchmarks/failures/SET/failures.yaml lists them with their sources; each is a pair of manifests,
broken and repaired. Those of 2026-11 are the first 30 by date from the queries that
failures/2026-11-queries.txt fixed beforehand, without the rejected ones; the hash of its name puts
a failure into one half. Rules may be written for the development half only.

A failure is caught if an error or a warning is at the defective field of the broken manifest, and
that finding is not in the repaired one. Written to results/failures.json, by label, so that earlier
figures stay. --engine-dry-run also asks the engines' own code.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import yaml

from penstock.checks.engine_dry_run import installed_engines
from penstock.checks.finding import Finding, Level
from penstock.checks.run import check_file
from penstock.engines.dry_run.process import EngineProcesses
from penstock.serving.understand import Hints
from report import RESULTS, write_result

SETS = Path(__file__).with_name("failures")


def loud(path: Path, engines: EngineProcesses | None) -> Iterator[Finding]:
    for finding in check_file(path, Hints(), engines=engines):
        if finding.level is not Level.NOTE and not finding.suppressed:
            yield finding


def caught_by(
    folder: Path, failure: Mapping[str, Any], engines: EngineProcesses | None
) -> list[str]:
    """The rules that report the defective field, and nothing like it in the repaired manifest."""
    pair = folder / failure["id"]
    lines = {failure["line"], *failure.get("alternatives", ())}
    repaired = {(f.rule, f.message) for f in loud(pair / "repaired.yaml", engines)}
    found = [f for f in loud(pair / "broken.yaml", engines) if (f.rule, f.message) not in repaired]
    return sorted({f.rule for f in found if f.line in lines})


def evaluate(folder: Path, engines: EngineProcesses | None = None) -> dict[str, Any]:
    listed = yaml.safe_load((folder / "failures.yaml").read_text("utf-8"))
    rows = {f["id"]: caught_by(folder, f, engines) for f in listed}
    caught = sum(map(bool, rows.values()))
    return {
        "failures": len(rows),
        "caught": caught,
        "recall_percent": round(100 * caught / len(rows), 1),
        "missed": [
            {"id": f["id"], "source": f["source"], "title": f["title"]}
            for f in listed
            if not rows[f["id"]]
        ],
        "rules": {str(number): rules for number, rules in rows.items() if rules},
        "new_findings_after_the_repair": _new_after_repair(folder, listed, engines),
    }


def _new_after_repair(
    folder: Path, listed: list[Mapping[str, Any]], engines: EngineProcesses | None
) -> list[str]:
    """Errors that only the repaired manifest has: the repair, or the rule, is wrong."""
    found = []
    for failure in listed:
        pair = folder / failure["id"]
        broken = {(f.rule, f.message) for f in loud(pair / "broken.yaml", engines)}
        found += [
            f"{failure['id']}: {f.rule} {f.message}"
            for f in loud(pair / "repaired.yaml", engines)
            if (f.rule, f.message) not in broken and f.level is Level.ERROR
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", metavar="SET")
    parser.add_argument("--label", default="now")
    parser.add_argument("--engine-dry-run", action="store_true")
    args = parser.parse_args()
    path = RESULTS / "failures.json"
    parts = json.loads(path.read_text("utf-8")).get("parts", {}) if path.exists() else {}
    names = args.sets or sorted(folder.name for folder in SETS.iterdir() if folder.is_dir())
    with installed_engines() if args.engine_dry_run else nullcontext() as engines:
        for name in names:
            figures = evaluate(SETS / name, engines)
            parts.setdefault(name, {})[args.label] = figures
            print(name, figures["caught"], "of", figures["failures"])
    write_result("failures", "python benchmarks/failures.py", {"parts": parts}, show=False)


if __name__ == "__main__":
    main()
