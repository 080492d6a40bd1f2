"""Paste the YAML of a finding's fix into the file that has the finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from penstock.checks.finding import Finding
from tests.checks.support import LOADER, dump


def pasted_graph(text: str, findings: Sequence[Finding]) -> str:
    """The graph with all fixes."""
    tree: Any = yaml.load(text, LOADER)
    for finding in findings:
        if _is_replaced(finding):
            for place in dict.fromkeys(place.place for place in finding.places):
                _remove(tree, place)
        tree = merged(tree, yaml.load(finding.yaml, LOADER))
    return dump(tree)


def pasted_manifest(text: str, findings: Sequence[Finding]) -> str:
    """The manifest with all fixes, each part in the object that its first line names."""
    documents = list(yaml.load_all(text, LOADER))
    (dgd,) = [d for d in documents if d["kind"] == "DynamoGraphDeployment"]
    for part in (part for f in findings for part in f.yaml.split("# in ")[1:]):
        where, _, written = part.partition("\n")
        fix = yaml.load(written, LOADER)
        kind, _, name = where.partition(" ")
        if where == "the deployment":
            _paste(dgd, fix)
        elif kind == "component":
            _paste(_components(dgd)[name], fix)
        else:
            _, name, key = where.split("/")
            (config,) = [d for d in documents if d["metadata"]["name"] == name]
            config["data"][key] = dump(merged(yaml.load(config["data"][key], LOADER), fix))
    return dump(*documents)


def is_pasteable(findings: Sequence[Finding], *, is_graph: bool) -> bool:
    """Whether the fixes are YAML. In a manifest, the setting that a fix replaces is removed by
    hand."""
    has_yaml = bool(findings) and all(finding.yaml for finding in findings)
    return has_yaml and (
        is_graph or not any(f.replaces and ".args[" not in f.place for f in findings)
    )


def merged(value: Any, fix: Any) -> Any:
    """``value`` with the fix pasted in: mappings merge, null removes, a flag replaces the same
    flag or is added, and an item with a name replaces the item of the same name."""
    if isinstance(value, dict) and isinstance(fix, dict) and fix:
        both = {**value, **{k: merged(value.get(k), v) for k, v in fix.items()}}
        return {key: item for key, item in both.items() if item is not None}
    if isinstance(value, list) and isinstance(fix, list) and str(fix[0]).startswith("--"):
        return _with_flags(value, fix)
    if isinstance(value, list) and isinstance(fix, list) and _is_named(value + fix):
        both = {item["name"]: item for item in value}
        return list({**both, **{i["name"]: merged(both.get(i["name"]), i) for i in fix}}.values())
    return fix


def _with_flags(arguments: list[Any], fix: list[Any]) -> list[Any]:
    if fix[0] not in arguments or len(fix) > 2:
        return arguments + fix
    at = arguments.index(fix[0])
    return [*arguments[:at], *fix, *arguments[at + _length(arguments, at) :]]


def _length(arguments: Sequence[Any], at: int) -> int:
    """Number of items of the flag at an index: with its value, if it has one."""
    return 1 if str([*arguments, "--"][at + 1]).startswith("--") else 2


def _is_named(items: Sequence[Any]) -> bool:
    return all(isinstance(item, dict) and "name" in item for item in items)


def _is_replaced(finding: Finding) -> bool:
    """A fix that replaces an existing setting: another key, or the same flag."""
    return finding.replaces is not None or ".args[" in finding.place


def _remove(value: Any, place: str) -> None:
    """Remove the value at a place of the graph; in arguments, the flag with its value."""
    *above, last = place.split(".")
    for step in above:
        value = value[step]
    key, is_list, index = last.partition("[")
    if is_list:
        at = int(index.rstrip("]"))
        del value[key][at : at + _length(value[key], at)]
    else:
        value.pop(key)


def _paste(value: dict[str, Any], fix: dict[str, Any]) -> None:
    changed = merged(value, fix)
    value.clear()
    value.update(changed)


def _components(dgd: dict[str, Any]) -> dict[str, dict[str, Any]]:
    spec = dgd["spec"]
    return spec.get("services") or {c["name"]: c for c in spec["components"]}
