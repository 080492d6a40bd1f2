"""A model's shape by its folder on this machine, or by its id for those that are packaged."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from penstock.models.config import BrokenConfigError, UnknownShapeError, shape_of
from penstock.models.shape import ModelShape

# Models whose config is packaged, by the last part of their id or of a cache's path; what is made
# from them (drafts, fine-tunes) has a longer name and may have another shape.
PACKAGED = re.compile(r"(?:^|[/-])(gpt-oss-(?:120b|20b))/?$|--(gpt-oss-(?:120b|20b))(?:/|$)")
INDEX = "model.safetensors.index.json"


def find_model(name: str, *folders: Path) -> ModelShape:
    """The model called ``name``, from the first of ``folders`` that has a config.json, or packaged.

    Raises UnknownShapeError with what was looked for and why it is not known.
    """
    for folder in folders:
        if (folder / "config.json").is_file():
            return _in_folder(folder, name)
    packaged = PACKAGED.search(name.lower())
    if packaged is None:
        raise UnknownShapeError(f"no config.json of {name} on this machine")
    data = f"{packaged[1] or packaged[2]}.json"
    text = files("penstock.models.data").joinpath(data).read_text("utf-8")
    return shape_of(json.loads(text), name)


def read_model(folder: Path) -> ModelShape | None:
    """The shape of the model in ``folder``; None where its config.json is missing or not known."""
    try:
        return _in_folder(folder, folder.name)
    except UnknownShapeError:
        return None


def _in_folder(folder: Path, name: str) -> ModelShape:
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        if not isinstance(config, Mapping):
            raise BrokenConfigError(f"{folder}/config.json holds no object")
        return shape_of(config, name, _checkpoint_bytes(folder))
    except (OSError, ValueError) as error:
        raise BrokenConfigError(f"{folder}/config.json cannot be read: {error}") from None


def _checkpoint_bytes(folder: Path) -> int | None:
    """What the index of the weight files says, or the size of the only one."""
    try:
        index: Mapping[str, Any] = json.loads((folder / INDEX).read_text("utf-8"))
        return int(index["metadata"]["total_size"])
    except (OSError, ValueError, KeyError, TypeError):
        single = folder / "model.safetensors"
        return single.stat().st_size if single.is_file() else None
