"""Find a model's shape by its folder on this machine, or by its id if it is packaged."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from penstock.models.config import (
    BrokenConfigError,
    MissingConfigError,
    UnknownShapeError,
    shape_of,
)
from penstock.models.shape import ModelShape
from penstock.strict_yaml.loader import load_json

# Models whose config is packaged, by the last part of their id or of a cache's path. Drafts and
# fine-tunes have a longer name and may have another shape.
NAMES = "gpt-oss-(?:120b|20b)|smollm2-135m-instruct"
PACKAGED = re.compile(rf"(?:^|[/-])({NAMES})/?$|--({NAMES})(?:/|$)")
LONGEST_SHOWN = 80  # characters
INDEX = "model.safetensors.index.json"


def find_model(name: str, *folders: Path) -> ModelShape:
    """The model called ``name``, from the first of ``folders`` that has a config.json, or packaged.

    Raises UnknownShapeError with the reason.
    """
    try:
        folder = folder_of_model(*folders)
    except OSError as error:  # the name is too long, or the path is a loop of links
        short = name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}…"
        raise UnknownShapeError(f"{short}: {error.strerror}") from None
    if folder is not None:
        return _in_folder(folder, name)
    packaged = packaged_config(name)
    if packaged is None:
        raise MissingConfigError(_missing(name, folders))
    return shape_of(packaged, name)


def packaged_config(name: str) -> Mapping[str, Any] | None:
    """The whole config.json of one of `NAMES`; None for another model."""
    packaged = PACKAGED.search(name.lower())
    if packaged is None:
        return None
    data = f"{packaged[1] or packaged[2]}.json"
    text = files("penstock.models.data").joinpath(data).read_text("utf-8")
    return dict(json.loads(text))


def folder_of_model(*folders: Path) -> Path | None:
    """The first of ``folders`` that has a config.json. OSError for a name that no file can have."""
    return next((folder for folder in folders if (folder / "config.json").is_file()), None)


def _missing(name: str, folders: Sequence[Path]) -> str:
    """Names the first folder that the model should be in, if it is not the model's name."""
    folder = next((folder for folder in folders if str(folder) != name), None)
    if folder is None:
        return f"there is no config.json of {name} on this machine"
    return f"there is no {folder}/config.json on this machine, and {name} is not a known model"


def read_model(folder: Path) -> ModelShape | None:
    """The shape of the model in ``folder``; None if its config.json is missing or not supported."""
    try:
        return _in_folder(folder, folder.name)
    except UnknownShapeError:
        return None


def _in_folder(folder: Path, name: str) -> ModelShape:
    try:
        config = load_json((folder / "config.json").read_text("utf-8"))
        if not isinstance(config, Mapping):
            raise BrokenConfigError(f"{folder}/config.json is not a JSON object")
        return shape_of(config, name, _checkpoint_bytes(folder))
    except (OSError, ValueError) as error:
        raise BrokenConfigError(f"{folder}/config.json cannot be read: {error}") from None


def _checkpoint_bytes(folder: Path) -> int | None:
    """The size from the index of the weight files, or the size of the only weight file."""
    try:
        index: Mapping[str, Any] = load_json((folder / INDEX).read_text("utf-8"))
        return int(index["metadata"]["total_size"])
    except (OSError, ValueError, KeyError, TypeError):
        single = folder / "model.safetensors"
        return single.stat().st_size if single.is_file() else None
