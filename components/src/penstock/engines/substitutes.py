"""The parts of `tensorrt_llm` and `vllm` that Dynamo's own parsers import. vLLM's command line is
read as in `vllm/utils/argparse_utils.py` of 0.31.0, with the flags of `data/vllm_flags.json`.

Only `parse_child` installs them, in a process that serves nothing: they must never be importable
together with a real engine.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, NoReturn

from penstock.engines.flags import human_int, part_of_section, snake_case
from penstock.engines.flags import load as load_table
from penstock.strict_yaml.loader import load, load_json
from penstock.text.names import nearest

Substitutes = Mapping[str, Mapping[str, object]]
"""Module name → the names that it defines."""


@contextmanager
def substituted(modules: Substitutes) -> Iterator[None]:
    """Make ``modules`` importable inside the block; modules imported there keep them."""
    names = sorted({package for name in modules for package in _with_parents(name)})
    for name in names:
        module = ModuleType(name)
        module.__path__ = []  # a package, so that its children can be imported
        module.__dict__.update(modules.get(name, {}))
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)


def _with_parents(name: str) -> Iterator[str]:
    """`a`, `a.b` and `a.b.c` of `a.b.c`."""
    return accumulate(name.split("."), lambda parent, child: f"{parent}.{child}")


@dataclass(frozen=True)
class FieldDefault:
    """The one attribute of a pydantic field that Dynamo reads."""

    default: int | None


# rc29 no longer has `BuildConfig`: dynamo/trtllm/backend_args.py falls back to `BaseLlmArgs`. The
# values are TensorRT-LLM's (llmapi/llm_args.py, TorchLlmArgs).
class BaseLlmArgs:
    model_fields: ClassVar[dict[str, FieldDefault]] = {
        "max_batch_size": FieldDefault(2048),
        "max_num_tokens": FieldDefault(8192),
        "max_seq_len": FieldDefault(None),
        "max_beam_width": FieldDefault(1),
    }


TRTLLM: Substitutes = {
    "tensorrt_llm.llmapi": {},
    "tensorrt_llm.llmapi.llm_args": {"BaseLlmArgs": BaseLlmArgs},
}


# Packages that the configuration of Dynamo's planner imports but does not use: ai-dynamo 1.6.1 does
# not require scikit-learn, and the release of aisimulate-core is a placeholder.
PLANNER: Substitutes = {
    "sklearn.linear_model": {"LinearRegression": object},
    "aisimulate_core.sdk": {
        "ForwardPassPerfModelConfig": object,
        "RustForwardPassPerfModel": object,
    },
}


Converter = Callable[[str], Any]


class FlexibleArgumentParser(argparse.ArgumentParser):
    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        words = list(sys.argv[1:] if args is None else args)
        if "--config" in words:
            words = self._with_config_file(words)
        return super().parse_args(_gather_dotted(_normal_spelling(words)), namespace)

    def _with_config_file(self, args: list[str]) -> list[str]:
        at = args.index("--config")
        if args.count("--config") > 1:
            self.error("argument --config: more than one config file specified")
        if at == len(args) - 1:
            self.error("argument --config: expected one argument")
        from_file = self._config_flags(args[at + 1])
        return from_file + args[:at] + args[at + 2 :]

    def _config_flags(self, path: str) -> list[str]:
        if not path.endswith((".yaml", ".yml")):
            self._config_error(path, "must be of a yaml/yml type")
        with open(path) as file:
            config = load(file.read())
        if not isinstance(config, dict):
            self._config_error(path, "must hold a mapping of flags to values")
        return [word for key, entry in config.items() for word in self._words(f"--{key}", entry)]

    def _config_error(self, path: str, what: str) -> NoReturn:
        self.error(f"argument --config: the config file {path} {what}")

    def _words(self, flag: str, setting: Any) -> list[str]:
        if setting is True:
            return [flag]
        if setting is False:
            negated = "--no-" + flag.removeprefix("--")
            return [negated] if negated in self._option_string_actions else []
        if isinstance(setting, list):
            return [flag, *map(str, setting)] if setting else []
        return [flag, json.dumps(setting) if isinstance(setting, dict) else str(setting)]


def _normal_spelling(args: list[str]) -> list[str]:
    """Dashes in flag names (not behind the first dot, nor in values); `-O3` spelled out."""
    words: list[str] = []
    for at, arg in enumerate(args):
        following = args[at + 1] if at + 1 < len(args) else None
        if arg.startswith("--"):
            words.append(_dashed(arg))
        elif arg.startswith("-O") and arg != "-O":
            words += ["--optimization-level", arg[2:].removeprefix("=")]
        elif arg == "-O" and following in {"0", "1", "2", "3"}:
            words.append("--optimization-level")
        else:
            words.append(arg)
    return words


def _dashed(arg: str) -> str:
    flag, equals, text = arg.partition("=")
    head, dot, keys = flag.partition(".")
    return head.replace("_", "-") + dot + keys + equals + text


def _gather_dotted(args: list[str]) -> list[str]:
    """`--a.b.c 1 --a.b.d 2` becomes `--a '{"b": {"c": 1, "d": 2}}'`, at the end of the line."""
    plain: list[str] = []
    gathered: dict[str, dict[str, Any]] = {}
    words = iter(args)
    for word in words:
        flag, equals, text = word.partition("=")
        if not (flag.startswith("-") and "." in flag) or _is_number(flag):
            plain.append(word)
            continue
        if not equals:
            text = next(words, "")
        name, *keys = flag.removesuffix("+").split(".")
        parsed = text.split(",") if flag.endswith("+") else part_of_section(text)
        _merge(gathered.setdefault(name, {}), _nest(keys, parsed))
    return plain + [word for name, tree in gathered.items() for word in (name, json.dumps(tree))]


def _is_number(text: str) -> bool:
    # `--swap-space -0.5`: a value, where vLLM itself would take it for a dotted flag and fail
    return re.fullmatch(r"-\d*\.\d+", text) is not None


def _nest(keys: list[str], inner: Any) -> dict[str, Any]:
    for key in reversed(keys):
        inner = {key: inner}
    nested: dict[str, Any] = inner
    return nested


def _merge(tree: dict[str, Any], update: dict[str, Any]) -> None:
    for key, part in update.items():
        if isinstance(part, dict) and isinstance(tree.get(key), dict):
            _merge(tree[key], part)
        elif isinstance(part, list) and isinstance(tree.get(key), list):
            tree[key] += part
        else:
            tree[key] = part


class AsyncEngineArgs(SimpleNamespace):
    """vLLM's arguments as parsed; its own checks of model and device need the real one."""

    @staticmethod
    def add_cli_args(
        parser: argparse.ArgumentParser, async_args_only: bool = False
    ) -> argparse.ArgumentParser:
        for option in load_table("vllm_flags.json")["options"]:
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
    for key, setting in values.items():
        choices = fields[key].get("choices")
        if choices is not None and setting not in choices:
            raise argparse.ArgumentTypeError(f"{key}: {setting!r} is none of {choices}")
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
            r"\b\d+(?:\.\d+)?[kKmMgGtT]\b", lambda number: str(human_int(number[0])), parts[at]
        )
    return "".join(parts)


def _human_int_or_auto(text: str) -> int:
    return -1 if text.strip().lower() in ("-1", "auto") else human_int(text)


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
    "snake_case": snake_case,
}


class VllmConfig:
    """Named in annotations alone."""


class AsyncLLM:
    """Named in annotations alone."""


VLLM: Substitutes = {
    "vllm.config": {"VllmConfig": VllmConfig},
    "vllm.distributed.kv_events": {"KVEventsConfig": KVEventsConfig},
    "vllm.engine.arg_utils": {"AsyncEngineArgs": AsyncEngineArgs},
    "vllm.utils.argparse_utils": {"FlexibleArgumentParser": FlexibleArgumentParser},
    "vllm.v1.engine.async_llm": {"AsyncLLM": AsyncLLM},
}
