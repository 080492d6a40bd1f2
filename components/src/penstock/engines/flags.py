"""The flags of each Dynamo module, from tables that were generated from the real parsers.

`parsers` runs the parsers themselves, in about a second; these tables answer at once, for `check`.
The configuration files of vLLM and SGLang, in which each key is a flag, are read as flags.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from importlib.resources import files
from typing import Any

from penstock.manifests.deployment import Engine
from penstock.strict_yaml.loader import load_json

TABLES = {"dynamo.sglang": ("dynamo_sglang_flags.json", "sglang_flags.json")}
DYNAMO = "dynamo_flags.json"
# Flags that are handled before the parser runs, so that no table contains them.
CONFIG_FILE = {"flags": ["--config"], "action": "store", "kind": "str"}
BOTH = {
    "flags": ["--publish-events-and-metrics", "--no-publish-events-and-metrics"],
    "action": "switch",
    "deprecated": {
        "--publish-events-and-metrics": "for one release; use --publish-kv-events and "
        "--publish-metrics"
    },
}
# A flag that was split, and the second flag that it stands for; in the tables it is another
# spelling of the first one. The negative needs no second flag: --publish-metrics is off by default.
SPLIT = {"--publish-events-and-metrics": "--publish-metrics"}
NOT_IN_TABLES: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "dynamo.vllm": (CONFIG_FILE,),
    "dynamo.sglang": (CONFIG_FILE,),
    "dynamo.trtllm": (BOTH,),
}
# Choices that Dynamo adds to an engine's flag before it parses.
DYNAMO_ADDS = {("dynamo.sglang", "--load-format"): ("gms",)}


@dataclass(frozen=True)
class Removed:
    """A flag or variable that a release removed: what to use instead, or why it is not needed."""

    replacement: str = ""
    reason: str = ""

    def fix(self, name: str) -> str:
        if self.replacement:
            return f"Use {self.replacement} instead of {name}."
        return f"Remove {name}{f'; {self.reason}' if self.reason else ''}."


# Flags that a release removed.
REMOVED = {
    "--is-prefill-worker": Removed("--disaggregation-mode prefill"),
    "--is-decode-worker": Removed("--disaggregation-mode decode"),
    "--multimodal-worker": Removed("--enable-multimodal"),
    "--multimodal-processor": Removed("--enable-multimodal"),
    "--multimodal-encode-worker": Removed("--disaggregation-mode encode"),
    "--unified": Removed(),
    "--disaggregation-strategy": Removed(reason="prefill workers always compute the prompt first"),
    "--enable-router": Removed("--router-mode kv on the frontend"),
    "--disable-log-requests": Removed(reason="requests are logged only with --enable-log-requests"),
    "--swap-space": Removed(reason="vLLM no longer swaps"),
    "--num-scheduler-steps": Removed(reason="scheduling is asynchronous"),
    "--use-v2-block-manager": Removed(),
    "--guided-decoding-backend": Removed("--structured-outputs-config"),
    "--task": Removed("--runner and --convert"),
    "--enable-reasoning": Removed("--dyn-reasoning-parser"),
    "--cuda-graph-sizes": Removed("--max-cudagraph-capture-size"),
    "--max-seq-len-to-capture": Removed("--max-cudagraph-capture-size"),
    "--full-cuda-graph": Removed("--compilation-config"),
    "--rope-scaling": Removed("--hf-overrides"),
    "--rope-theta": Removed("--hf-overrides"),
    "--speculative-model": Removed("--speculative-config"),
    "--num-speculative-tokens": Removed("--speculative-config"),
    "--enable-ep-moe": Removed("--ep-size"),
    "--enable-deepep-moe": Removed("--moe-a2a-backend deepep"),
    "--cuda-graph-max-bs": Removed("--cuda-graph-max-bs-decode"),
    "--cuda-graph-bs": Removed("--cuda-graph-bs-decode"),
    "--enable-piecewise-cuda-graph": Removed(reason="it is the default"),
    "--router-snapshot-threshold": Removed(
        reason="it configured durable KV events of JetStream, which were removed"
    ),
    "--router-reset-states": Removed(
        reason="it configured durable KV events of JetStream, which were removed"
    ),
    "--lora-modules": Removed(reason="adapters are loaded by DynamoModel objects"),
}
# How messages name the types of a flag's value.
KINDS = {
    "int": "an integer",
    "float": "a number",
    "human_int": "a number such as 8192, 8k (8000) or 8K (8192)",
    "human_int_or_auto": "auto or a number such as 8192, 8k (8000) or 8K (8192)",
    "sglang_human_int": "a number such as 8192, 8k (8000) or 8Ki (8192)",
    "json": "JSON",
    "_json": "JSON",
    "value": "JSON",  # of vLLM's sections, such as --kv-transfer-config
    "_json_or_text": "JSON or text",
    "nullable_int": "an integer or none",
    "nullable_float": "a number or none",
}
# Spellings that a parser converts to one of a flag's choices.
READ_AS = {"<lambda>": {"aic": "ais"}}


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag of a module's parser."""

    # The first spelling, without dashes.
    name: str
    spellings: tuple[str, ...]
    # How many values it takes: none, one, maybe (none or one) or list.
    takes: str
    kind: str = "str"
    choices: tuple[str, ...] = ()
    # Spelling → deprecation notice.
    deprecated: Mapping[str, str] = field(default_factory=dict)
    # Deprecated spelling → current spelling.
    renamed: Mapping[str, str] = field(default_factory=dict)
    # Whether the text None is no value.
    is_optional: bool = False


@dataclass(frozen=True, kw_only=True)
class GivenFlag:
    """One flag of a command line."""

    spelling: str
    # None if the module has no flag of that spelling.
    flag: Flag | None
    # Its value as written; None without one.
    text: str | None = None
    # The path in a JSON value: `a`, `b` of `--flag.a.b`.
    inner: tuple[str, ...] = ()
    # Whether that path ends in `+`.
    is_list: bool = False
    # The other values of a flag that takes several.
    more: tuple[str, ...] = ()

    @property
    def value(self) -> Any:
        """As the parser reads it; the text itself if it is not valid."""
        if self.text is None:
            return not (self.spelling.startswith("--no-"))
        if self.inner:
            return self.text.split(",") if self.is_list else part_of_section(self.text)
        values = [self._read(text) for text in (self.text, *self.more)]
        return values if self.more else values[0]

    def _read(self, text: str) -> Any:
        kind = self.flag.kind if self.flag else "str"
        if kind == "str" and text[:1] == "{":
            kind = "json"  # SGLang accepts some JSON as text and parses it later
        try:
            return _READ.get(kind, str)(text)
        except ValueError:
            return text

    @property
    def choice(self) -> str:
        """The text as the parser compares it with the flag's choices."""
        kind, text = self.flag.kind if self.flag else "str", self.text or ""
        return snake_case(text) if kind == "snake_case" else READ_AS.get(kind, {}).get(text, text)

    @property
    def reads(self) -> bool:
        """Whether the text is a value of the flag's kind."""
        if self.text is None or self.flag is None or self.inner:
            return True
        if self.flag.is_optional and self.text in ("", "None"):
            return True
        try:
            _READ.get(self.flag.kind, str)(self.text)
        except ValueError:
            return False
        return True


THOUSANDS = (10**3, 10**6, 10**9, 10**12)
BINARY = (2**10, 2**20, 2**30, 2**40)
VLLM_UNITS = dict(zip("kmgtKMGT", (*THOUSANDS, *BINARY), strict=True))
SGLANG_UNITS = dict(
    zip(("k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"), (*THOUSANDS, *BINARY), strict=True)
)


class FractionError(argparse.ArgumentTypeError, ValueError):
    """The message is vLLM's."""


def human_int(text: str, units: Mapping[str, int] = VLLM_UNITS) -> int:
    """vLLM's 8k (8000), 1K (1024) and 2M, SGLang's 8k and 1Ki; only decimal units may have a
    fraction."""
    unit = text.strip().lstrip("0123456789.")
    number = text.strip().removesuffix(unit)
    if unit not in units:
        return int(text)
    if units[unit] % 10 == 0:
        return int(float(number) * units[unit])
    if "." in number:
        raise FractionError(f"Decimals are not allowed with binary suffixes like {unit}")
    return int(number) * units[unit]


def _nullable(text: str) -> int | float | None:
    return None if text.lower() in ("none", "null") else float(text) if "." in text else int(text)


def _optional_human_int(text: str) -> int | str:
    return text if text.lower() in ("auto", "-1") else human_int(text)


def part_of_section(text: str) -> Any:
    """A value of `--flag.key` as vLLM reads it: JSON, a number such as 8k, or text."""
    for read in (load_json, human_int):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def snake_case(text: str) -> str:
    return text.lower().replace("-", "_")


def _json_or_text(text: str) -> Any:
    return load_json(text) if text[:1] in "{[" else text


_READ: Mapping[str, Any] = {
    "int": int,
    "float": float,
    "_json": load_json,
    "json": load_json,
    "value": _json_or_text,
    "_json_or_text": _json_or_text,
    "human_int": human_int,
    "sglang_human_int": partial(human_int, units=SGLANG_UNITS),
    "human_int_or_auto": _optional_human_int,
    "nullable_int": _nullable,
    "nullable_float": _nullable,
    "snake_case": snake_case,
}


@dataclass(frozen=True, kw_only=True)
class FlagTable:
    """The flags of one module. Every parser accepts a unique prefix of a flag, such as `--tp`."""

    by_spelling: Mapping[str, Flag]
    # Whether `_` counts as `-`, and `--flag.key` sets a part of a JSON value: vLLM and SGLang.
    is_loose: bool

    def read(self, arguments: Sequence[str]) -> Iterator[GivenFlag]:
        """Each flag of ``arguments`` with its value, in order."""
        at = 0
        while at < len(arguments):
            word = arguments[at]
            at += 1
            if not word.startswith("-") or word == "-" or _is_number(word):
                continue
            flag, wants = self._read_word(word)
            if wants and at < len(arguments) and not self._is_flag(arguments[at]):
                flag = replace(flag, text=arguments[at])
                at += 1
                if flag.flag is not None and flag.flag.takes == "list" and not flag.inner:
                    end = next(
                        (n for n in range(at, len(arguments)) if self._is_flag(arguments[n])),
                        len(arguments),
                    )
                    flag = replace(flag, more=tuple(arguments[at:end]))
                    at = end
            yield flag

    def _read_word(self, word: str) -> tuple[GivenFlag, bool]:
        """The flag of a word, and whether its value is the next word."""
        spelling, has_value, text = word.partition("=")
        if self.is_loose and spelling.startswith("--"):
            spelling = spelling.replace("_", "-")
        inner: tuple[str, ...] = ()
        flag = self.find(spelling)
        is_list = False
        if flag is None and "." in spelling:
            head, *rest = word.partition("=")[0].split(".")
            head = head.replace("_", "-") if self.is_loose else head
            spelling = ".".join((head, *rest))  # inside of a value, `_` is not `-`
            is_list = rest[-1].endswith("+")
            flag, inner = self.by_spelling.get(head), (*rest[:-1], rest[-1].removesuffix("+"))
        wants = not has_value and (flag is None or flag.takes != "none")
        argument = text if has_value else None
        used = GivenFlag(spelling=spelling, flag=flag, text=argument, inner=inner, is_list=is_list)
        return used, wants

    def find(self, spelling: str) -> Flag | None:
        """The flag of that spelling, or the only flag whose spelling begins with it."""
        flag = self.by_spelling.get(spelling)
        if flag is None and spelling.startswith("--") and len(spelling) > len("--"):
            longer = [self.by_spelling[s] for s in self.by_spelling if s.startswith(spelling)]
            flags = {flag.name: flag for flag in longer}
            flag = next(iter(flags.values())) if len(flags) == 1 else None
        return flag

    def _is_flag(self, word: str) -> bool:
        return word.startswith("--") or (word in self.by_spelling and not _is_number(word))


def _is_number(word: str) -> bool:
    return word.lstrip("-").replace(".", "", 1).isdigit()


@cache
def flag_table(module: str) -> FlagTable | None:
    """The table of a module such as `dynamo.trtllm`; None if penstock has none."""
    if module in TABLES:
        options = [option for name in TABLES[module] for option in load(name)["options"]]
    elif module in _dynamo():
        options = _dynamo()[module]
    else:
        return None
    return FlagTable(
        by_spelling=_Flags([*options, *NOT_IN_TABLES.get(module, ())], module),
        is_loose=module in ("dynamo.vllm", "dynamo.sglang"),
    )


class _Flags(Mapping[str, Flag]):
    """The flags of a table by spelling. Each is made when it is looked up, as a command line has
    few of the hundreds of flags."""

    def __init__(self, options: Iterable[Mapping[str, Any]], module: str) -> None:
        self._module = module
        self._options = {spelling: option for option in options for spelling in _spellings(option)}
        self._by_name: dict[str, Flag] = {}

    def __getitem__(self, spelling: str) -> Flag:
        option = self._options[spelling]
        name = option["flags"][0]
        if name not in self._by_name:
            flag = _flag(option, self._module)
            self._by_name[name] = _as_vllm_reads(flag) if self._module == "dynamo.vllm" else flag
        return self._by_name[name]

    def __contains__(self, spelling: object) -> bool:
        return spelling in self._options

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)


@lru_cache(maxsize=256)
def given_flags(module: str, arguments: tuple[str, ...]) -> tuple[GivenFlag, ...]:
    """The flags of a command line of a module, which many rules read; none without a table."""
    table = flag_table(module)
    return tuple(table.read(arguments)) if table else ()


def _as_vllm_reads(flag: Flag) -> Flag:
    """Add what Dynamo's table does not have: numbers such as 8k, and None for no value."""
    option = _vllm().get(flag.name)
    if option is None:
        return flag
    known = _flag(option, "dynamo.vllm")
    kind = known.kind if known.kind.startswith("human_int") else flag.kind
    return replace(flag, kind=kind, is_optional=known.is_optional)


@cache
def _vllm() -> Mapping[str, Mapping[str, Any]]:
    """The options of vLLM's own table by the flag's name."""
    options = load("vllm_flags.json")["options"]
    return {_name(_spellings(option)): option for option in options}


@cache
def _dynamo() -> Mapping[str, Any]:
    modules: Mapping[str, Any] = load(DYNAMO)["modules"]
    return modules


@cache
def load(name: str) -> Any:
    """One of the tables of `engines.data`, read once."""
    return json.loads(files("penstock.engines.data").joinpath(name).read_text("utf-8"))


def _spellings(option: Mapping[str, Any]) -> tuple[str, ...]:
    spellings = tuple(option["flags"])
    if option["action"] == "negatable" and not any(s.startswith("--no-") for s in spellings):
        spellings += tuple(f"--no-{s[2:]}" for s in spellings if s.startswith("--"))
    return spellings


def _name(spellings: tuple[str, ...]) -> str:
    """The first spelling that is no negation, without dashes."""
    plain = [s for s in spellings if not s.startswith("--no-")] or spellings
    return plain[0].lstrip("-")


def _flag(option: Mapping[str, Any], module: str) -> Flag:
    spellings = _spellings(option)
    takes = {"store": "one", "list": "list", "append": "list"}.get(option["action"], "none")
    if option.get("nargs"):
        takes = "maybe" if option["nargs"] == "?" else "list"
    return Flag(
        name=_name(spellings),
        spellings=spellings,
        takes=takes,
        kind=option.get("kind") or "str",
        choices=tuple(str(choice) for choice in option.get("choices") or ())
        + DYNAMO_ADDS.get((module, spellings[0]), ()),
        deprecated=_deprecated(option.get("deprecated"), spellings),
        renamed=option.get("renamed", {}),
        is_optional=bool(option.get("optional")) or str(option.get("kind")).startswith("nullable"),
    )


def _deprecated(notice: Any, spellings: tuple[str, ...]) -> Mapping[str, str]:
    """Spelling → deprecation notice; SGLang's table has one text for all spellings."""
    if isinstance(notice, str):
        return (
            {s: notice for s in spellings if not s.startswith("--no-")}
            if "for vLLM" not in notice
            else {}
        )
    return notice or {}


def arguments_of(engine: Engine, table: FlagTable, key: str, value: Any) -> list[str]:
    """The command-line arguments for a key and its value; null is the argument None.

    Empty for an empty list, and for false if the flag has no negative form.
    """
    head, dot, inner = key.partition(".")
    flag = f"--{head.replace('_', '-')}{dot}{inner}"
    if isinstance(value, bool):
        return _switch_arguments(engine, table, flag, value)
    if value == []:
        return []
    if isinstance(value, list):
        return [flag, *(str(item) for item in value)]
    return [flag, json.dumps(value) if isinstance(value, Mapping) else str(value)]


def _switch_arguments(engine: Engine, table: FlagTable, flag: str, is_on: bool) -> list[str]:
    known = table.by_spelling.get(flag)
    if engine is Engine.SGLANG and known is not None and known.takes != "none":
        return [flag, str(is_on).lower()]
    if is_on:
        return [flag]
    negative = f"--no-{flag[2:]}"
    return [negative] if negative in table.by_spelling else []


# Flags whose number an engine refuses below 1, beyond what its parser checks: SchedulerConfig,
# CacheConfig, ParallelConfig and ModelConfig of vLLM 0.31.0, whose max_model_len also takes -1
# (auto); the assertion in tp_worker.py of SGLang.
POSITIVE = {
    "dynamo.vllm": frozenset(
        {
            *("max-num-seqs", "max-num-batched-tokens", "max-model-len", "block-size"),
            *("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"),
            *("decode-context-parallel-size", "prefill-context-parallel-size"),
        }
    ),
    "dynamo.sglang": frozenset({"max-running-requests"}),
}


def is_below_range(module: str, used: GivenFlag) -> bool:
    """Whether the engine refuses the number, which its parser reads."""
    if used.flag is None or used.flag.name not in POSITIVE.get(module, ()):
        return False
    return isinstance(used.value, int) and used.value < 1
