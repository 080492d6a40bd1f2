"""The model of a plan: its id, its shape, and a folder with its config.json.

AISimulate ships the configurations of the models that it has measured, so no hub is contacted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import InputError, Problem
from penstock.files import write_file
from penstock.models import ModelShape
from penstock.models.config import UnknownShapeError, shape_of
from penstock.simulate.timing import measured_models
from penstock.text.names import nearest

ALIASES = {"gpt-oss-120b": "openai/gpt-oss-120b", "gpt-oss-20b": "openai/gpt-oss-20b"}


@dataclass(frozen=True, kw_only=True)
class PlannedModel:
    id: str
    shape: ModelShape
    folder: Path  # with its config.json, for `find_model`

    @property
    def positions(self) -> int:
        """Tokens of its longest sequence."""
        return self.shape.positions


def planned_model(name: str, scratch: Path) -> PlannedModel:
    """InputError for a model that was not measured, or whose shape is not known here.

    ``scratch``: an empty folder, to which its config.json is written.
    """
    full = ALIASES.get(name, name)
    known = measured_models()
    if full not in known:
        close = nearest(full, [*known, *ALIASES])
        some = ", ".join([*ALIASES, *sorted(known)[:8]])
        fix = f"Did you mean {close}?" if close else f"Use a measured model, such as {some}."
        raise InputError(Problem(place="--model", message=f"{name} was not measured", fix=fix))
    text = known[full].read_text()
    try:
        shape = shape_of(json.loads(text), full)
    except UnknownShapeError as error:
        message = f"the shape of {full} is not known: {error}"
        raise InputError(
            Problem(place="--model", message=message, fix="Choose another model.")
        ) from None
    write_file(scratch / "config.json", text)
    return PlannedModel(id=full, shape=shape, folder=scratch)
