"""JSON documents of `--json`: the model that is printed is also the source of the published schema.

A field is documented by the docstring below it: what it is, its unit, and what null means.
"""

from __future__ import annotations

import json
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
Number = int | float


class Document(BaseModel):
    """Has no other keys than its fields. Dataclasses of penstock may be types of fields, and an
    object with the attributes of a document may be its value."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, from_attributes=True, use_attribute_docstrings=True
    )

    @classmethod
    def of(cls, *sources: object, **fields: Any) -> Self:
        """With ``fields``, and each other field from the first of ``sources`` that has this name.

        A field that has only one value, such as the version of the schema, gets this value. Empty
        texts become null in fields that permit null.
        """
        for name, field in cls.model_fields.items():
            values = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
            if name not in fields and len(values) == 1:
                fields[name] = values[0]
            elif name not in fields:
                source = next(source for source in sources if hasattr(source, name))
                fields[name] = getattr(source, name)
            if fields[name] == "" and field.annotation == str | None:
                fields[name] = None
        return cls(**fields)

    def as_json(self, *, indent: int = 2, ensure_ascii: bool = True) -> str:
        # Numbers of dataclasses are not validated: an int in place of a float is no error.
        content = self.model_dump(mode="json", warnings=False)
        return json.dumps(content, indent=indent, ensure_ascii=ensure_ascii)


class VersionedDocument(Document):
    """The complete output of a command."""

    schema_version: Literal[1]
    """Version of this schema."""


def set_fields(value: BaseModel) -> dict[str, Any]:
    """The fields of an input that have a value."""
    return value.model_dump(exclude_none=True)


class _OfModels(GenerateJsonSchema):
    """Serializers here only leave out keys, so the schema is that of the model."""

    def ser_schema(self, schema: Any) -> None:
        return None


def schema_of(documents: Any, title: str) -> Schema:
    """The JSON schema of a subclass of `Document`, or of a union of them.

    Objects are closed. Keys are required, except those of inputs, where a missing key has the
    default, and metrics that a run does not have.
    """
    schema = TypeAdapter(documents).json_schema(mode="serialization", schema_generator=_OfModels)
    for part in (schema, *schema.get("$defs", {}).values()):
        _close(part)
    _simplify(schema)
    return {"$schema": DIALECT, "title": title, **schema}


def _close(part: Schema) -> None:
    """Of a dataclass: its keys are all printed, and there are no others. Its own docstring, like
    that of an enumeration, is about the code; the keys of this type have a description."""
    if "properties" in part and "additionalProperties" not in part:
        part.pop("description", None)
        part["additionalProperties"] = False
        part["required"] = list(part["properties"])
        for field in part["properties"].values():
            field.pop("default", None)
    if "enum" in part:
        part.pop("description", None)


def _simplify(node: Any) -> None:
    """Remove titles that repeat the name of a key, and null as a default: such a key is missing."""
    if isinstance(node, list):
        for child in node:
            _simplify(child)
    elif isinstance(node, dict):
        for field in node.get("properties", {}).values():
            field.pop("title", None)
            if field.get("default", ...) is None:
                del field["default"]
        for child in node.values():
            _simplify(child)
