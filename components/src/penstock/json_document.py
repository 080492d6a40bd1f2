"""JSON documents of `--json`: the model that is printed is also the source of the published schema.

A field is documented by the docstring below it: what it is, its unit, and what null means.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from penstock.graph.slo import Slo
from penstock.workload.model import Workload

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
Number = int | float


class Document(BaseModel):
    """Has no other keys than its fields. Dataclasses of penstock may be types of fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    def as_json(self, *, indent: int = 2, ensure_ascii: bool = True) -> str:
        # Numbers of dataclasses are not validated: an int in place of a float is no error.
        content = self.model_dump(mode="json", warnings=False)
        return json.dumps(content, indent=indent, ensure_ascii=ensure_ascii)


def set_fields(value: BaseModel) -> dict[str, Any]:
    """Of an input: the fields that have a value."""
    return value.model_dump(exclude_none=True)


GivenSlo = Annotated[Slo, PlainSerializer(set_fields)]
GivenWorkload = Annotated[Workload, PlainSerializer(set_fields)]


class NamedWorkload(Workload):
    name: str = Field(description="Name of the workload.")

    @classmethod
    def of(cls, name: str, workload: Workload) -> NamedWorkload:
        """``workload`` is not validated again: its scale and its length may have been changed."""
        return cls.model_construct(name=name, **dict(workload))


class _OfModels(GenerateJsonSchema):
    """Serializers here only leave out keys, so the schema is that of the model."""

    def ser_schema(self, schema: Any) -> None:
        return None


def schema_of(documents: Any, title: str) -> Schema:
    """The JSON schema of a subclass of `Document`, or of a union of them.

    Objects are closed. Keys are required, except those of inputs, where a missing key has the
    default, and metrics that a run does not have.
    """
    found = TypeAdapter(documents).json_schema(mode="serialization", schema_generator=_OfModels)
    for part in (found, *found.get("$defs", {}).values()):
        _close(part)
    _simplify(found)
    return {"$schema": DIALECT, "title": title, **found}


def _close(part: Schema) -> None:
    """Of a dataclass: its keys are all printed, and there are no others. Its own docstring, like
    that of an enumeration, is about the code; the keys of this type have a description."""
    if "properties" in part and "additionalProperties" not in part:
        part.pop("description", None)
        part["additionalProperties"] = False
        part["required"] = list(part["properties"])
        for one in part["properties"].values():
            one.pop("default", None)
    if "enum" in part:
        part.pop("description", None)


def _simplify(node: Any) -> None:
    """Remove titles that repeat the name of a key, and null as a default: such a key is missing."""
    if isinstance(node, list):
        for one in node:
            _simplify(one)
    elif isinstance(node, dict):
        for one in node.get("properties", {}).values():
            one.pop("title", None)
            if one.get("default", ...) is None:
                del one["default"]
        for one in node.values():
            _simplify(one)
