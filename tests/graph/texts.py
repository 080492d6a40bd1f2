"""Graphs and shorthands that the tests of penstock.graph share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from penstock.errors import GraphError, Problem
from penstock.graph.load import parse_graph

HEAD = "model: {id: openai/gpt-oss-20b}\nengine: {kind: trtllm}\n"
SMALL = HEAD + "worker: {}\n"


def problems_of(text: str, sets: Sequence[str] = (), source: str = "graph.yaml") -> list[Problem]:
    """The problems of a graph; none if it loads."""
    try:
        parse_graph(text, source, sets)
    except GraphError as error:
        return list(error.problems)
    return []


def the_problem(text: str, sets: Sequence[str] = ()) -> Problem:
    """The one problem of a graph."""
    (problem,) = problems_of(text, sets)
    return problem


def values(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Nested values as YAML holds them, with the given leaves."""
    keys = st.text("ab.,=[]{}\\ -1é", min_size=1, max_size=6)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=8,
    )
