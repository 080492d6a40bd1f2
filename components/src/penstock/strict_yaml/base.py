"""The strict base class of every input model, and the scalar types that they share."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue
from pydantic_core import PydanticCustomError

from penstock.strict_yaml.kind import MOST_REPLICAS


class Spec(BaseModel):
    """User input: no unknown keys, no type conversion, no change after loading.

    pydantic's default mode reads `"2"` and `true` as an int and drops unknown keys; in a file that
    decides how many GPUs run, each of these hides a mistake.

    A validator is built at its first use, not at import: most models are only parts of another.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def as_tuple(value: object) -> object:
    """YAML has lists; a frozen model has tuples."""
    return tuple(value) if isinstance(value, list) else value


T = TypeVar("T")
Items = Annotated[tuple[T, ...], BeforeValidator(as_tuple)]

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Replicas = Annotated[int, Field(ge=0, le=MOST_REPLICAS)]
Port = Annotated[int, Field(ge=1, le=65535)]
Text = Annotated[str, Field(min_length=1)]
OBJECT_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
HEADER_NAME = r"^[A-Za-z0-9-]+$"
FOLDER_PATH = r"^(/[A-Za-z0-9._-]+)+$"
# Without credentials, which the manifests would contain.
HTTP_URL = r"^https?://[A-Za-z0-9._-]+(:[0-9]{1,5})?(/[^@\s]*)?$"
# A collector inside the cluster: no TLS, no path, which Dynamo adds itself for HTTP.
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
OTLP_ENDPOINT = rf"^http://[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?:{_PORT}$"
QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
# The name of a Kubernetes object: a DNS subdomain.
ObjectName = Annotated[str, Field(pattern=OBJECT_NAME)]
# Below the root, without characters that a mount or a shell reads differently.
FolderPath = Annotated[str, Field(pattern=FOLDER_PATH)]
HttpUrl = Annotated[str, Field(pattern=HTTP_URL)]
# A Kubernetes resource quantity, without exponents.
Quantity = Annotated[str, Field(pattern=QUANTITY)]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]
Env = dict[EnvName, str]
# Settings of the engine or of Kubernetes, passed through unchanged.
Opaque = dict[str, JsonValue]


def invalid(place: str, message: str, fix: str) -> PydanticCustomError:
    """The error of a validator that sees several fields; `problems.findings` reports it.

    ``place`` is relative to the object that the validator sees.
    """
    return PydanticCustomError(
        "penstock", "{message}", {"message": message, "place": place, "fix": fix}
    )
