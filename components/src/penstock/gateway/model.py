"""The gateway file: an API gateway in front of one or more releases.

`policy.py` turns it into the policy that both outputs render. Fields that a graph has too are in
`graph/gateway.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails

from penstock.files import in_repository
from penstock.graph.gateway import HeaderName, Limits, Tls
from penstock.graph.text_file import read_text_file
from penstock.strict_yaml import problems
from penstock.strict_yaml.base import HEADER_NAME, Items, Port, Spec, invalid
from penstock.strict_yaml.kind import DocumentKind
from penstock.strict_yaml.places import Path as FieldPath
from penstock.strict_yaml.places import place_of
from penstock.strict_yaml.problems import FieldProblem, parse_strictly, shown

MOST_BACKENDS = 16  # limit of one HTTPRoute rule
LARGEST_WEIGHT = 1_000_000  # limit of the Gateway API
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

FORMS = {
    HEADER_NAME: "a header name: letters, digits and '-'",
    DNS_LABEL: "lower-case letters, digits and '-'",
    DNS_NAME: "lower-case letters, digits and '-', with dots between",
}
GATEWAY = DocumentKind(
    is_small=True,
    name="a gateway file",
    example=in_repository("k8s/gateway/gateway.yaml"),
    may_quote_lines=False,  # a broken line may hold an API key
)

# Kubernetes allows 63 characters, of which "-frontend" takes some.
Release = Annotated[str, Field(pattern=DNS_LABEL, max_length=53)]
Label = Annotated[str, Field(pattern=DNS_LABEL, max_length=63)]
Hostname = Annotated[str, Field(pattern=DNS_NAME, max_length=253)]
Weight = Annotated[int, Field(ge=0, le=LARGEST_WEIGHT)]
Percent = Annotated[int, Field(ge=1, le=100)]


class Backend(Spec):
    """A release that serves clients."""

    release: Release = Field(description="Helm release of the graph.")
    namespace: Label | None = Field(
        default=None, description="Namespace of the release; unset: the gateway's."
    )
    port: Port = Field(default=8000, description="Port of the release's frontend Service.")
    weight: Weight = Field(description="Share of the requests, relative to the other backends.")


class Shadow(Spec):
    """A release that gets copies of some requests; its responses are discarded."""

    release: Release = Field(description="Helm release of the candidate graph.")
    namespace: Label | None = Field(
        default=None, description="Namespace of the release; unset: the gateway's."
    )
    port: Port = Field(default=8000, description="Port of the release's frontend Service.")
    percent: Percent = Field(description="Share of all requests that are copied, in percent.")


class ApiKeys(Spec):
    """API keys. A request without a known key gets status 401 and reaches no frontend."""

    secret: Hostname = Field(description="Secret with one entry per client, `client name: key`.")
    header: HeaderName = Field(
        default="Authorization",
        description="Header with the key, with or without a leading `Bearer `.",
    )


class Gateway(Limits):
    """One hostname in front of one or more releases."""

    name: Label = Field(description="Name of the Gateway and of its other objects.")
    namespace: Label = Field(description="Namespace of the Gateway and of the two Secrets.")
    gateway_class: Hostname = Field(description="GatewayClass of Envoy Gateway.")
    hostname: Hostname = Field(description="Hostname that clients use.")
    tls: Tls = Field(description="TLS for client connections.")
    api_keys: ApiKeys = Field(description="API keys of the clients.")
    backends: Items[Backend] = Field(
        description="Releases that serve clients; two with weights are a canary."
    )
    shadow: Shadow | None = Field(
        default=None, description="Candidate that gets copies of requests; unset: none."
    )

    @model_validator(mode="after")
    def _check_backends(self) -> Self:
        if not self.backends:
            fix = "Add `- release: NAME` with `weight: 1`."
            raise invalid("backends", "must name at least one release", fix)
        if len(self.backends) > MOST_BACKENDS:
            message = f"must be at most {MOST_BACKENDS}, got {len(self.backends)}"
            fix = f"Remove backends: one rule of the Gateway API takes at most {MOST_BACKENDS}."
            raise invalid("backends", message, fix)
        if not any(backend.weight for backend in self.backends):
            fix = "Give the release that serves clients `weight: 100`."
            raise invalid("backends", "all weights are 0, so no release serves clients", fix)
        return self

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [backend.release for backend in self.backends]
        for index, name in enumerate(names):
            if name in names[:index]:
                place = f"backends[{index}].release"
                message = f"{name} is listed twice, first in backends[{names.index(name)}]"
                raise invalid(place, message, "Keep one entry, with the sum of the weights.")
        served = [backend.release for backend in self.backends if backend.weight]
        if self.shadow is not None and self.shadow.release in served:
            message = f"{self.shadow.release} is also a backend, so it would get requests twice"
            fix = "Name the release of the candidate, or set the weight of the backend to 0."
            raise invalid("shadow.release", message, fix)
        return self


def field_problems(error: ValidationError) -> list[FieldProblem]:
    """Every error that pydantic found in a gateway file."""
    return [_field_problem(e) for e in error.errors(include_url=False)]


def _field_problem(error: ErrorDetails) -> FieldProblem:
    path: FieldPath = error["loc"]
    match error["type"]:
        case "string_pattern_mismatch" | "string_too_long":
            got = shown(path, _input(error))
            message = f"must be {_form(error)}, got {got}"
            return FieldProblem(place=place_of(path), message=message, fix="Correct the name.")
        case "penstock":
            context = error["ctx"]
            return FieldProblem(
                place=context["place"], message=context["message"], fix=context["fix"]
            )
    return _common_problem(error)


def _form(error: ErrorDetails) -> str:
    if error["type"] == "string_too_long":
        return f"at most {error['ctx']['max_length']} characters"
    return FORMS[error["ctx"]["pattern"]]


def _input(error: ErrorDetails) -> Any:
    """The value; hidden under `api_keys`, where a user may have written a key by mistake."""
    value = error["input"]
    return "(not shown)" if error["loc"][:1] == ("api_keys",) and isinstance(value, str) else value


def _common_problem(error: ErrorDetails) -> FieldProblem:
    """The shared messages for types, bounds and choices."""
    again: InitErrorDetails = {
        "type": error["type"],
        "loc": error["loc"],
        "input": _input(error),
        "ctx": error.get("ctx", {}),
    }
    same = ValidationError.from_exception_data("Gateway", [again])
    return problems.field_problems(same, Gateway)[0]


def load_gateway(path: Path) -> Gateway:
    """InputError when the file cannot be read, GraphError with every problem in it."""
    return parse_gateway(read_text_file(path), str(path))


def parse_gateway(text: str, source: str) -> Gateway:
    """``source`` is the file, for messages. GraphError with every problem."""
    return parse_strictly(text, source, GATEWAY, Gateway, field_problems)
