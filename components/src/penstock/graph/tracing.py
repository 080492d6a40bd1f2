"""The tracing section of a graph: export of OpenTelemetry traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from penstock.graph.messages import problem
from penstock.strict_yaml.base import OTLP_ENDPOINT, Spec

# Variables that the chart derives from the section.
VARIABLES = (
    "OTEL_EXPORT_ENABLED",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_SERVICE_NAME",
    "OTEL_TRACES_SAMPLE_RATIO",
)
# They replace the endpoint above for traces.
SPECIFIC = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")


class Tracing(Spec):
    endpoint: Annotated[str, Field(pattern=OTLP_ENDPOINT)] = Field(
        description=(
            "OTLP endpoint of an OpenTelemetry Collector, Tempo or Jaeger, with its port. Port "
            "4318 selects OTLP over HTTP, any other port OTLP over gRPC. `up` records the traces "
            "on this machine instead."
        )
    )
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.1,
        description=(
            "Share of requests that are traced, from 0 to 1. A request with a traceparent header "
            "follows the sampling decision of the header. `up` traces all requests."
        ),
    )


def refuse_own_variables(sections: Mapping[str, Mapping[str, str]]) -> None:
    """An error for a variable of the export in an `env` section (place → variables)."""
    for place, env in sections.items():
        for name in (*VARIABLES, *SPECIFIC):
            if name in env:
                raise problem(f"{place}.{name}", "variable_with_tracing")
