"""The model that a plan is for: its id, its shape, and a folder with its config.json.

AISimulate brings the configurations of the models that it has measured, so no hub is asked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from penstock.environments import environments_root
from penstock.errors import InputError, Problem
from penstock.models import ModelShape
from penstock.models.config import UnknownShapeError, shape_of
from penstock.nearest import nearest

ALIASES = {"gpt-oss-120b": "openai/gpt-oss-120b", "gpt-oss-20b": "openai/gpt-oss-20b"}
CONFIG = "_config.json"


@dataclass(frozen=True, kw_only=True)
class PlannedModel:
    """``folder`` is where `find_model` looks; ``positions``: tokens of its longest sequence."""

    id: str
    shape: ModelShape
    folder: Path

    @property
    def positions(self) -> int:
        return self.shape.positions


def planned_model(name: str, scratch: Path) -> PlannedModel:
    """InputError where nobody measured such a model, or where its shape is not known here.
    ``scratch`` is an empty folder."""
    full = ALIASES.get(name, name)
    known = _known()
    if full not in known:
        close = nearest(full, [*known, *ALIASES])
        some = ", ".join([*ALIASES, *sorted(known)[:8]])
        fix = f"did you mean {close}?" if close else f"there are {some}, and others"
        raise InputError(Problem(place="--model", message=f"{name} was not measured", fix=fix))
    text = known[full].read_text()
    try:
        shape = shape_of(json.loads(text), full)
    except UnknownShapeError as error:
        message = f"the shape of {full} is not known: {error}"
        raise InputError(
            Problem(place="--model", message=message, fix="choose another model")
        ) from None
    (scratch / "config.json").write_text(text)
    return PlannedModel(id=full, shape=shape, folder=scratch)


def _known() -> dict[str, Path]:
    """Configurations by the id of the model hub."""
    site = (environments_root() / "sim" / "lib").glob("python3.*/site-packages/aisimulate_core")
    files = [file for package in site for file in (package / "model_configs").glob(f"*{CONFIG}")]
    plain = [file for file in files if not file.name.endswith(f"_hf_quant{CONFIG}")]
    return {file.name.removesuffix(CONFIG).replace("--", "/", 1): file for file in plain}
