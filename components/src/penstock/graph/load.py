"""Load a graph YAML: a LoadedGraph, or a GraphError with every problem of the file.

`load_graph` reads the file; `parse_graph` is pure. Every verb that takes a graph starts here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from pydantic import ValidationError

from penstock.errors import GraphError, Problem, ProblemKind
from penstock.graph.explain import Explanations
from penstock.graph.foreign import require_graph_keys, require_no_manifest
from penstock.graph.model import Graph
from penstock.graph.overrides import FILE as SET_FILE
from penstock.graph.overrides import apply_sets, with_decimals
from penstock.graph.renamed_keys import DeprecatedKey, Renamed, as_written, rename_keys, warn_of
from penstock.graph.text_file import read_text_file
from penstock.helm import HelmError, parse_values
from penstock.strict_yaml.document import Document, read_document
from penstock.strict_yaml.kind import DocumentKind
from penstock.strict_yaml.places import Node, Places, looks_secret, place_of, texts_by_place
from penstock.strict_yaml.problems import field_problems, located, shown

# Helm's limit for a release name. Kubernetes allows 63; the rest is for suffixes.
LONGEST_NAME = 53
GRAPH = DocumentKind(
    name="a graph",
    example="the output of `penstock init`, or of `penstock init --example quickstart`",
    is_read_by_helm=True,
    reads_last="Helm would use",
    is_small=True,
    sharing="Put values that all pools share under `engine`, `env` or `pod`.",
)


@dataclass(frozen=True, kw_only=True)
class GraphDraft:
    """A graph file before the model validates it."""

    text: str
    source: str
    # With every --set applied.
    renamed: Renamed
    # What is wrong so far: the YAML itself, the file's name, a --set.
    problems: tuple[Problem, ...]
    node: Node


@dataclass(frozen=True, kw_only=True)
class LoadedGraph:
    """A valid graph, with the position of each value in its file."""

    graph: Graph
    # What Helm is given: every --set applied, renamed keys under their new names, no defaults.
    values: Mapping[str, Any]
    places: Places
    source: str
    text: str
    # The file's stem, which names the Helm release and the DynamoGraphDeployment.
    name: str
    deprecations: tuple[DeprecatedKey, ...] = ()


def load_graph(path: Path, sets: Sequence[str] = ()) -> LoadedGraph:
    """Read and check a graph file, and warn of deprecated keys.

    InputError if the file cannot be read, GraphError if the graph is invalid.
    """
    loaded = parse_graph(read_text_file(path), str(path), sets)
    warn_of(loaded.deprecations)
    return loaded


def parse_graph(text: str, source: str, sets: Sequence[str] = ()) -> LoadedGraph:
    """Check the text of a graph; ``source`` is its file, which messages and the name use."""
    return load_draft(read_draft(text, source, sets))


def read_draft(text: str, source: str, sets: Sequence[str] = ()) -> GraphDraft:
    """Read the values of a graph; GraphError for a text that has none: a syntax error, another
    kind of file."""
    require_no_manifest(text, source)
    document = read_document(text, source, GRAPH)
    require_graph_keys(document, Graph.model_fields, source)
    problems = [*name_problems(source), *document.problems]
    # Of a text that the strict reader refuses, Helm would only repeat the problems.
    problems += [] if document.problems else _helm_problems(document, text, source)
    overridden = apply_sets(document.values, sets)
    problems += overridden.problems
    places = Places(positions=document.positions, sets=overridden.sets)
    values = with_decimals(overridden.values, overridden.sets, Graph)
    renamed = rename_keys(values, places, source, SET_FILE)
    problems += renamed.problems
    return GraphDraft(
        text=text, source=source, renamed=renamed, problems=tuple(problems), node=document.node
    )


def load_draft(draft: GraphDraft, name: str | None = None) -> LoadedGraph:
    """The typed graph; GraphError with every problem of the draft and of the model.

    ``name``: of the deployment, if it is not the file's stem.
    """
    problems = list(draft.problems)
    renamed = draft.renamed
    graph = _validated(draft, problems)
    if problems or graph is None:
        # In the order of the file, with those of the command line at the end.
        raise GraphError(*sorted(problems, key=_order))
    return LoadedGraph(
        graph=graph,
        values=renamed.values,
        places=renamed.places,
        source=draft.source,
        text=draft.text,
        name=name or PurePath(draft.source).stem,
        deprecations=renamed.deprecations,
    )


def _order(problem: Problem) -> tuple[bool, int, str]:
    return problem.file == SET_FILE, problem.line or 0, problem.place


def _validated(draft: GraphDraft, problems: list[Problem]) -> Graph | None:
    """The typed graph; adds the model's errors that are not reported yet to ``problems``."""
    renamed = draft.renamed
    places = renamed.places
    try:
        return Graph.model_validate(renamed.values)
    except ValidationError as error:
        texts = texts_by_place(draft.node)
        field_errors = field_problems(error, Graph, Explanations(places))
        for problem in located(field_errors, problems, places, draft.source):
            overridden = places.set_of(problem.place) is not None
            written = as_written(problem.place, renamed.deprecations)
            placed = _of_a_set(problem) if overridden else _as_text(problem, texts.get(written))
            problems.append(replace(placed, place=written))
    return None


def _as_text(problem: Problem, text: str | None) -> Problem:
    """The problem with the text that its author wrote, where quotes are the fix: 1.10, not 1.1."""
    if problem.kind is not ProblemKind.QUOTING or text is None or looks_secret(problem.place):
        return problem
    return replace(problem, fix=f"Quote it: {json.dumps(text, ensure_ascii=False)}")


def _of_a_set(problem: Problem) -> Problem:
    """The problem of a value from --set, for which quotes in YAML are no fix."""
    fix = problem.fix
    if problem.kind is ProblemKind.QUOTING:
        fix = "Write this value in the file: --set derives the type from the text."
    if problem.kind is ProblemKind.SECTION:
        fix = f"Set its keys one by one: --set {problem.place}.KEY=VALUE. Braces make a list."
    return replace(problem, file=SET_FILE, line=None, column=None, fix=fix)


def name_problems(source: str) -> list[Problem]:
    """The problem of a file whose stem is not a valid release name."""
    name = PurePath(source).stem
    if re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) and len(name) <= LONGEST_NAME:
        return []
    suffix = PurePath(source).suffix or ".yaml"
    return [
        Problem(
            file=source,
            message=f"{name!r} ({len(name)} characters) is not a valid deployment name, which has "
            f"at most {LONGEST_NAME} lower-case letters, digits and '-'",
            fix=f"Rename the file, for example to `{valid_name(name)}{suffix}`.",
        )
    ]


def valid_name(name: str) -> str:
    """A similar name that Helm and Kubernetes accept."""
    name = re.sub(r"[^a-z0-9]+", "-", name.lower())
    return name.strip("-")[:LONGEST_NAME].strip("-") or "graph"


def _helm_problems(document: Document, text: str, source: str) -> list[Problem]:
    """Values that Helm reads differently, where the strict reader missed an ambiguity."""
    try:
        helm_values = parse_values(text)
    except HelmError as error:
        return [Problem(file=source, message=f"Helm cannot read the file: {error}")]
    places = Places(positions=document.positions)
    return [
        places.located(
            Problem(
                file=source,
                place=place,
                message=f"Helm reads {helm}, penstock reads {ours}",
                fix="Write the value unambiguously, and quote it if it is a string.",
            )
        )
        for place, ours, helm in _differences(document.values, helm_values, ())
    ]


def _differences(
    ours: Any, theirs: Any, path: tuple[str | int, ...]
) -> Iterator[tuple[str, str, str]]:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping) and set(ours) == set(theirs):
        for key in ours:
            yield from _differences(ours[key], theirs[key], (*path, key))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, item in enumerate(ours):
            yield from _differences(item, theirs[index], (*path, index))
    elif not same(ours, theirs):
        yield place_of(path), shown(path, ours), shown(path, theirs)


def same(ours: Any, theirs: Any) -> bool:
    """Equal in value and type, except that 1.0 equals 1 as Helm has one number type."""
    if isinstance(ours, bool) or isinstance(theirs, bool):
        return ours is theirs
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        return ours == theirs
    return type(ours) is type(theirs) and bool(ours == theirs)
