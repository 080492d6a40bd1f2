"""Evaluates `penstock check` on a folder of published manifests.

    python benchmarks/outside.py measure FOLDER [--list FILE] [--name NAME]
    python benchmarks/outside.py sample FOLDER [--list FILE] [--seed N] -o SAMPLE.json
    python benchmarks/outside.py sample FOLDER --report REPORT.json [--seed N] -o SAMPLE.json
    python benchmarks/outside.py review SAMPLE.json REVIEW.json … [--name NAME]

FOLDER may contain index.json, a list of {file, repo, path, commit, upstream}; --list restricts it
to the files named there, one a line. measure: files read, refused and crashed, findings by rule and
level, and times, written to results/outside.json under NAME. sample: findings drawn at random for
the reviewers, each of whom writes a list of {id, verdict: right|wrong, reason, source}, with the
part that is wrong: statement, detail (of a true statement) or fix. With --report, the output of
`penstock check --json`, each rule has about the same number of findings in the sample. review: the
verdicts under NAME in the ledger outside_ledger.json, and the shares of false findings; a finding
is right only if all say so.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from penstock.checks.finding import Finding, Level
from penstock.checks.merge import merged
from penstock.checks.run import check_file
from penstock.serving.understand import Hints
from report import RESULTS, write_result

LEDGER = Path(__file__).with_name("outside_ledger.json")
COMMAND = "python benchmarks/outside.py"
NOT_READ = {"PS001", "PS002", "PS003", "PS004"}
OBVIOUS = {*NOT_READ, "PS909"}
SAMPLED = {Level.ERROR: 60, Level.WARNING: 90}
# With --report: the findings of each level, and those of a rule, which rise until there are enough.
AT_LEAST, OF_A_RULE = 60, range(3, 13)
Row = TypeVar("Row")
WORDS_THAT_VARY = re.compile(r"`[^`]*`|\"[^\"]*\"|'[^']*'|\d[\w.]*")
PROCESSES = 7  # of one file each
SEED = 1911


def files_of(folder: Path, chosen: Path | None) -> list[Path]:
    """The YAML files, sorted, without those in hidden folders."""
    if chosen is None:
        found = (p for ending in ("yaml", "yml") for p in folder.rglob(f"*.{ending}"))
        parts = ((p, p.relative_to(folder).parts) for p in found)
        return sorted(p for p, names in parts if not any(n.startswith(".") for n in names))
    return sorted(folder / line for line in chosen.read_text("utf-8").split("\n") if line)


def findings_of(path: Path) -> tuple[Finding, ...] | str:
    """The findings, or the exception: a crash is a result, not the end of the run."""
    try:
        return check_file(path, Hints())
    except Exception as error:  # noqa: BLE001  whatever a user would see as a traceback
        return f"{type(error).__name__}: {error}"


def measure(folder: Path, paths: Sequence[Path]) -> dict[str, Any]:
    found = {path: findings_of(path) for path in paths}
    crashed = {str(p.relative_to(folder)): f for p, f in found.items() if isinstance(f, str)}
    read = {p: f for p, f in found.items() if not isinstance(f, str)}
    refused = [p for p, fs in read.items() if NOT_READ & {f.rule for f in fs}]
    shown = [f for p, fs in read.items() for f in fs if p not in refused]
    loud = {p for p, fs in read.items() if any(f.level is not Level.NOTE for f in fs)}
    return {
        "files": len(paths),
        "read": len(read) - len(refused),
        "refused": Counter(
            next(f.rule for f in read[p] if f.rule in NOT_READ) for p in refused
        ).most_common(),
        "crashed": crashed,
        "without_errors_and_warnings": len(read) - len(loud | {*refused}),
        "findings": Counter(str(f.level) for f in shown),
        "by_rule": {
            str(level): dict(Counter(f.rule for f in shown if f.level is level).most_common())
            for level in Level
        },
        **times(paths),
    }


def times(paths: Sequence[Path]) -> dict[str, Any]:
    """Seconds of whole processes: all files at once, and the median of single ones."""
    step = max(1, len(paths) // PROCESSES)
    return {
        "seconds_all_in_one_process": round(_seconds(paths), 2),
        "seconds_one_file_median": round(
            statistics.median(_seconds([path]) for path in paths[::step][:PROCESSES]), 2
        ),
    }


def _seconds(paths: Iterable[Path]) -> float:
    begun = time.monotonic()
    command = [sys.executable, "-m", "penstock.cli.main", "check", *map(str, paths)]
    subprocess.run(command, capture_output=True, check=False)
    return time.monotonic() - begun


def sample(folder: Path, paths: Sequence[Path], seed: int) -> list[dict[str, Any]]:
    """Errors and warnings as a user sees them, drawn at random; those about placeholders and
    unreadable files only if there are too few others: they are hardly ever wrong."""
    origins, draw = _origins(folder), random.Random(seed)
    chosen: list[dict[str, Any]] = []
    found = [
        (path, finding)
        for path in paths
        for finding in merged([f for f in findings_of(path) if isinstance(f, Finding)])
        if not finding.suppressed
    ]
    for level, count in SAMPLED.items():
        candidates = [pair for pair in found if pair[1].level is level]
        draw.shuffle(candidates)
        candidates.sort(key=lambda pair: pair[1].rule in OBVIOUS)
        for path, finding in candidates[:count]:
            name = str(path.relative_to(folder))
            chosen.append(
                {
                    "id": len(chosen) + 1,
                    "file": name,
                    **origins.get(name, {}),
                    "line": finding.line,
                    "place": finding.place,
                    "rule": finding.rule,
                    "level": str(level),
                    "message": finding.message,
                    "why": finding.why,
                    "fix": finding.fix,
                }
            )
    return chosen


def sample_by_rule(folder: Path, report: Path, seed: int) -> list[dict[str, Any]]:
    """Errors and warnings of a report, drawn at random, with at most so many of one rule that there
    are enough. Those with the same rule, message pattern and upstream repository are a group, from
    which a second one is only drawn if each group of the rule has one."""
    index, draw = json.loads((folder / "index.json").read_text("utf-8")), random.Random(seed)
    origins = {row["file"]: row for row in index}
    chosen: list[dict[str, Any]] = []
    for level in SAMPLED:
        groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
        for finding in json.loads(report.read_text("utf-8"))["findings"]:
            if finding["level"] == level and not finding["suppressed"]:
                name = str(Path(finding["file"]).relative_to(folder))
                row = {**finding, "file": name, **origins[name]}
                pattern = WORDS_THAT_VARY.sub("_", finding["message"])
                groups[finding["rule"], pattern, row.get("upstream", row["repo"])].append(row)
        by_rule: dict[str, list[list[dict[str, Any]]]] = defaultdict(list)
        for (rule, _, _), group in sorted(groups.items()):
            draw.shuffle(group)
            by_rule[rule].append(_new_first(group, lambda row: row["path"].split("/")[-3:]))
        for rule, of_rule in by_rule.items():
            draw.shuffle(of_rule)
            by_rule[rule] = _new_first(of_rule, lambda g: WORDS_THAT_VARY.sub("_", g[0]["message"]))
        turns = {
            rule: [row for turn in zip_longest(*by_rule[rule]) for row in turn if row]
            for rule in sorted(by_rule)
        }
        for most in OF_A_RULE:
            drawn = [row for rows in turns.values() for row in rows[:most]]
            if len(drawn) >= AT_LEAST:
                break
        chosen += drawn
    return [{"id": number, **row} for number, row in enumerate(chosen, 1)]


def _new_first(rows: Sequence[Row], key: Callable[[Row], object]) -> list[Row]:
    """The rows whose key is new, in order, before those whose key an earlier one has."""
    keys = [key(row) for row in rows]
    is_old = [value in keys[:place] for place, value in enumerate(keys)]
    return [row for _, row in sorted(zip(is_old, rows, strict=True), key=lambda pair: pair[0])]


def _origins(folder: Path) -> dict[str, dict[str, str]]:
    index = folder / "index.json"
    listed = json.loads(index.read_text("utf-8")) if index.exists() else []
    return {row["file"]: {k: row.get(k, "") for k in ("repo", "path", "commit")} for row in listed}


def reviewed(
    sampled: Sequence[Mapping[str, Any]], reviews: Sequence[Sequence[Mapping[str, Any]]]
) -> list[dict[str, Any]]:
    """The ledger: what was found where, never the file, with each reviewer's verdict."""
    kept = ("repo", "path", "commit", "line", "place", "rule", "level", "message")
    verdicts = [{row["id"]: row for row in review} for review in reviews]
    ledger = []
    for one in sampled:
        given = [
            {
                **{key: rows[one["id"]].get(key, "") for key in ("verdict", "reason", "source")},
                **({"part": part} if (part := rows[one["id"]].get("part")) else {}),
            }
            for rows in verdicts
        ]
        right = all(v["verdict"] == "right" for v in given)
        ledger.append({**{k: one[k] for k in kept if k in one}, "right": right, "reviews": given})
    return ledger


def shares(ledger: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for level in SAMPLED:
        rows = [row for row in ledger if row["level"] == level]
        wrong = [row for row in rows if not row["right"]]
        figures[f"{level}s"] = {
            "reviewed": len(rows),
            "false": len(wrong),
            "false_percent": round(100 * len(wrong) / len(rows), 1) if rows else None,
            "reviewers_disagree": sum(
                len({review["verdict"] for review in row["reviews"]}) > 1 for row in rows
            ),
            "false_by_rule": dict(Counter(row["rule"] for row in wrong).most_common()),
        }
        parts = Counter(part for row in wrong if (part := row["reviews"][0].get("part")))
        if parts:
            figures[f"{level}s"]["false_by_part"] = dict(parts.most_common())
    return figures


def save(name: str, figures: Mapping[str, Any]) -> None:
    path = RESULTS / "outside.json"
    old = json.loads(path.read_text("utf-8")) if path.exists() else {}
    parts = {**old.get("parts", {}), name: figures}
    write_result("outside", COMMAND, {"parts": parts}, show=False)
    print(json.dumps(figures, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("measure", "sample"):
        made = verbs.add_parser(verb)
        made.add_argument("folder", type=Path)
        made.add_argument("--list", type=Path)
    verbs.choices["measure"].add_argument("--name", default="measured")
    verbs.choices["sample"].add_argument("--seed", type=int, default=SEED)
    verbs.choices["sample"].add_argument("--report", type=Path, metavar="JSON")
    verbs.choices["sample"].add_argument("-o", type=Path, required=True)
    review = verbs.add_parser("review")
    review.add_argument("files", type=Path, nargs="+", metavar="JSON")
    review.add_argument("--name", default="reviewed")
    args = parser.parse_args()
    if args.verb == "review":
        sampled, *reviews = (json.loads(path.read_text("utf-8")) for path in args.files)
        ledger = reviewed(sampled, reviews)
        old = json.loads(LEDGER.read_text("utf-8")) if LEDGER.exists() else {}
        samples = json.dumps({**old, args.name: ledger}, indent=1, ensure_ascii=False)
        LEDGER.write_text(samples + "\n", "utf-8")
        save(args.name, shares(ledger))
        return
    if args.verb == "measure":
        save(args.name, measure(args.folder, files_of(args.folder, args.list)))
    else:
        if args.report:
            chosen = sample_by_rule(args.folder, args.report, args.seed)
        else:
            chosen = sample(args.folder, files_of(args.folder, args.list), args.seed)
        args.o.write_text(json.dumps(chosen, indent=1, ensure_ascii=False) + "\n", "utf-8")
        print(Counter(row["level"] for row in chosen))


if __name__ == "__main__":
    main()
