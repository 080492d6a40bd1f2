"""A baseline: findings that a repository has accepted, which `penstock check` does not report.

A finding is recognized by rule, file, place and message, not by its line, so that edits above it do
not matter. `cli/check.py` reads and writes the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from penstock.checks.finding import Finding
from penstock.checks.registry import by_id
from penstock.checks.suppress import ALWAYS
from penstock.errors import InputError, Problem
from penstock.strict_yaml.base import Items, Spec, Text

VERSION: Literal[1] = 1
STANDARD_INPUT = "/dev/stdin"


class Entry(Spec):
    """One accepted finding."""

    rule: Text = Field(description="Id of the rule.")
    file: Text = Field(description="Path of the file, relative to the baseline's folder.")
    place: str = Field(description="Dotted path in the graph, or path in the manifest.")
    message_hash: str = Field(
        pattern="^[0-9a-f]{16}$", description="Beginning of the SHA-256 of the message."
    )

    @property
    def order(self) -> tuple[str, str, str, str]:
        return self.file, self.rule, self.place, self.message_hash


class Baseline(Spec):
    """The file; a finding that occurs twice has two entries."""

    version: Literal[1] = Field(description="Version of this format.")
    findings: Items[Entry] = Field(description="The accepted findings.")


@dataclass(frozen=True, kw_only=True)
class Matched:
    # The findings that are not in the baseline.
    findings: tuple[Finding, ...]
    # Number of findings that are in it.
    accepted: int
    # Entries of checked files that no finding has.
    stale: tuple[Entry, ...]


def parse_baseline(text: str, source: Path) -> Baseline:
    """Raises InputError for anything but a baseline."""
    fix = "Restore the file, or write it again with --write-baseline."
    try:
        return Baseline.model_validate(json.loads(text))
    except json.JSONDecodeError as error:
        message = f"is not a baseline: not JSON, {error.msg} at column {error.colno}"
        problem = Problem(file=str(source), line=error.lineno, message=message, fix=fix)
    except (ValidationError, RecursionError) as error:
        reason = "nested too deeply"
        place = ""
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            reason, place = first["msg"], ".".join(map(str, first["loc"]))
        message = f"is not a baseline: {reason[:1].lower()}{reason[1:]}"
        problem = Problem(file=str(source), place=place, message=message, fix=fix)
    raise InputError(problem)


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What was checked; entries about anything else are neither stale nor renewed."""

    files: tuple[str, ...]
    # Whether a rule is reported.
    includes: Callable[[str], bool]

    def has(self, entry: Entry, folder: Path, without: Iterable[str] = ()) -> bool:
        """``folder``: of the baseline. ``without``: further paths that were not checked."""
        files = {_relative(file, folder) for file in self.files} - set(without)
        return entry.file in files and self.includes(entry.rule)


def match(findings: Sequence[Finding], baseline: Baseline, folder: Path, scope: Scope) -> Matched:
    """Remove the findings that the baseline has. ``folder`` contains it.

    Entries of a file that could not be checked completely are not stale.
    """
    left = Counter(entry.order for entry in baseline.findings)
    groups = {entry.rule for entry in baseline.findings}
    kept: list[Finding] = []
    for finding in findings:
        entry = entry_of(finding, folder)
        # An older baseline has the id of the group instead of the rule's own.
        group = by_id(finding.rule).group
        key = (entry.model_copy(update={"rule": group}) if group in groups else entry).order
        if is_acceptable(finding) and left[key]:
            left[key] -= 1
        else:
            kept.append(finding)
    incomplete = {_relative(f.file, folder) for f in findings if f.rule in ALWAYS}
    stale = [
        entry
        for entry in baseline.findings
        if left[entry.order] and scope.has(entry, folder, incomplete)
    ]
    accepted = len(findings) - len(kept)
    return Matched(findings=tuple(kept), accepted=accepted, stale=tuple(stale))


def renewed(
    findings: Iterable[Finding], old: Baseline | None, folder: Path, scope: Scope
) -> Baseline:
    """The baseline with all findings of the scope; other entries remain."""
    entries = [
        finding for finding in (old.findings if old else ()) if not scope.has(finding, folder)
    ]
    entries += [entry_of(finding, folder) for finding in findings if is_acceptable(finding)]
    return Baseline(
        version=VERSION, findings=tuple(sorted(entries, key=lambda finding: finding.order))
    )


def as_text(baseline: Baseline) -> str:
    return json.dumps(baseline.model_dump(), indent=1, ensure_ascii=False) + "\n"


def is_acceptable(finding: Finding) -> bool:
    """Whether a baseline may have it: a file that cannot be read is always reported."""
    return not finding.suppressed and finding.rule not in ALWAYS


def entry_of(finding: Finding, folder: Path) -> Entry:
    digest = hashlib.sha256(finding.message.encode("utf-8", "backslashreplace")).hexdigest()
    file = _relative(finding.file, folder)
    return Entry(rule=finding.rule, file=file, place=finding.place, message_hash=digest[:16])


def _relative(file: str, folder: Path) -> str:
    if file == STANDARD_INPUT:
        return "-"
    return Path(os.path.relpath(Path(file).absolute(), folder.absolute())).as_posix()
