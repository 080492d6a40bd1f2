"""Finds what TensorRT-LLM would reject in its YAML, with the path and the nearest valid name.

`checks.rules.engine_config` turns each `UnsupportedSetting` into a finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from penstock.engines.equivalent_flags import SAME, owner, same_meaning
from penstock.engines.llm_args.args import TorchLlmArgs
from penstock.engines.llm_args.base import EngineArgs
from penstock.engines.llm_args.history import (
    ADDED,
    IGNORED,
    REMOVED,
    REMOVED_VALUES,
    RemovedKey,
)
from penstock.engines.llm_args.speculation import DECODING, DECODING_TYPES
from penstock.engines.llm_args.unsupported import Kind, Path, UnsupportedSetting
from penstock.text.names import nearest, nearest_name

# vLLM's and SGLang's names → TensorRT-LLM's.
OTHER_NAMES = {
    ("kv_cache_config.dtype", "fp8_e4m3"): "fp8",
    ("kv_cache_config.dtype", "fp8_e5m2"): "fp8",
    ("load_format", "safetensors"): "auto",
    ("load_format", "mistral"): "auto",
}
NEAR = 0.75  # how similar a name must be to be suggested


def validate(values: Mapping[str, Any]) -> tuple[UnsupportedSetting, ...]:
    """Everything that TensorRT-LLM rejects in ``values``, in the order of the model's fields."""
    values = {k: v for k, v in values.items() if (k, str(v)) not in IGNORED}
    speculative = values.get("speculative_config")
    found = [*_refusals(TorchLlmArgs, values)]
    if isinstance(speculative, Mapping):
        found += _speculative(speculative)
    return tuple(found)


def _speculative(values: Mapping[str, Any]) -> Iterator[UnsupportedSetting]:
    path = ("speculative_config", "decoding_type")
    if "decoding_type" not in values:
        dotted = ".".join(path)
        yield UnsupportedSetting(
            path=path[:1],
            kind=Kind.VALUE,
            message=f"{dotted} is missing",
            fix=f"Set {dotted}. {_one_of(DECODING_TYPES)}",
        )
        return
    kind = values["decoding_type"]
    if removed := REMOVED_VALUES.get((".".join(path), str(kind))):
        yield _removed(path, repr(kind), removed)
    elif kind not in DECODING_TYPES:
        near = nearest(str(kind), DECODING_TYPES, NEAR)
        yield UnsupportedSetting(
            path=path,
            kind=Kind.VALUE,
            message=f"{kind!r} is not a decoding type",
            fix=f"Did you mean {near}?" if near else _one_of(DECODING_TYPES),
            config={".".join(path): near} if near else {},
            is_of_others=not near,
        )
    elif (model := DECODING.get(kind)) is not None:
        yield from _refusals(model, values, ("speculative_config",))


def _refusals(
    model: type[EngineArgs], values: Mapping[str, Any], above: Path = ()
) -> Iterator[UnsupportedSetting]:
    try:
        model.model_validate(dict(values))
    except ValidationError as error:
        seen: set[Path] = set()
        errors = error.errors()
        for details in errors:
            if _is_other_member(details, errors):
                continue
            refusal = _refusal(model, details, above)
            if refusal.path not in seen:  # a union reports each of its members
                seen.add(refusal.path)
                yield refusal


def _is_other_member(details: ErrorDetails, errors: list[ErrorDetails]) -> bool:
    """Whether this is what `str` says of a section that may be a name, while the section's own
    class reports what is wrong in it."""
    loc = details["loc"]
    if not isinstance(details["input"], Mapping) or loc[-1:] != ("str",):
        return False
    above = loc[:-1]
    return any(e["loc"][: len(above)] == above and e["loc"] != loc for e in errors)


def _refusal(model: type[EngineArgs], details: ErrorDetails, above: Path) -> UnsupportedSetting:
    inner = _in_file(details["loc"], model)
    path = (*above, *inner)
    dotted = ".".join(str(step) for step in path)
    if details["type"] == "extra_forbidden":
        return _unknown(path, details["input"], model, inner)
    if details["type"] == "missing":
        message = f"{dotted} is missing"
        # The section has a place in the file, what it lacks has none.
        return UnsupportedSetting(
            path=path[:-1] or path, kind=Kind.VALUE, message=message, fix=f"Set {dotted}."
        )
    if details["type"] == "contradiction":
        context = details["ctx"]
        return UnsupportedSetting(
            path=(*path, context["key"]),
            kind=Kind.VALUE,
            message=context["reason"],
            fix=context["fix"],
        )
    if details["input"] is None:
        message = f"{dotted} must not be null"
        return UnsupportedSetting(
            path=path, kind=Kind.VALUE, message=message, fix=f"Remove {dotted}, or set a value."
        )
    if removed := REMOVED_VALUES.get((dotted, str(details["input"]))):
        return _removed(path, repr(details["input"]), removed)
    reason = details["msg"][:1].lower() + details["msg"][1:]
    message = f"{_shown(details['input'])} is not accepted: {reason}"
    choices = _choices(details)
    near = OTHER_NAMES.get((dotted, str(details["input"])))
    near = near or nearest(str(details["input"]), choices, NEAR)
    fix = _one_of(choices) if choices else f"Write {_expected(details)}."
    return UnsupportedSetting(
        path=path,
        kind=Kind.VALUE,
        message=message,
        fix=f"Did you mean {near}?" if near else fix,
        config={dotted: near} if near and not any(isinstance(s, int) for s in path) else {},
        is_of_others=bool(choices) and not near,
    )


def _unknown(path: Path, value: Any, model: type[EngineArgs], inner: Path) -> UnsupportedSetting:
    dotted = ".".join(str(step) for step in path)
    if removed := REMOVED.get(dotted):
        setting = _removed(path, dotted, removed)
        takes_value = removed.key and not isinstance(value, Mapping)
        return replace(setting, config={removed.key: value}) if takes_value else setting
    if added := ADDED.get(dotted):
        message = f"{dotted} requires TensorRT-LLM {added.since}"
        fix = f"Remove it, or use an image of Dynamo {'.'.join(map(str, added.dynamo))} or later."
        return UnsupportedSetting(path=path, kind=Kind.UNKNOWN, message=message, fix=fix)
    names = _names(model, inner[:-1])
    above = ".".join(map(str, path[:-1]))
    flag = "" if above else f"--{str(path[-1]).replace('_', '-')}"
    near, has = _near(flag, str(path[-1]), names), owner(flag)
    advice = f"Remove it: it is {has}." if has else "Remove it."
    return UnsupportedSetting(
        path=path,
        kind=Kind.UNKNOWN,
        message=f"unknown key {path[-1]!r} in {above or 'the file'}",
        fix=f"Did you mean {near}?" if near else f"{advice} Known keys: {', '.join(names[:12])}.",
        config={f"{above}.{near}".lstrip("."): value} if near else {},
        replaces=str(path[-1]) if near else None,
        is_of_others=not near,
    )


def _near(flag: str, key: str, names: Sequence[str]) -> str:
    """The existing key that an unknown one resembles. ``flag``: the key as a flag of another
    engine; empty for a key of a section."""
    if same := same_meaning(flag, [f"--{name.replace('_', '-')}" for name in names], SAME):
        return same.removeprefix("--").replace("-", "_")
    return "" if flag and owner(flag) else nearest_name(key, names, NEAR)


def _removed(path: Path, what: str, removed: RemovedKey) -> UnsupportedSetting:
    message = f"{what} was never a key of TensorRT-LLM's file"
    if removed.since:
        message = f"{what} was removed in TensorRT-LLM {removed.since}"
    message += f" ({removed.note})" if removed.note else ""
    fix = f"Use {removed.replacement} instead." if removed.replacement else "Remove it."
    return UnsupportedSetting(
        path=path,
        kind=Kind.REMOVED,
        message=message,
        fix=fix,
        dynamo=removed.dynamo,
        replaces=str(path[-1]) if removed.replacement else None,
    )


def _one_of(names: Iterable[str]) -> str:
    return f"Use one of {', '.join(names)}."


def _expected(details: ErrorDetails) -> str:
    """What pydantic's message asks for: `a number greater than or equal to 1`."""
    if details["type"] in ("too_short", "string_too_short"):
        return "a value that is not empty"
    match = re.fullmatch(r"Input should be (.+?)(, unable .*)?", details["msg"])
    if match is None:
        return "a value of another type"
    expected = match[1].replace("valid ", "").replace("a integer", "an integer")
    return expected if expected.startswith(("a ", "an ")) else f"a number {expected}"


def _choices(details: ErrorDetails) -> list[str]:
    if details["type"] != "literal_error":
        return []
    expected = str(details["ctx"]["expected"]).replace("'", "")
    return expected.replace(" or ", ", ").split(", ")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _in_file(loc: tuple[str | int, ...], model: type[EngineArgs]) -> Path:
    """pydantic's location without the union members that it names on the way."""
    path: list[str | int] = []
    here: type[BaseModel] | None = model
    for at, step in enumerate(loc):
        if isinstance(step, int):
            path.append(step)
        elif here is not None and (step in here.model_fields or at == len(loc) - 1 or not path):
            path.append(step)
            here = _section(here, step)
        elif here is None and at == len(loc) - 1 and not _is_member(step):
            path.append(step)
    return tuple(path)


def _is_member(step: str) -> bool:
    return step in ("str", "int", "bool", "float") or "[" in step


def _section(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    field = model.model_fields.get(name)
    if field is None:
        return None
    options = [field.annotation, *get_args(field.annotation)]
    return next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)


def _names(model: type[EngineArgs], path: Path) -> list[str]:
    here: type[BaseModel] | None = model
    for step in path:
        here = _section(here, str(step)) if here is not None else None
    return sorted(here.model_fields) if here is not None else []
