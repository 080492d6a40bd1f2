"""The JSON document of `penstock capture`, from which its published schema is generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal

from penstock.capture.capture import Captured
from penstock.capture.record import RequestRecord
from penstock.capture.report import recorded_hit_rate, span_s
from penstock.capture.trace_file import TraceFiles
from penstock.errors import Problem
from penstock.reports.charts import nearest_rank
from penstock.reports.json_document import Document, VersionedDocument

Kind = Literal["other_event", "server_message", "other_path", "failed", "no_lengths", "duplicate"]


class FilesDocument(Document):
    """Paths of the files that were written."""

    trace: str
    """Path of the trace."""
    workload: str
    """Path of the workload file, which names the trace."""
    requests: str | None
    """Path of the requests with their text; null without `--include-text`, or if no request has
    text."""


class TokensDocument(Document):
    """Number of tokens per request. p50 and p99 are nearest ranks."""

    mean: float
    """Mean in tokens."""
    p50: int
    """Median in tokens."""
    p99: int
    """p99 in tokens."""


class SkippedDocument(Document):
    """A record that could not be read."""

    file: str
    """Path of the file, or subject of NATS."""
    line: int
    """Number of the line, or of the message of NATS, from 1."""
    problem: str
    """What is wrong with the record."""


class JumpDocument(Document):
    """A jump of the clock; the times after it are corrected."""

    file: str
    """Path of the file, or subject of NATS."""
    line: int
    """Number of the line, or of the message of NATS, after the jump."""
    jump_s: float
    """Size of the jump in seconds; negative if the clock jumped back."""


class CaptureDocument(VersionedDocument):
    """Result of a capture."""

    error: str | None
    """Why the capture failed or ended early; null if it did not."""
    engine_is_substitute: bool | None
    """Whether a mocker simulated the engine for at least one request; null if it is not known.
    Only workers of graphs that are up on this machine are known."""
    files: FilesDocument
    """Files that were written."""
    records: int
    """Number of records that were read, of all kinds."""
    requests: int
    """Number of requests in the trace."""
    duration_s: float
    """Time between the arrivals of the first and the last request in seconds."""
    request_rate: float | None
    """Requests/s; null if all requests arrived at the same time."""
    isl: TokensDocument
    """Input length of the requests."""
    osl: TokensDocument
    """Output length of the requests."""
    with_prefix_hashes: int
    """Number of requests that have prefix hashes in the source."""
    prefix_hit_rate: float | None
    """Share of input tokens that the frontends recorded as found in a prefix cache; null if the
    source has none."""
    left_out: Mapping[Kind, int]
    """Number of valid records that are not in the trace, by kind; kinds without records are
    missing. `other_event`: not the end of a request. `server_message`: messages of Envoy.
    `other_path`: requests that generate no text. `failed`: requests with another status than 200.
    `no_lengths`: records without token counts. `duplicate`: records with the ID and the arrival of
    an earlier one."""
    skipped: Sequence[SkippedDocument]
    """Records that could not be read."""
    unfinished_files: Sequence[str]
    """Paths of files that end inside a line, which is skipped."""
    clock_jumps: Sequence[JumpDocument]
    """Jumps of the clocks of the logs."""
    warnings: Sequence[str]
    """Text of all warnings."""


def capture_document(
    captured: Captured,
    requests: Sequence[RequestRecord],
    files: TraceFiles,
    warnings: Sequence[str],
    *,
    engine_is_substitute: bool | None,
    with_text: bool,
    error: Problem | None,
) -> CaptureDocument:
    """``requests``: those of the trace, at least one, in order of arrival and with lengths."""
    seconds = span_s(requests)
    return CaptureDocument.of(
        captured,
        error=str(error) if error else None,
        engine_is_substitute=engine_is_substitute,
        files=FilesDocument(
            trace=str(files.trace),
            workload=str(files.workload),
            requests=str(files.requests) if with_text else None,
        ),
        requests=len(requests),
        duration_s=round(seconds, 6),
        request_rate=len(requests) / seconds if seconds else None,
        isl=_tokens([request.input_tokens or 0 for request in requests]),
        osl=_tokens([request.output_tokens or 0 for request in requests]),
        with_prefix_hashes=sum(bool(request.prefixes) for request in requests),
        prefix_hit_rate=recorded_hit_rate(requests),
        left_out={kind.name.lower(): count for kind, count in captured.left_out.items()},
        skipped=[
            SkippedDocument(file=each.file or "", line=each.line or 0, problem=each.message)
            for each in captured.broken
        ],
        unfinished_files=captured.unfinished,
        clock_jumps=[
            JumpDocument(file=jump.file, line=jump.line, jump_s=jump.ms / 1000)
            for jump in captured.jumps
        ],
        warnings=warnings,
    )


def _tokens(counts: Sequence[int]) -> TokensDocument:
    ordered = sorted(counts)
    p50, p99 = (nearest_rank(ordered, share) for share in (0.5, 0.99))
    return TokensDocument(mean=fmean(counts), p50=int(p50), p99=int(p99))
