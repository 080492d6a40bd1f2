"""What `dynamo.vllm.args` takes from vLLM: its flags, from the table made by the real one.

The table (`data/vllm_flags.json`) knows each flag's spelling, arity, kind and choices; what vLLM
checks only when it builds its engine configuration (model, device, cross-field rules) is unknown.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

from penstock.engines.substitutes import Substitutes
from penstock.engines.substitutes.flexible_parser import FlexibleArgumentParser, human_int
from penstock.strict_yaml.loader import load_json
from penstock.text.names import nearest

Converter = Callable[[str], Any]


def flag_table() -> dict[str, Any]:
    """The generated table: `made_by` and `options`."""
    table: dict[str, Any] = json.loads(
        files("penstock.engines.data").joinpath("vllm_flags.json").read_text("utf-8")
    )
    return table


class AsyncEngineArgs(SimpleNamespace):
    """vLLM's arguments as parsed; its own checks of model and device need the real one."""

    @staticmethod
    def add_cli_args(
        parser: argparse.ArgumentParser, async_args_only: bool = False
    ) -> argparse.ArgumentParser:
        for option in flag_table()["options"]:
            _add_option(parser, option)
        return parser

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> AsyncEngineArgs:
        return cls(**vars(args))


@dataclass
class KVEventsConfig:
    """Dynamo names it in annotations alone; the values are `SimpleNamespace`s of `_object`."""


def _add_option(parser: argparse.ArgumentParser, option: Mapping[str, Any]) -> None:
    default = option.get("default")
    if default == argparse.SUPPRESS:
        default = argparse.SUPPRESS  # argparse compares by identity
    keywords: dict[str, Any] = {"dest": option["dest"], "default": default}
    if option["action"] == "negatable":
        keywords["action"] = argparse.BooleanOptionalAction
    elif option["action"] == "store_true":
        keywords["action"] = "store_true"
    else:
        keywords |= {key: option[key] for key in ("nargs", "const", "choices") if key in option}
        keywords["type"] = _converter(option)
    parser.add_argument(*option["flags"], **keywords)


def _converter(option: Mapping[str, Any]) -> Converter:
    if option["kind"] == "object":
        convert: Converter = partial(_object, fields=option["fields"])
    else:
        convert = CONVERTERS[option["kind"]]
    return _optional(convert) if option.get("optional") else convert


def _optional(convert: Converter) -> Converter:
    def converter(text: str) -> Any:
        return None if text in ("", "None") else convert(text)

    # argparse takes the name into its message: "invalid int value: 'abc'"
    converter.__name__ = getattr(convert, "__name__", "value")
    return converter


def _json(text: str) -> Any:
    try:
        return load_json(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON ({error})") from error


def _json_or_text(text: str) -> Any:
    return _json(text) if re.match(r"(?s)^\s*{.*}\s*$", text) else text


def _object(text: str, fields: Mapping[str, Mapping[str, Any]]) -> SimpleNamespace:
    """One of vLLM's config dataclasses: it forbids unknown keys and other choices."""
    values = _json(_without_suffixes(text))
    if not isinstance(values, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object")
    if unknown := sorted(set(values) - set(fields)):
        close = nearest(unknown[0], fields)
        hint = f"did you mean {close}?" if close else f"known: {', '.join(sorted(fields))}"
        raise argparse.ArgumentTypeError(f"unknown key {', '.join(unknown)} ({hint})")
    for key, value in values.items():
        choices = fields[key].get("choices")
        if choices is not None and value not in choices:
            raise argparse.ArgumentTypeError(f"{key}: {value!r} is none of {choices}")
    defaults = {name: field["default"] for name, field in fields.items()}
    merged = SimpleNamespace(**(defaults | values))
    if "kv_connector" in fields and merged.kv_connector and merged.kv_role is None:
        raise argparse.ArgumentTypeError("kv_connector needs a kv_role")
    return merged


def _without_suffixes(text: str) -> str:
    """Bare `80m` outside strings is a number to vLLM."""
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(
            r"\b\d+(?:\.\d+)?[kKmMgGtT]\b",
            lambda found: str(human_int(found[0])),
            parts[at],
        )
    return "".join(parts)


def _human_int_or_auto(text: str) -> int:
    return -1 if text.strip().lower() in ("-1", "auto") else human_int(text)


def _snake_case(text: str) -> str:
    return text.lower().replace("-", "_")


for _converter_of_int in (human_int, _human_int_or_auto):
    _converter_of_int.__name__ = "int"  # what argparse puts into "invalid int value: 'abc'"
CONVERTERS: Mapping[str, Converter] = {
    "str": str,
    "int": int,
    "float": float,
    "json": _json,
    "human_int": human_int,
    "human_int_or_auto": _human_int_or_auto,
    "json_or_str": _json_or_text,
    "snake_case": _snake_case,
}


class VllmConfig:
    """Named in annotations alone."""


class AsyncLLM:
    """Named in annotations alone."""


MODULES: Substitutes = {
    "vllm.config": {"VllmConfig": VllmConfig},
    "vllm.distributed.kv_events": {"KVEventsConfig": KVEventsConfig},
    "vllm.engine.arg_utils": {"AsyncEngineArgs": AsyncEngineArgs},
    "vllm.utils.argparse_utils": {"FlexibleArgumentParser": FlexibleArgumentParser},
    "vllm.v1.engine.async_llm": {"AsyncLLM": AsyncLLM},
}
