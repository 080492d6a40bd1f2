"""The JSON document of `penstock verify`, from which its published schema is generated."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.reports.json_document import Document, VersionedDocument
from penstock.verify.probes import NOT_COVERED, ProbeRun
from penstock.verify.result import Verdict


class ProbeDocument(Document):
    """One probe and its result."""

    name: str
    """Name of the probe."""
    verdict: Verdict
    """Whether the deployment does what the graph declares."""
    detail: str
    """What was observed."""
    not_covered: str
    """What the probe does not test, also if it passes."""
    hint: str
    """Likely cause, or what to do; empty if there is none."""
    seconds: float
    """Duration of the probe in seconds."""
    required: bool
    """Whether `verify.must_pass` of the graph lists the probe, so that "cannot tell" is a
    failure."""
    ok: bool
    """Whether the probe is no failure."""


class VerifyDocument(VersionedDocument):
    """Results of all probes."""

    ok: bool
    """Whether no probe is a failure."""
    engine_is_substitute: bool
    """Whether mockers run instead of the engine."""
    probes: Sequence[ProbeDocument]
    """Results in order of the probes."""


def verify_document(probes: Sequence[ProbeRun], *, is_mocked: bool) -> VerifyDocument:
    return VerifyDocument.of(
        ok=all(probe.ok for probe in probes),
        engine_is_substitute=is_mocked,
        probes=[
            ProbeDocument.of(
                *(probe, probe.result),
                not_covered=NOT_COVERED[probe.name],
                seconds=round(probe.seconds, 3),
            )
            for probe in probes
        ],
    )
