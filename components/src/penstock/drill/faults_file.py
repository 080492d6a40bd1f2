"""The file of `--faults` for a URL: commands that inject faults."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from penstock.graph.text_file import read_text_file
from penstock.shipped import in_repository
from penstock.strict_yaml.base import Items, Spec, Text, invalid
from penstock.strict_yaml.kind import DocumentKind
from penstock.strict_yaml.problems import field_problems, parse_strictly

FAULTS = DocumentKind(name="a faults file", example=in_repository("k8s/drill.yaml"))
Command = Annotated[Items[Text], Field(min_length=1)]


class CommandFault(Spec):
    """A fault that commands inject, such as the deletion of a pod."""

    name: Text = Field(description="Kind of the fault, for the report.")
    command: Command = Field(description="Program and arguments that inject the fault; no shell.")
    undo: Items[Text] = Field(
        default=(), description="Program and arguments that end the fault; if unset, none."
    )
    lasts_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.0,
        description="Time in seconds between `command` and `undo`; without `undo`, time to wait "
        "before the recovery is checked.",
    )
    survivor: bool = Field(
        default=True,
        description="Whether another replica can serve requests during the fault; if false, "
        "requests that fail before the recovery count as unavoidable.",
    )


class FaultsFile(Spec):
    """Commands for any endpoint."""

    faults: Annotated[Items[CommandFault], Field(min_length=1)] = Field(
        description="Faults, each injected once in seeded order before any is repeated."
    )

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [fault.name for fault in self.faults]
        for number, name in enumerate(names):
            if name in names[:number]:
                place = f"faults[{number}].name"
                raise invalid(place, f"{name!r} is given twice", "Choose another name.")
        return self


def load_faults(path: Path) -> FaultsFile:
    """InputError when the file cannot be read, GraphError with every problem in it."""
    problems_of = partial(field_problems, root=FaultsFile)
    return parse_strictly(read_text_file(path), str(path), FAULTS, FaultsFile, problems_of)
