"""The sections of a graph that only one command reads: verify, drill and checks."""

from __future__ import annotations

from pydantic import Field

from penstock.graph.choices import AnyFaultKind, Probe
from penstock.strict_yaml.base import Count, Items, Positive, Spec, Text


class Verify(Spec):
    must_pass: Items[Probe] = Field(
        default=(),
        description="Probes of `penstock verify` for which an inconclusive result is a failure.",
    )


class Drill(Spec):
    permitted_failures: dict[AnyFaultKind, Count] = Field(
        default={},
        description=(
            "Maximum number of avoidable failures of requests per fault, for each kind of fault; "
            "0 for kinds that are not listed."
        ),
    )
    stall_s: Positive = Field(
        default=5,
        description="Time in seconds without a token after which a request counts as stalled.",
    )


class Checks(Spec):
    suppress: dict[str, Text] = Field(
        default={},
        description=(
            "Rules of `penstock check` to suppress in this graph, each with the reason. Their "
            "findings are not counted."
        ),
    )
