"""What vLLM takes inside of the JSON values of its flags, such as `--kv-transfer-config`.

Its configuration classes refuse unknown keys, values outside of an enum and of their bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from penstock.engines.flags import load
from penstock.nearest import nearest

Fields = Mapping[str, Mapping[str, Any]]
Path = tuple[str, ...]
# Sections that take `-` for `_` in their keys (vllm/engine/arg_utils.py 0.31.0).
DASHED = ("speculative-config",)
NEAR = 0.75  # how similar a key must be to be suggested
MOST = 12  # names that a message shows
# A name that only the attention backends have, which take `auto` too (vllm/config/attention.py).
AUTO = "FLASH_ATTN"
# Whose values are not judged: they may have any case, and `-` (vllm/config/kernel.py 0.31.0).
LOOSE = ("kernel-config",)
# Keys that went, and what took their place.
REPLACED_KEYS: Mapping[Path, str] = {
    ("attention-config", "use_fp4_indexer_cache"): "indexer_kv_dtype: mxfp4",
}
# The flag that stands for a key of a section.
ALIASES = {"attention-backend": ("attention-config", "backend")}


@dataclass(frozen=True, kw_only=True)
class SectionError:
    """``near`` is the key or value that is meant, empty where none is near; ``instead`` what took
    the place of a key that is gone."""

    path: Path
    message: str
    near: str = ""
    is_key: bool = False
    instead: str = ""


@cache
def sections() -> Mapping[str, Fields]:
    """Flag without dashes → its keys."""
    options = load("vllm_flags.json")["options"]
    return {o["flags"][0].lstrip("-"): o["fields"] for o in options if "fields" in o}


def section_errors(flag: str, value: Any) -> Iterator[SectionError]:
    """What of ``value`` the flag's section refuses."""
    if flag in ALIASES:
        section, key = ALIASES[flag]
        yield from _value((), value, sections()[section][key])
    elif flag in sections() and isinstance(value, Mapping):
        for error in _section((), value, sections()[flag], dashes=flag in DASHED):
            if flag not in LOOSE or error.is_key:
                yield replace(error, instead=REPLACED_KEYS.get((flag, *error.path), ""))
    elif flag in sections() and value is not None and not _may_be_json(value):
        yield SectionError(path=(), message=f"must be a mapping of keys, got {value!r}")


def _may_be_json(value: Any) -> bool:
    """A text with what only a shell knows, or with numbers such as 8k, which JSON has not."""
    return isinstance(value, str) and (value.lstrip().startswith("{") or "$" in value)


def _section(
    above: Path, values: Mapping[Any, Any], fields: Fields, *, dashes: bool = False
) -> Iterator[SectionError]:
    for name, value in values.items():
        key, path = str(name), (*above, str(name))
        field = fields.get(key.replace("-", "_") if dashes else key)
        if field is None:
            near = nearest(key, fields, NEAR)
            message = f"unknown key {key!r}"
            yield SectionError(path=path, message=message, near=near, is_key=True)
        elif "fields" in field and isinstance(value, Mapping):
            yield from _section(path, value, field["fields"])
        else:
            yield from _value(path, value, field)


def _value(path: Path, value: Any, field: Mapping[str, Any]) -> Iterator[SectionError]:
    names, choices = field.get("names"), field.get("choices")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if names and isinstance(value, str) and value.upper() not in map(str.upper, names):
        if value.lower() != "auto" or AUTO not in names:
            near = nearest(value, names)
            yield SectionError(
                path=path, message=f"is {value}, but must be {_one_of(names)}", near=near
            )
    elif choices and value is not None and value not in choices:
        words = [str(choice) for choice in choices if choice is not None]
        near = nearest(str(value), words)
        yield SectionError(
            path=path, message=f"is {value}, but must be {_one_of(words)}", near=near
        )
    elif is_number and (limit := _outside(value, field)):
        yield SectionError(path=path, message=f"is {value}, but must be {limit}")


def _one_of(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST])
    return f"one of {shown}" + (f" and {len(names) - MOST} more" if len(names) > MOST else "")


def _outside(value: float, field: Mapping[str, Any]) -> str:
    """The bound that the number violates; empty if none."""
    if "above" in field and value <= field["above"]:
        return f"above {field['above']}"
    if "least" in field and value < field["least"]:
        return f"at least {field['least']}"
    if "below" in field and value >= field["below"]:
        return f"below {field['below']}"
    if "most" in field and value > field["most"]:
        return f"at most {field['most']}"
    return ""
