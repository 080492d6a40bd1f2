"""The result of `penstock check` for programs: JSON, SARIF 2.1.0, and GitHub's annotations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import penstock
from penstock.checks.finding import Finding, FindingPlace, Level, tally
from penstock.checks.registry import all_rules
from penstock.checks.report import CheckReport, by_level, counts_line, subject

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
COMMANDS = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "notice"}


def as_json(report: CheckReport) -> str:
    counts = tally(report.findings)
    document = {
        "files": list(report.files),
        "skipped": len(report.skipped),
        "skipped_files": [
            {"file": str(file.path), "reason": file.reason} for file in report.skipped
        ],
        "errors": counts.errors,
        "warnings": counts.warnings,
        "notes": counts.notes,
        "suppressed": counts.suppressed,
        "in_baseline": report.accepted,
        "stale_in_baseline": report.stale,
        "findings": [_as_object(finding) for finding in report.findings],
    }
    return json.dumps(document, indent=1, ensure_ascii=False)


def _as_object(finding: Finding) -> dict[str, Any]:
    values = asdict(finding)
    del values["also"], values["subject"]
    return {**values, "places": [asdict(place) for place in finding.places]}


def as_sarif(report: CheckReport) -> str:
    """One SARIF run; suppressed findings are results with `suppressions`."""
    used = {finding.rule for finding in report.findings}
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
            for rule in all_rules()
            if rule.id in used
        ],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding) for finding in report.findings],
    }
    log = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1, ensure_ascii=False)


def _result(finding: Finding) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "level": str(finding.level),
        "message": {"text": f"{finding.message}. {finding.why} Fix: {finding.fix}"},
        "locations": [_location(finding.file, place) for place in finding.places],
    }
    if finding.suppressed:
        result["suppressions"] = [{"kind": "inSource", "justification": finding.suppressed}]
    return result


def _location(file: str, place: FindingPlace) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": file}}
    if place.line is not None:
        column = {"startColumn": place.column} if place.column is not None else {}
        physical["region"] = {"startLine": place.line, **column}
    logical = [{"fullyQualifiedName": place.place}]
    return {"physicalLocation": physical, "logicalLocations": logical}


def as_github(report: CheckReport) -> str:
    """Workflow commands of GitHub Actions, one for each line that has a finding, and the counts."""
    counted = [finding for finding in by_level(report.findings) if not finding.suppressed]
    lines = [line for finding in counted for line in dict.fromkeys(_annotations(finding))]
    return "\n".join([*lines, counts_line(report)])


def _annotations(finding: Finding) -> Iterator[str]:
    about = subject(finding)
    message = f"{about}: {finding.message}" if about else finding.message
    text = f"{message}\nFix: {finding.fix}" if finding.fix else message
    for place in finding.places:
        values = {
            "file": finding.file,
            "line": place.line,
            "col": place.column,
            "title": finding.rule,
        }
        properties = ",".join(
            f"{name}={_property(str(value))}" for name, value in values.items() if value is not None
        )
        yield f"::{COMMANDS[finding.level]} {properties}::{_data(text)}"


def _data(text: str) -> str:
    """Escaped as the runner of GitHub Actions unescapes the text of a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
