"""Findings as text, as JSON, and as SARIF 2.1.0 for code scanning."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape

import penstock
from penstock.checks.finding import Finding, Level
from penstock.checks.registry import RULES, by_id
from penstock.checks.run import Tally, tally

COLOR = {Level.ERROR: "red", Level.WARNING: "yellow", Level.NOTE: "cyan"}
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def print_text(findings: Sequence[Finding], files: int) -> None:
    """Print every finding with its fix, then the counts."""
    console = Console(highlight=False, soft_wrap=True)
    for finding in findings:
        where = finding.file + (f":{finding.line}" if finding.line is not None else "")
        where += f" --set {finding.override}" if finding.override else ""
        color = COLOR[finding.level]
        word = "suppressed" if finding.suppressed else str(finding.level)
        console.print(
            f"{escape(where)} [bold]{escape(finding.place)}[/]: [{color}]{word}[/] "
            f"{finding.rule}: {escape(finding.message)}"
        )
        if finding.suppressed:
            console.print(f"    suppressed: {escape(finding.suppressed)}")
            continue
        console.print(f"    why: {escape(finding.why)}")
        console.print(f"    fix: {escape(finding.fix)}")
        for line in finding.yaml.splitlines():
            console.print(f"      {escape(line)}")
    console.print(_counts(tally(findings), files))


def _counts(counts: Tally, files: int) -> str:
    parts = [
        f"{counts.errors} error{'s' * (counts.errors != 1)}",
        f"{counts.warnings} warning{'s' * (counts.warnings != 1)}",
        f"{counts.notes} note{'s' * (counts.notes != 1)}",
    ]
    if counts.suppressed:
        parts.append(f"{counts.suppressed} suppressed")
    return f"{files} file{'s' * (files != 1)}: {', '.join(parts)}"


def as_json(findings: Sequence[Finding], files: Sequence[str]) -> str:
    counts = tally(findings)
    document = {
        "files": list(files),
        "errors": counts.errors,
        "warnings": counts.warnings,
        "notes": counts.notes,
        "suppressed": counts.suppressed,
        "findings": [asdict(finding) for finding in findings],
    }
    return json.dumps(document, indent=1, ensure_ascii=False)


def as_sarif(findings: Sequence[Finding]) -> str:
    """One SARIF run; suppressed findings are results with `suppressions`."""
    used = {finding.rule for finding in findings}
    driver = {
        "name": "penstock",
        "version": penstock.__version__,
        "rules": [
            {
                "id": rule.id,
                "shortDescription": {"text": rule.title},
                "fullDescription": {"text": f"{rule.cause} {rule.effect}"},
                "help": {"text": f"{rule.remedy} Source: {rule.source}"},
                "defaultConfiguration": {"level": str(rule.level)},
            }
            for rule in RULES
            if rule.id in used
        ],
    }
    run = {"tool": {"driver": driver}, "results": [_result(finding) for finding in findings]}
    log = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1, ensure_ascii=False)


def _result(finding: Finding) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": finding.file}}
    if finding.line is not None:
        location["region"] = {"startLine": finding.line}
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "level": str(finding.level),
        "message": {"text": f"{finding.message}. {finding.why} Fix: {finding.fix}"},
        "locations": [
            {
                "physicalLocation": location,
                "logicalLocations": [{"fullyQualifiedName": finding.place}],
            }
        ],
    }
    if finding.suppressed:
        result["suppressions"] = [{"kind": "inSource", "justification": finding.suppressed}]
    return result


def explain(rule: str) -> str:
    """The documentation of a rule."""
    found = by_id(rule)
    return (
        f"{found.id} ({found.level}): {found.title}\n\n"
        f"Cause:   {found.cause}\nEffect:  {found.effect}\nFix:     {found.remedy}\n"
        f"Source:  {found.source}\nVerified for: {found.versions.text()}"
    )
