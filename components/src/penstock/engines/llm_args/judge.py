"""What TensorRT-LLM would refuse of its YAML, told with the place in it and the nearest name.

`checks.engine_config` turns each `Refusal` into a finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from penstock.engines.llm_args.args import TorchLlmArgs
from penstock.engines.llm_args.base import EngineArgs
from penstock.engines.llm_args.history import ADDED, GONE, GONE_VALUES, IGNORED, Gone, Version
from penstock.engines.llm_args.speculation import DECODING, DECODING_TYPES
from penstock.nearest import nearest

Path = tuple[str | int, ...]
NEAR = 0.75  # how alike a name must be to be meant


class Kind(StrEnum):
    UNKNOWN = "unknown"
    VALUE = "value"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """``fix`` is words, ``config`` what to write then, by dotted key, where that is certain;
    ``dynamo`` the first Dynamo that refuses it, where that is known."""

    path: Path
    kind: Kind
    message: str
    fix: str
    dynamo: Version = (1, 0)
    config: Mapping[str, Any] = field(default_factory=dict)
    # The key to remove, if `config` sets it under another name.
    replaces: str | None = None


def judge(values: Mapping[str, Any]) -> tuple[Refusal, ...]:
    """Every refusal of the file's ``values``, in the order of the model's fields."""
    values = {k: v for k, v in values.items() if (k, str(v)) not in IGNORED}
    speculative = values.get("speculative_config")
    found = [*_refusals(TorchLlmArgs, values)]
    if isinstance(speculative, Mapping):
        found += _speculative(speculative)
    return tuple(found)


def _speculative(values: Mapping[str, Any]) -> Iterator[Refusal]:
    kind = values.get("decoding_type", "AUTO")
    path = ("speculative_config", "decoding_type")
    if gone := GONE_VALUES.get((".".join(path), str(kind))):
        yield _gone(path, repr(kind), gone)
    elif kind not in DECODING_TYPES:
        near = nearest(str(kind), DECODING_TYPES, NEAR)
        yield Refusal(
            path=path,
            kind=Kind.VALUE,
            message=f"{kind!r} is no decoding type",
            fix=f"perhaps you meant {near}" if near else f"one of {', '.join(DECODING_TYPES)}",
            config={".".join(path): near} if near else {},
        )
    elif (model := DECODING.get(kind)) is not None:
        yield from _refusals(model, values, ("speculative_config",))


def _refusals(
    model: type[EngineArgs], values: Mapping[str, Any], above: Path = ()
) -> Iterator[Refusal]:
    try:
        model.model_validate(dict(values))
    except ValidationError as error:
        seen = set()
        for details in error.errors():
            refusal = _refusal(model, details, above)
            if refusal.path not in seen:  # a union reports each of its members
                seen.add(refusal.path)
                yield refusal


def _refusal(model: type[EngineArgs], details: ErrorDetails, above: Path) -> Refusal:
    inner = _in_file(details["loc"], model)
    path = (*above, *inner)
    dotted = ".".join(str(step) for step in path)
    if details["type"] == "extra_forbidden":
        return _unknown(path, details["input"], model, inner)
    if details["type"] == "missing":
        message = f"{dotted} is missing"
        # The section has a place in the file, what it lacks has none.
        return Refusal(
            path=path[:-1] or path, kind=Kind.VALUE, message=message, fix=f"set {dotted}"
        )
    if gone := GONE_VALUES.get((dotted, str(details["input"]))):
        return _gone(path, repr(details["input"]), gone)
    said = details["msg"][:1].lower() + details["msg"][1:]
    message = f"{_shown(details['input'])} is refused: {said}"
    choices = _choices(details)
    near = nearest(str(details["input"]), choices, NEAR)
    fix = f"one of {', '.join(choices)}" if choices else f"write {_kind(details)}"
    return Refusal(
        path=path,
        kind=Kind.VALUE,
        message=message,
        fix=f"perhaps you meant {near}" if near else fix,
        config={dotted: near} if near and not any(isinstance(s, int) for s in path) else {},
    )


def _unknown(path: Path, value: Any, model: type[EngineArgs], inner: Path) -> Refusal:
    dotted = ".".join(str(step) for step in path)
    if gone := GONE.get(dotted):
        found = _gone(path, dotted, gone)
        is_key = re.fullmatch(r"[a-z_.]+", gone.replacement) and not isinstance(value, Mapping)
        return replace(found, config={gone.replacement: value}) if is_key else found
    if added := ADDED.get(dotted):
        message = f"{dotted} came with TensorRT-LLM {added.since}"
        fix = f"remove it, or use an image of Dynamo {'.'.join(map(str, added.dynamo))} or later"
        return Refusal(path=path, kind=Kind.UNKNOWN, message=message, fix=fix)
    names = _names(model, inner[:-1])
    near = nearest(str(path[-1]), names, NEAR)
    above = ".".join(map(str, path[:-1]))
    return Refusal(
        path=path,
        kind=Kind.UNKNOWN,
        message=f"{path[-1]!r} is no key of {above or 'TensorRT-LLM'}",
        fix=f"perhaps you meant {near}, in place of {path[-1]}"
        if near
        else f"remove it; known here: {', '.join(names[:12])}",
        config={f"{above}.{near}".lstrip("."): value} if near else {},
        replaces=str(path[-1]) if near else None,
    )


def _gone(path: Path, what: str, gone: Gone) -> Refusal:
    message = f"{what} is gone since TensorRT-LLM {gone.since}"
    if gone.since.startswith("ever"):
        message = f"{what} was no key {gone.since}"
    fix = f"use {gone.replacement}, in place of it" if gone.replacement else "remove it"
    return Refusal(
        path=path,
        kind=Kind.GONE,
        message=message,
        fix=fix,
        dynamo=gone.dynamo,
        replaces=str(path[-1]) if gone.replacement else None,
    )


def _kind(details: ErrorDetails) -> str:
    """What pydantic asks for: `a number greater than or equal to 1`."""
    wanted = re.fullmatch(r"Input should be (.+?)(, unable .*)?", details["msg"])
    if wanted is None:
        return "a value of that kind"
    kind = wanted[1].replace("valid ", "")
    return kind if kind.startswith(("a ", "an ")) else f"a number {kind}"


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
