"""Whether TensorRT-LLM's YAML is valid beyond doubt, decided without pydantic.

`checks.rules.engine_config` asks first: pydantic and the models take longer to import than a
manifest takes to check. The answer "no" means only that `validate` must decide and word the errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Any

# A node of the table, which `value_table` generates from the models.
Node = Mapping[str, Any]


@cache
def _table() -> Mapping[str, Node]:
    """`file`: the node of the whole file; `speculative_config`: a node per decoding type."""
    text = resources.files("penstock.engines.data").joinpath("llm_args.json").read_text("utf-8")
    return dict(json.loads(text))


def is_surely_valid(values: Mapping[str, Any]) -> bool:
    """True: `validate` finds nothing. False: it may find something, or accept what it converts."""
    speculative = values.get("speculative_config")
    if speculative is not None:
        kind = speculative.get("decoding_type") if isinstance(speculative, dict) else None
        node = _table()["speculative_config"].get(kind) if isinstance(kind, str) else None
        if node is None or not _accepts(node, speculative):
            return False
    return _accepts(_table()["file"], values)


def _accepts(node: Node, value: object) -> bool:
    if value is None:
        return bool(node.get("null"))
    return CHECKS[node["type"]](node, value)


def _is_in_range(node: Node, value: Any) -> bool:
    # NaN is in no range: pydantic rejects it where there is a limit.
    return (
        ("ge" not in node or value >= node["ge"])
        and ("gt" not in node or value > node["gt"])
        and ("le" not in node or value <= node["le"])
    )


def _is_text(value: object) -> bool:
    # pydantic rejects lone surrogates; other texts outside ASCII are rare.
    return isinstance(value, str) and value.isascii()


def _has_accepted_items(node: Node, value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= node.get("min_length", 0)
        and all(_accepts(node["items"], item) for item in value)
    )


def _has_accepted_values(node: Node, value: object) -> bool:
    return isinstance(value, dict) and all(
        _is_text(key) and _accepts(node["values"], item) for key, item in value.items()
    )


def _is_section(node: Node, value: object) -> bool:
    keys = node["keys"]
    return (
        isinstance(value, dict)
        and all(key in value for key in node["required"])
        and all(key in keys and _accepts(keys[key], item) for key, item in value.items())
    )


# Exact types: pydantic converts some values of others, which are left to it. `true` is no int.
CHECKS: Mapping[str, Callable[[Node, Any], bool]] = {
    "any": lambda _, value: True,
    "bool": lambda _, value: isinstance(value, bool),
    "int": lambda node, value: type(value) is int and _is_in_range(node, value),
    "float": lambda node, value: type(value) in (int, float) and _is_in_range(node, value),
    "str": lambda node, value: _is_text(value) and len(value) >= node.get("min_length", 0),
    "choice": lambda node, value: isinstance(value, str) and value in node["of"],
    "list": _has_accepted_items,
    "dict": _has_accepted_values,
    "section": _is_section,
    "one of": lambda node, value: any(_accepts(option, value) for option in node["options"]),
    "undecided": lambda _, value: False,
}


# The texts that pydantic converts to a boolean, in any case (pydantic_core, `str_as_bool`).
BOOLEANS = {
    **dict.fromkeys(("1", "t", "true", "y", "yes", "on"), True),
    **dict.fromkeys(("0", "f", "false", "n", "no", "off"), False),
}


def converted(key: str, value: Any) -> Any:
    """The value of a dotted key. Booleans that are written as text are converted: 'yes' is true."""
    node = _table()["file"]
    for step in key.split("."):
        node = node.get("keys", {}).get(step, {})
    return _with_booleans(node, value)


def file_keys() -> Mapping[str, Node]:
    """The keys at the top of the file."""
    return dict(_table()["file"]["keys"])


def _with_booleans(node: Node, value: Any) -> Any:
    if isinstance(value, Mapping):
        keys = node.get("keys", {})
        return {key: _with_booleans(keys.get(key, {}), item) for key, item in value.items()}
    is_boolean = node.get("type") == "bool" or any(
        option["type"] == "bool" and not _accepts(node, value) for option in node.get("options", ())
    )
    return BOOLEANS.get(str(value).lower(), value) if is_boolean else value
