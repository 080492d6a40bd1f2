"""Graph values → Kubernetes manifests, by the chart that `helm install` uses.

`source.render_graph` does the same for a file. Helm's messages are read here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from penstock.errors import ChartError, Problem
from penstock.files import shipped
from penstock.helm import HelmError, HelmErrorKind, render_templates
from penstock.strict_yaml.loader import SafeLoader

SCHEMA_LINE = re.compile(r"^\s*- at '(?P<pointer>.*?)': (?P<message>.*)$")
TEMPLATE_LINE = re.compile(r"\(?(?P<file>[\w./-]+\.(?:yaml|tpl|txt)):(?P<line>\d+)(?::\d+)?\)?")
REFUSAL = re.compile(r"penstock: (?P<place>.*?): (?P<message>.*)\. Fix: (?P<fix>.*)$")
# A wrong type of a value in `config` or `pod`, which are free, has other messages.
BUG = re.compile(r"nil pointer|execution error at|missing value for|not defined|unexpected [{<\"]")
QUOTED = re.compile(r"'([^']*)'")
RELEASE_NAME = "Release.Name"  # the place of the chart's problems with the name of the release


class ChartBugError(Exception):
    """A bug of the chart, not of the graph."""


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """What `kubectl apply` would get."""

    # YAML documents.
    text: str
    # The same documents, parsed.
    objects: tuple[Mapping[str, Any], ...]


def render(
    values: Mapping[str, object],
    *,
    name: str,
    namespace: str = "default",
    chart: Path | None = None,
) -> Rendered:
    """The manifests of the graph ``values`` as release ``name``; equal values give equal bytes.

    Raises ChartError with every problem that the chart's schema finds, or else its templates.
    """
    text = "".join(
        f"---\n# Source: {template}\n{document.strip()}\n"
        for template, document in _documents(_templates(values, name, namespace, chart))
    )
    return Rendered(text=text, objects=tuple(yaml.load_all(text, SafeLoader)))


def chart_path() -> Path:
    """The chart of the installed wheel, or else of the checkout."""
    return shipped("chart", "helm/penstock")


def _templates(
    values: Mapping[str, object], name: str, namespace: str, chart: Path | None
) -> dict[str, str]:
    """The text of each template by its path, including NOTES.txt."""
    path = chart or chart_path()
    try:
        return render_templates(path, values, name=name, namespace=namespace)
    except HelmError as error:
        raise ChartError(*_problems(error, name, path)) from error


def _problems(error: HelmError, name: str, chart: Path) -> list[Problem]:
    match error.kind:
        case HelmErrorKind.VALUES:
            return _schema_problems(str(error))
        case HelmErrorKind.TEMPLATE:
            return _template_problems(str(error))
        case HelmErrorKind.NAME:
            fix = "Use at most 53 lower-case letters, digits and dashes."
            return [
                Problem(
                    place="name", message=f"{name!r} is not a valid release name: {error}", fix=fix
                )
            ]
        case _:  # CHART; the others do not occur when rendering
            return [Problem(file=str(chart), message=str(error))]


def _documents(rendered: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(template, one YAML document) in the order of the paths, without those of `helm test`."""
    for template, text in sorted(rendered.items()):
        if template.endswith(".yaml") and "/templates/tests/" not in template:
            for document in re.split(r"^---$", text, flags=re.MULTILINE):
                if document.strip():
                    yield template, document


def _schema_problems(detail: str) -> list[Problem]:
    """One problem for each line of Helm's schema report, without its headings."""
    matches = [m for m in map(SCHEMA_LINE.match, detail.splitlines()) if m]
    problems = [
        problem
        for match in matches
        if not re.fullmatch(r"'\w+' failed", match["message"])
        for problem in _schema_problem(match["pointer"], match["message"])
    ]
    return problems or [Problem(message=detail.strip())]


def _schema_problem(pointer: str, message: str) -> list[Problem]:
    place = _dotted(pointer)
    names = QUOTED.findall(message)
    if message.startswith("additional properties"):
        return [
            Problem(place=_join(place, name), message="unknown key", fix="Remove or correct it.")
            for name in names
        ]
    if message.startswith("missing propert"):
        return [
            Problem(place=_join(place, name), message="required, but missing", fix=f"Add `{name}`.")
            for name in names
        ]
    return [Problem(place=place, message=message)]


def _template_problems(detail: str) -> list[Problem]:
    """The problems that the chart reports, one per line, or else Helm's last line. Raises
    ChartBugError for a failure that no value of a graph causes."""
    where = TEMPLATE_LINE.findall(detail)
    file, line = (where[-1][0], int(where[-1][1])) if where else ("", None)
    refusals = [m for m in map(REFUSAL.search, detail.splitlines()) if m]
    if refusals:
        return [
            Problem(file=file, line=line, place=m["place"], message=m["message"], fix=m["fix"])
            for m in refusals
        ]
    if BUG.search(detail):
        raise ChartBugError(detail.strip())
    return [Problem(file=file, line=line, message=detail.strip().splitlines()[-1].strip())]


def _dotted(pointer: str) -> str:
    """`/engine/args/0` as `engine.args[0]`, as the graph's loader writes places."""
    parts = [p.replace("~1", "/").replace("~0", "~") for p in pointer.split("/")[1:]]
    return "".join(f"[{p}]" if p.isdigit() else f".{p}" for p in parts).removeprefix(".")


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


CONTAINERS = ("containers", "initContainers")


def images(objects: Any) -> list[str]:
    """Each image once, sorted."""
    return sorted(set(_images(objects)))


def _images(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        for name in CONTAINERS:
            yield from (str(c["image"]) for c in node.get(name) or () if c.get("image"))
        node = node.values()
    elif not isinstance(node, list | tuple):
        return
    for inner in node:
        yield from _images(inner)
