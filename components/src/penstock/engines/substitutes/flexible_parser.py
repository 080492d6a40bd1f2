"""vLLM's command-line syntax, from `vllm/utils/argparse_utils.py` of 0.31.0.

Underscores for dashes, `--flag.sub.key value`, `--flag.list+ a,b`, `-O3`, `--config file.yaml`.
Order matters: the file's flags come first, so that the command line takes precedence.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from penstock.strict_yaml.loader import load

MULTIPLIERS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
BINARY_MULTIPLIERS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def human_int(text: str) -> int:
    """`1k` is 1000, `1K` is 1024, `25.6k` is 25600."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", text.strip())
    if match is None:
        return int(text)
    number, suffix = match.groups()
    if suffix in MULTIPLIERS:
        return int(float(number) * MULTIPLIERS[suffix])
    if "." in number:
        raise argparse.ArgumentTypeError(
            f"Decimals are not allowed with binary suffixes like {suffix}"
        )
    return int(number) * BINARY_MULTIPLIERS[suffix]


class FlexibleArgumentParser(argparse.ArgumentParser):
    def parse_args(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        namespace: argparse.Namespace | None = None,
    ) -> argparse.Namespace:
        given = list(sys.argv[1:] if args is None else args)
        if "--config" in given:
            given = self._with_config_file(given)
        return super().parse_args(_gather_dotted(_normal_spelling(given)), namespace)

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
        return [word for key, value in config.items() for word in self._words(f"--{key}", value)]

    def _config_error(self, path: str, what: str) -> NoReturn:
        self.error(f"argument --config: the config file {path} {what}")

    def _words(self, flag: str, value: Any) -> list[str]:
        if value is True:
            return [flag]
        if value is False:
            negated = "--no-" + flag.removeprefix("--")
            return [negated] if negated in self._option_string_actions else []
        if isinstance(value, list):
            return [flag, *map(str, value)] if value else []
        return [flag, json.dumps(value) if isinstance(value, dict) else str(value)]


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
    flag, equals, value = arg.partition("=")
    head, dot, keys = flag.partition(".")
    return head.replace("_", "-") + dot + keys + equals + value


def _gather_dotted(args: list[str]) -> list[str]:
    """`--a.b.c 1 --a.b.d 2` becomes `--a '{"b": {"c": 1, "d": 2}}'`, at the end of the line."""
    plain: list[str] = []
    gathered: dict[str, dict[str, Any]] = {}
    words = iter(args)
    for word in words:
        flag, equals, value = word.partition("=")
        if not (flag.startswith("-") and "." in flag) or _is_number(flag):
            plain.append(word)
            continue
        if not equals:
            value = next(words, "")
        name, *keys = flag.removesuffix("+").split(".")
        parsed = value.split(",") if flag.endswith("+") else _json_or_text(value)
        _merge(gathered.setdefault(name, {}), _nest(keys, parsed))
    return plain + [word for name, tree in gathered.items() for word in (name, json.dumps(tree))]


def _is_number(text: str) -> bool:
    # `--swap-space -0.5`: a value, where vLLM itself would take it for a dotted flag and fail
    return re.fullmatch(r"-\d*\.\d+", text) is not None


def _json_or_text(text: str) -> Any:
    readers: tuple[Callable[[str], Any], ...] = (json.loads, human_int)
    for reader in readers:
        try:
            return reader(text)
        except (ValueError, argparse.ArgumentTypeError):
            continue
    return text


def _nest(keys: list[str], value: Any) -> dict[str, Any]:
    for key in reversed(keys):
        value = {key: value}
    nested: dict[str, Any] = value
    return nested


def _merge(tree: dict[str, Any], update: dict[str, Any]) -> None:
    for key, value in update.items():
        if isinstance(value, dict) and isinstance(tree.get(key), dict):
            _merge(tree[key], value)
        elif isinstance(value, list) and isinstance(tree.get(key), list):
            tree[key] += value
        else:
            tree[key] = value
