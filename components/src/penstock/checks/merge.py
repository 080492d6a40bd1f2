"""One finding for a cause that affects several components.

Two findings have the same cause if rule, level, message, reason and fix are the same except for the
name of the component. If a component has two such findings, they have two causes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import yaml

from penstock.checks.files.place import dump
from penstock.checks.finding import Finding
from penstock.checks.registry import by_id

PART = "# in "


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, those with the same cause as one, at the place of the first."""
    groups: dict[Any, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(_cause(finding), []).append(finding)
    result: list[Finding] = []
    for group in (part for same in groups.values() for part in _parts(same)):
        pasted = _pasted([finding.yaml for finding in group])
        if len(group) == 1 or pasted is None:
            result += group
        else:
            result.append(_merged_finding(group, pasted))
    return tuple(result)


def _parts(group: Sequence[Finding]) -> list[list[Finding]]:
    """The findings of each graph in a file, which have the same components. If a component has
    more findings than another, each is a part of its own."""
    by_component: dict[str, list[Finding]] = {}
    for finding in group:
        by_component.setdefault(finding.component, []).append(finding)
    if len({*map(len, by_component.values())}) > 1:
        return [[finding] for finding in group]
    return [list(part) for part in zip(*by_component.values(), strict=True)]


def _cause(finding: Finding) -> Any:
    if not finding.component:
        return finding
    name = re.escape(finding.component)
    word = re.compile(rf"(?<![\w.-]){name}(?![\w-])")  # not in `--nsa-decode-backend`
    # What is pasted into each component may differ, such as a number of devices.
    pasted = "" if finding.yaml.startswith(PART) else finding.yaml
    texts = (finding.message, finding.fix, pasted)
    # What the rule states about "the prefill worker" is the same for every component.
    is_own = finding.why != by_id(finding.rule).effect
    return (
        (finding.file, finding.rule, finding.level, finding.suppressed, finding.replaces),
        word.sub("\0", finding.why) if is_own else finding.why,
        tuple(word.sub("\0", text) for text in texts),
    )


def _merged_finding(group: Sequence[Finding], pasted: str) -> Finding:
    first, *further = group
    names = " and ".join(finding.component for finding in further)
    message = first.message
    if any(finding.message != message for finding in further):
        message += f" (also {names})"
    fix = first.fix
    if any(finding.fix != fix for finding in further):
        fix += f" Do the same for {names}."
    also = tuple(place for finding in further for place in finding.places)
    return replace(first, message=message, fix=fix, yaml=pasted, also=also)


def _pasted(texts: Sequence[str]) -> str | None:
    """The YAML of all fixes; None if they contradict each other."""
    unique = list(dict.fromkeys(texts))
    if len(unique) == 1:
        return unique[0]
    if all(text.startswith(PART) for text in unique):
        parts = [
            PART + part for text in unique for part in text.removeprefix(PART).split(f"\n{PART}")
        ]
        return "\n".join(dict.fromkeys(parts))
    tree: dict[str, Any] = {}
    for text in unique:
        both = _combined(tree, yaml.safe_load(text) or {})
        if both is None:
            return None
        tree = both
    return dump(tree)


def _combined(ours: Any, theirs: Any) -> Any:
    """Both mappings in one; None if they have different values at a place."""
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        return ours if ours == theirs else None
    result = dict(ours)
    for key, value in theirs.items():
        is_new = key not in result or result[key] == value
        result[key] = value if is_new else _combined(result[key], value)
        if result[key] is None and not is_new:
            return None
    return result
