"""The strict base of every part of a graph, and the scalar types they share."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue
from pydantic_core import PydanticCustomError


class Spec(BaseModel):
    """User input: nothing unknown, nothing coerced, nothing changed after load.

    pydantic's default mode takes `"2"` and `true` for an int and drops unknown keys; in a file
    that decides how many GPUs run, each of those is a mistake nobody is told about.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _as_tuple(value: object) -> object:
    """YAML has lists; a frozen model holds tuples."""
    return tuple(value) if isinstance(value, list) else value


T = TypeVar("T")
Items = Annotated[tuple[T, ...], BeforeValidator(_as_tuple)]

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=1, le=65535)]
Text = Annotated[str, Field(min_length=1)]
OBJECT_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
FOLDER_PATH = r"^(/[A-Za-z0-9._-]+)+$"
# Without credentials, which would stand in manifests.
HTTP_URL = r"^https?://[A-Za-z0-9._-]+(:[0-9]{1,5})?(/[^@\s]*)?$"
QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
# Of a Kubernetes object: a DNS subdomain.
ObjectName = Annotated[str, Field(pattern=OBJECT_NAME)]
# Below the root, with nothing that a mount or a shell would read differently.
FolderPath = Annotated[str, Field(pattern=FOLDER_PATH)]
HttpUrl = Annotated[str, Field(pattern=HTTP_URL)]
# A Kubernetes resource quantity, without the exponent forms nobody writes.
Quantity = Annotated[str, Field(pattern=QUANTITY)]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]
Env = dict[EnvName, str]
# The engine's or Kubernetes' own words, passed through as they are.
Opaque = dict[str, JsonValue]


def invalid(place: str, message: str, fix: str) -> PydanticCustomError:
    """The error of a validator that sees several fields; `problems.findings` reports it.

    ``place`` is relative to the object that the validator sees.
    """
    return PydanticCustomError(
        "penstock", "{message}", {"message": message, "place": place, "fix": fix}
    )
