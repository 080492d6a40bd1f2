"""Checks the JSON values of vLLM's flags, such as `--kv-transfer-config`.

vLLM's configuration classes reject unknown keys and values outside of an enum or of their bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from penstock.engines.flags import load
from penstock.text.names import nearest, nearest_name

Fields = Mapping[str, Mapping[str, Any]]
Path = tuple[str, ...]
# Sections whose keys may have `-` for `_` (vllm/engine/arg_utils.py 0.31.0).
DASHED = ("speculative-config",)
NEAR = 0.75  # how similar a key must be to be suggested
MOST = 12  # names that a message lists
# A name that only attention backends have, which may also be `auto` (vllm/config/attention.py).
AUTO = "FLASH_ATTN"
# Sections whose values are not checked: they may have any case, and `-`
# (vllm/config/kernel.py 0.31.0).
LOOSE = ("kernel-config",)
# Keys of the compilation passes that vLLM 0.12 renamed (vllm#29646).
PASSES = {
    "enable_fusion": "fuse_norm_quant and fuse_act_quant",
    "enable_attn_fusion": "fuse_attn_quant",
    "enable_noop": "eliminate_noops",
    "enable_sequence_parallelism": "enable_sp",
    "enable_async_tp": "fuse_gemm_comms",
    "enable_fi_allreduce_fusion": "fuse_allreduce_rms",
}
# Removed keys → what to use instead.
REPLACED_KEYS: Mapping[Path, str] = {
    ("compilation-config", "pass_config", old): new for old, new in PASSES.items()
}
# Flag → the key of a section that it sets.
ALIASES = {"attention-backend": ("attention-config", "backend")}


@dataclass(frozen=True, kw_only=True)
class SectionError:
    """A key or value that vLLM rejects."""

    path: Path
    message: str
    # The most similar valid key or value, if there is one.
    near: str = ""
    # Whether the key is wrong, not its value.
    is_key: bool = False
    # Whether the value is not one of the accepted ones.
    is_choice: bool = False
    # What to use instead of a removed key.
    instead: str = ""


@cache
def sections() -> Mapping[str, Fields]:
    """Flag without dashes → its keys."""
    options = load("vllm_flags.json")["options"]
    return {o["flags"][0].lstrip("-"): o["fields"] for o in options if "fields" in o}


def section_errors(flag: str, setting: Any) -> Iterator[SectionError]:
    """What the flag's section rejects in ``setting``."""
    if flag in ALIASES:
        section, key = ALIASES[flag]
        yield from _value((), setting, sections()[section][key])
    elif flag in sections() and isinstance(setting, Mapping):
        for error in _section((), setting, sections()[flag], dashes=flag in DASHED):
            if flag not in LOOSE or error.is_key:
                yield replace(error, instead=REPLACED_KEYS.get((flag, *error.path), ""))
    elif flag in sections() and setting is not None and not _may_be_json(setting):
        yield SectionError(path=(), message=f"must be a mapping of keys, got {setting!r}")


def _may_be_json(setting: Any) -> bool:
    """Whether a text may be JSON that Python cannot read: with a shell variable, or 8k."""
    return isinstance(setting, str) and (setting.lstrip().startswith("{") or "$" in setting)


def _section(
    above: Path, values: Mapping[Any, Any], fields: Fields, *, dashes: bool = False
) -> Iterator[SectionError]:
    for name, setting in values.items():
        key, path = str(name), (*above, str(name))
        field = fields.get(key.replace("-", "_") if dashes else key)
        if field is None:
            near = nearest_name(key, fields, NEAR)
            message = f"unknown key {key!r}"
            yield SectionError(path=path, message=message, near=near, is_key=True)
        elif "fields" in field and isinstance(setting, Mapping):
            yield from _section(path, setting, field["fields"])
        else:
            yield from _value(path, setting, field)


def _value(path: Path, setting: Any, field: Mapping[str, Any]) -> Iterator[SectionError]:
    names, choices = field.get("names"), field.get("choices")
    is_number = isinstance(setting, (int, float)) and not isinstance(setting, bool)
    if names and isinstance(setting, str) and setting.upper() not in map(str.upper, names):
        if setting.lower() != "auto" or AUTO not in names:
            near = nearest(setting, names)
            message = f"is {setting}, but must be {_one_of(names)}"
            yield SectionError(path=path, message=message, near=near, is_choice=True)
    elif choices and setting is not None and setting not in choices:
        words = [str(choice) for choice in choices if choice is not None]
        near = nearest(str(setting), words)
        message = f"is {setting}, but must be {_one_of(words)}"
        yield SectionError(path=path, message=message, near=near, is_choice=True)
    elif is_number and (limit := _outside(setting, field)):
        yield SectionError(path=path, message=f"is {setting}, but must be {limit}")


def _one_of(names: Sequence[str]) -> str:
    listed = ", ".join(names[:MOST])
    return f"one of {listed}" + (f" and {len(names) - MOST} more" if len(names) > MOST else "")


def _outside(number: float, field: Mapping[str, Any]) -> str:
    """The bound that the number violates; empty if none."""
    if "above" in field and number <= field["above"]:
        return f"above {field['above']}"
    if "least" in field and number < field["least"]:
        return f"at least {field['least']}"
    if "below" in field and number >= field["below"]:
        return f"below {field['below']}"
    if "most" in field and number > field["most"]:
        return f"at most {field['most']}"
    return ""
