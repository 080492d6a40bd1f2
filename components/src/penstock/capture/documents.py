"""The JSON document of `penstock capture`, from which its published schema is generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from statistics import fmean
from typing import Final, Literal

from penstock.capture.capture import Captured, TimedRequest
from penstock.capture.record import LeftOut
from penstock.capture.report import Report, recorded_hit_rate, span_s
from penstock.capture.trace_file import TraceFiles
from penstock.errors import Problem
from penstock.reports.json_document import Document

SCHEMA_VERSION: Final = 1
Kind = Literal["other_event", "server_message", "other_path", "failed", "no_lengths", "duplicate"]
KINDS: Mapping[LeftOut, Kind] = {
    LeftOut.OTHER_EVENT: "other_event",
    LeftOut.SERVER_MESSAGE: "server_message",
    LeftOut.OTHER_PATH: "other_path",
    LeftOut.FAILED: "failed",
    LeftOut.NO_LENGTHS: "no_lengths",
    LeftOut.DUPLICATE: "duplicate",
}


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


class CaptureDocument(Document):
    """Result of a capture."""

    schema_version: Literal[1]
    """Version of this schema."""
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


def as_json(
    captured: Captured,
    requests: Sequence[TimedRequest],
    files: TraceFiles,
    found: Report,
    *,
    with_text: bool,
    error: Problem | None,
) -> str:
    """``requests``: those of the trace, at least one, in order of arrival and with lengths."""
    seconds = span_s(requests)
    records = [request.record for request in requests]
    return CaptureDocument(
        schema_version=SCHEMA_VERSION,
        error=str(error) if error else None,
        engine_is_substitute=found.engine_is_substitute,
        files=FilesDocument(
            trace=str(files.trace),
            workload=str(files.workload),
            requests=str(files.requests) if with_text else None,
        ),
        records=captured.records,
        requests=len(requests),
        duration_s=round(seconds, 6),
        request_rate=len(requests) / seconds if seconds else None,
        isl=_tokens([record.input_tokens or 0 for record in records]),
        osl=_tokens([record.output_tokens or 0 for record in records]),
        with_prefix_hashes=sum(1 for record in records if record.prefixes),
        prefix_hit_rate=recorded_hit_rate(records),
        left_out={KINDS[kind]: count for kind, count in captured.left_out.items()},
        skipped=[
            SkippedDocument(file=one.file or "", line=one.line or 0, problem=one.message)
            for one in captured.broken
        ],
        unfinished_files=captured.unfinished,
        clock_jumps=[
            JumpDocument(file=jump.file, line=jump.line, jump_s=jump.ms / 1000)
            for jump in captured.jumps
        ],
        warnings=found.warnings,
    ).as_json()


def _tokens(counts: Sequence[int]) -> TokensDocument:
    ordered = sorted(counts)
    p50, p99 = (ordered[ceil(share * len(ordered)) - 1] for share in (0.5, 0.99))
    return TokensDocument(mean=fmean(counts), p50=p50, p99=p99)
