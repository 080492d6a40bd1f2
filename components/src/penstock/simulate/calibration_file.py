"""Reads and writes the file of `--calibrate` and `--calibration`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import yaml

from penstock.errors import GraphError, InputError, Problem
from penstock.graph.text_file import read_text_file
from penstock.simulate.calibration import VERSION, Calibration, Calibrations
from penstock.strict_yaml.kind import DocumentKind
from penstock.strict_yaml.problems import field_problems, parse_strictly

MARK = "penstock_calibration:"
KIND = DocumentKind(
    name="a calibration file", example="a file that `penstock bench --calibrate` wrote"
)
HEADER = "# Written by `penstock bench --calibrate`. Read it with --calibration FILE.\n"


def load_calibrations(path: Path) -> Calibrations:
    """InputError when the file cannot be read, GraphError with every problem in it, and for two
    entries of the same model, GPU and engine."""
    problems_of = partial(field_problems, root=Calibrations)
    found = parse_strictly(read_text_file(path), str(path), KIND, Calibrations, problems_of)
    keys = [one.key for one in found.entries]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        message = f"{', '.join(twice)} has two entries"
        fix = "Remove one of them."
        raise GraphError(Problem(file=str(path), place="entries", message=message, fix=fix))
    return found


def existing_calibrations(path: Path) -> Calibrations:
    """Those of a file that will be replaced; none if there is no file, or an empty one. InputError
    if it is another kind of file, GraphError if it is damaged."""
    if not path.exists():
        return Calibrations(penstock_calibration=VERSION, entries=())
    text = read_text_file(path)
    if not text.strip():
        return Calibrations(penstock_calibration=VERSION, entries=())
    if MARK not in text:
        message = "already exists, and is not a calibration file"
        fix = "Name another file, or remove it first."
        raise InputError(Problem(file=str(path), message=message, fix=fix))
    return load_calibrations(path)


def with_entry(file: Calibrations, entry: Calibration) -> Calibrations:
    """With the entry instead of one for the same model, GPU and engine."""
    others = [one for one in file.entries if one.key != entry.key]
    entries = tuple(sorted([*others, entry], key=lambda one: one.key))
    return Calibrations(penstock_calibration=VERSION, entries=entries)


def calibrations_text(file: Calibrations) -> str:
    """The YAML of a file, which `load_calibrations` reads."""
    return HEADER + yaml.dump(
        _quoted(file.model_dump(mode="json")),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
    )


class _Quoted(str):
    """A text value, quoted because readers of YAML disagree about texts such as 1e3 and y."""


class _Dumper(yaml.SafeDumper):
    """Writes ranges in one line."""


def _quote(dumper: yaml.SafeDumper, text: _Quoted) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    is_range = all(isinstance(item, float) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=is_range)


_Dumper.add_representer(_Quoted, _quote)
_Dumper.add_representer(list, _list)


def _quoted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _quoted(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_quoted(one) for one in value]
    return _Quoted(value) if isinstance(value, str) else value
