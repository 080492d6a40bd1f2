"""Generates `engines/data/llm_args.json`, by which `surely_valid` decides, from the models.

`python -m penstock.engines.llm_args.value_table [--check]`; `make generate` runs it, `make fresh`
runs `--check`. The table may accept less than the models, never more: a validator in Python that
is not listed here makes its value `undecided`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.engines.llm_args import limits, sections
from penstock.engines.llm_args.args import TorchLlmArgs
from penstock.engines.llm_args.base import EngineArgs
from penstock.engines.llm_args.speculation import DECODING

TABLE = Path(__file__).parents[1] / "data" / "llm_args.json"
LIMITS = ("ge", "gt", "le")
Node = dict[str, Any]

UNDECIDED: Node = {"type": "undecided"}
# Validators of a value → values that they all accept, from the node without the validator.
OF_A_VALUE: Mapping[object, Callable[[Node], Node]] = {
    limits._not_null: lambda node: {k: v for k, v in node.items() if k != "null"},
    limits._load_format: lambda _: {"type": "choice", "of": [*limits.LOAD_FORMATS]},
    limits._kv_dtype: lambda _: {
        "type": "choice",
        "of": [*limits.KV_DTYPES, *limits.TORCH_DTYPES],
    },
    limits._text_of: lambda node: node,
    limits._not_zero: lambda node: {**node, "ge": 1},
}
# Validators of a section → the keys without which they find nothing.
OF_A_SECTION: Mapping[str, Sequence[str]] = {
    "has_keys_of_its_mode": sections.ENCODE_KEYS,
    "has_no_longer_draft": ("draft_len_schedule",),
    "has_a_possible_tree": ("use_dynamic_tree",),
    "has_a_possible_pool": ("enable_global_pool", "global_pool_size"),
    "has_blocks_of_the_draft_length": ("block_size",),
}


def table() -> Node:
    return {
        "file": _of_model(TorchLlmArgs),
        "speculative_config": {kind: _of_model(model) for kind, model in DECODING.items()},
    }


def _of_model(model: type[EngineArgs]) -> Node:
    model.model_rebuild()
    return _node(model.__pydantic_core_schema__)


def _node(schema: Mapping[str, Any]) -> Node:
    """The node for one of pydantic-core's schemas; KeyError for a kind that is not known here."""
    return NODES[schema["type"]](schema)


def _number(schema: Mapping[str, Any]) -> Node:
    _require_known(schema, (*LIMITS, "strict"))
    return {"type": schema["type"], **_chosen(schema, LIMITS)}


def _text(schema: Mapping[str, Any]) -> Node:
    _require_known(schema, ("min_length",))
    return {"type": "str", **_chosen(schema, ("min_length",))}


def _literal(schema: Mapping[str, Any]) -> Node:
    if not all(isinstance(choice, str) for choice in schema["expected"]):
        return UNDECIDED
    return {"type": "choice", "of": [*schema["expected"]]}


def _list(schema: Mapping[str, Any]) -> Node:
    _require_known(schema, ("items_schema", "min_length"))
    items = _node(schema["items_schema"])
    return {"type": "list", "items": items, **_chosen(schema, ("min_length",))}


def _dict(schema: Mapping[str, Any]) -> Node:
    _require_known(schema, ("keys_schema", "values_schema"))
    if schema["keys_schema"] != {"type": "str"}:
        return UNDECIDED
    return {"type": "dict", "values": _node(schema["values_schema"])}


def _section(schema: Mapping[str, Any]) -> Node:
    """A key with several names has the first: two at once are an error."""
    keys, required = {}, []
    for name, field in schema["schema"]["fields"].items():
        first = field["validation_alias"][0][0] if "validation_alias" in field else name
        keys[first] = _node(field["schema"])
        required += [first] if field["schema"]["type"] != "default" else []
    return {"type": "section", "keys": keys, "required": required}


def _validated(schema: Mapping[str, Any]) -> Node:
    node, function = _node(schema["schema"]), schema["function"]["function"]
    if narrow := OF_A_VALUE.get(function):
        return narrow(node)
    if dropped := OF_A_SECTION.get(function.__name__):
        return {**node, "keys": {k: v for k, v in node["keys"].items() if k not in dropped}}
    return UNDECIDED


NODES: Mapping[str, Callable[[Mapping[str, Any]], Node]] = {
    "any": lambda _: {"type": "any", "null": True},
    "bool": lambda _: {"type": "bool"},
    "int": _number,
    "float": _number,
    "str": _text,
    "literal": _literal,
    "list": _list,
    "dict": _dict,
    "model": _section,
    "default": lambda schema: _node(schema["schema"]),
    "nullable": lambda schema: {**_node(schema["schema"]), "null": True},
    "union": lambda schema: {"type": "one of", "options": [*map(_node, schema["choices"])]},
    "function-before": _validated,
    "function-after": _validated,
}


def _require_known(schema: Mapping[str, Any], known: Iterable[str]) -> None:
    """A limit that the table cannot express must not be lost."""
    if unknown := schema.keys() - {"type", "metadata", "ref", *known}:
        raise ValueError(f"the table cannot express {sorted(unknown)} of {schema['type']}")


def _chosen(schema: Mapping[str, Any], names: Iterable[str]) -> Node:
    return {name: schema[name] for name in names if name in schema}


def text() -> str:
    return json.dumps(table(), separators=(",", ":")) + "\n"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.engines.llm_args.value_table", description=__doc__
    )
    parser.add_argument("--check", action="store_true", help="exit 1 if it is stale; write nothing")
    made = text()
    if not parser.parse_args(argv).check:
        TABLE.write_text(made, "utf-8")
    elif not TABLE.exists() or TABLE.read_text("utf-8") != made:
        print(f"{TABLE}: stale. Fix: Run `make generate`.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
