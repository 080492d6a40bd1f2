"""The table of valid values never accepts what the models of TensorRT-LLM's file reject."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.engines.llm_args import value_table
from penstock.engines.llm_args.surely_valid import is_surely_valid
from penstock.engines.llm_args.validate import validate
from penstock.manifests.deployment import KnownConfig
from penstock.manifests.source import open_source

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
TABLE = value_table.table()
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 64, 65, 10**30, 0.0, 0.5, 1.0, -0.5, 33.0),
    *(math.nan, math.inf, -math.inf),
    *("", " ", "64", "0.5", "true", "null", "text", "größe", "\ud800"),
    *([], [0], [1, 2], [-1, 128], ["text"], [None], [0.5, 0.5], [[1]], (1,)),
    *({}, {"a": 1}, {"a": "b"}, {"a": None}, {"a": "\ud800"}, {1: [2]}, {1: 2}, {"\ud800": 1}),
)  # fmt: skip
Node = Mapping[str, Any]


def choices(node: object) -> Iterator[str]:
    """Every name that the table lists, in both cases."""
    if isinstance(node, dict):
        for name in node.get("of", ()):
            yield from (name, name.upper(), name.lower())
        for inner in node.values():
            yield from choices(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from choices(inner)


def sections(node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Each section that the table can accept, with its path."""
    if node["type"] == "section":
        yield path, node
        for key, inner in node["keys"].items():
            yield from sections(inner, (*path, key))
    for option in node.get("options", ()):
        yield from sections(option, path)


def nested(path: tuple[str, ...], values: dict[str, Any]) -> dict[str, Any]:
    for key in reversed(path):
        values = {key: values}
    return values


def files() -> Iterator[dict[str, Any]]:
    """Each key of each section with each value."""
    values = (*VALUES, *dict.fromkeys(choices(TABLE)))
    for path, node in sections(TABLE["file"]):
        for key in (*node["keys"], "unknown"):
            yield from (nested(path, {key: value}) for value in values)
    for kind, node in TABLE["speculative_config"].items():
        needed = {"decoding_type": kind, "max_draft_len": 3, "speculative_model": "m"}
        given = {k: v for k, v in needed.items() if k in node["keys"]}
        for path, inner in sections(node, ("speculative_config",)):
            here = given if path == ("speculative_config",) else {}
            for key in (*inner["keys"], "unknown"):
                yield from (nested(path, {**here, key: value}) for value in VALUES)
            yield nested(path, {k: v for k, v in here.items() if k == "decoding_type"})


@pytest.mark.slow
def test_every_value_that_the_table_accepts_is_valid() -> None:
    accepted = [values for values in files() if is_surely_valid(values)]
    assert len(accepted) > 1000
    assert [values for values in accepted if validate(values)] == []


def test_every_combination_that_the_table_accepts_is_valid() -> None:
    draw = random.Random(7)
    single = [values for values in files() if is_surely_valid(values)]
    combined: list[dict[str, Any]] = []
    for _ in range(3000):
        values: dict[str, Any] = {}
        for one in draw.sample(single, 6):
            for key, value in one.items():
                both = isinstance(value, dict) and isinstance(values.get(key), dict)
                values[key] = {**values[key], **value} if both else value
        combined.append(values)
    accepted = [values for values in combined if is_surely_valid(values)]
    assert len(accepted) > 1000
    assert [values for values in accepted if validate(values)] == []


@pytest.mark.parametrize(
    "graph", [p for p in sorted(GRAPHS.glob("*.yaml")) if "kind: trtllm" in p.read_text()]
)  # fmt: skip
def test_the_engine_files_of_the_shipped_graphs_are_decided_by_the_table(graph: Path) -> None:
    configs = [c.engine_config for c in open_source(graph).deployment.components]
    known = [config.values for config in configs if isinstance(config, KnownConfig)]
    assert known
    assert all(map(is_surely_valid, known))


def test_a_key_without_which_a_validator_finds_nothing_is_left_to_it() -> None:
    for kind in TABLE["speculative_config"]:
        decided = {"decoding_type": kind, "max_draft_len": 3, "speculative_model": "m"}
        assert not is_surely_valid(
            {"speculative_config": {**decided, "draft_len_schedule": {1: 2}}}
        )


def test_a_validator_that_the_table_does_not_know_leaves_its_value_undecided() -> None:
    def of_a_test(value: object) -> object:
        return value

    schema = {"type": "function-after", "schema": {"type": "int"}}
    node = value_table._node({**schema, "function": {"function": of_a_test}})
    assert node == value_table.UNDECIDED


def test_a_limit_that_the_table_cannot_express_stops_the_generator() -> None:
    with pytest.raises(ValueError, match="multiple_of"):
        value_table._node({"type": "int", "multiple_of": 2})
