"""The JSON document of `penstock bench shadow`, from which its published schema is generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from penstock.bench.difference import Difference
from penstock.bench.shadow.live import LiveCounts
from penstock.bench.shadow.report import ShadowResult
from penstock.bench.shadow.verdict import LEVEL, ClassVerdict, Verdict
from penstock.reports.json_document import Document, VersionedDocument


class ShadowTarget(Document):
    """One endpoint."""

    url: str
    """URL of the endpoint, without `/v1`."""
    model: str | None
    """Model that was requested; null with `--keep-model`, and for A with `--listen`."""


class ShadowDocument(VersionedDocument):
    """Responses of two endpoints to the same requests."""

    kind: Literal["shadow"]
    """Form of the document."""
    targets: dict[Literal["A", "B"], ShadowTarget]
    """The endpoints. B is compared with A."""
    as_sent: bool
    """Whether the requests were sent without changes other than the model."""
    concurrency: int
    """Largest number of requests at the same time."""
    seed: int
    """Seed of the order of A and B, and of the choice of repeated requests."""
    requests: int
    """Number of requests in the file, or as many as `--requests` permits; with `--listen`, the
    number of requests of which B should get a copy."""
    compared: int
    """Number of requests that both endpoints got."""
    repeated: int
    """Number of these requests that A got twice."""
    verdict: Verdict
    """`undecided`: with so few requests, no difference of texts would be significant."""
    level: float
    """Probability of a wrong finding in a run of this kind."""
    classes: Sequence[ClassVerdict]
    """Classes of difference that apply to at least one request."""
    latencies: Sequence[Difference]
    """Differences of latency, which are not part of the verdict; empty with fewer than 5 streamed
    requests."""
    both_failed: int
    """Number of requests that failed on both endpoints."""
    without_usage: int
    """Number of requests that both served, and whose prompt tokens cannot be compared."""
    sampled: int
    """Number of compared requests without temperature 0 and without a seed, whose texts are not
    compared."""
    unreachable: int
    """Number of compared requests that B did not get, because it responded to nothing."""
    mirror: LiveCounts | None
    """Requests of clients; null without `--listen`."""
    interrupted: str | None
    """What ended the run early; null if it is complete."""


def shadow_document(result: ShadowResult) -> ShadowDocument:
    run, verdict = result.run, result.verdict
    return ShadowDocument.of(
        *(verdict, run, result),
        targets=dict(zip("AB", run.endpoints, strict=True)),
        requests=result.total,
        compared=verdict.pairs,
        level=LEVEL,
        mirror=result.counts,
    )
