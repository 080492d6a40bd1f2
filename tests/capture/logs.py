"""Lines of the logs that `capture` reads, and the command in a folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.capture import CaptureResult

from penstock.cli.main import main

START_MS = 1_795_745_115_000


def record(
    number: int,
    *,
    at_ms: int | None = None,
    hashes: Sequence[int] = (11, 12, 13, 14, 15),
    tokens: int = 70,
    block_tokens: int = 16,
    **request: Any,
) -> dict[str, Any]:
    """A record of Dynamo's request trace, as 1.6.1 writes it; it ends 40 ms after its arrival."""
    received = START_MS + 1000 * number if at_ms is None else at_ms
    replay = {
        "trace_block_size": block_tokens,
        "input_length": tokens,
        "input_sequence_hashes": list(hashes),
    }
    fields = {
        "request_id": f"id-{number}",
        "input_tokens": tokens,
        "output_tokens": 4,
        "cached_tokens": 0,
        "request_received_ms": received,
        "total_time_ms": 40.0,
        "replay": replay,
    }
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": received + 40,
        "request": fields | request,
    }


def enveloped(inner: dict[str, Any], writer_ms: int) -> str:
    """A line of the file sink."""
    return json.dumps({"timestamp": writer_ms, "event": inner}) + "\n"


def entry(second: int, **changes: Any) -> dict[str, Any]:
    """An entry of Envoy Gateway's default access log."""
    return {
        "start_time": f"2026-11-27T02:00:{second:02d}.250Z",
        "method": "POST",
        "x-envoy-origin-path": "/v1/chat/completions?key=PLANTEDQUERY",
        "response_code": 200,
        "duration": 900,
        "bytes_received": 4096,
        "x-request-id": f"r-{second}",
        "user-agent": "PLANTEDAGENT",
    } | changes


def text_entry(second: int) -> str:
    """The same in Envoy's default text format."""
    return (
        f'[2026-11-27T02:00:{second:02d}.250Z] "POST /v1/chat/completions?key=PLANTEDQUERY '
        f'HTTP/1.1" 200 - 4096 512 900 899 "10.0.0.1" "PLANTEDAGENT \\"x\\"" "r-{second}" '
        '"llm.example.com" "10.0.0.2:8000"\n'
    )


def lines(*records: dict[str, Any] | str) -> str:
    """Of a log; a text is there as it is."""
    return "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in records)


@dataclass(frozen=True, kw_only=True)
class Capture:
    """`penstock capture` in a folder of its own."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    def write(self, *records: dict[str, Any] | str, name: str = "log.jsonl") -> Path:
        path = self.folder / name
        path.write_text(lines(*records))
        return path

    def rows(self, log: Path, *options: str) -> list[dict[str, Any]]:
        """Of the trace of a file or a pattern."""
        out = self.folder / "trace.jsonl"
        assert main(["capture", str(log), "-o", str(out), "--force", *options]) == 0
        return [json.loads(line) for line in out.read_text().splitlines()]

    def fails(self, *arguments: str | Path, code: int = 3) -> str:
        """The error."""
        self.printed()
        assert main(["capture", *map(str, arguments)]) == code
        return self.printed().err

    def printed(self) -> CaptureResult[str]:
        """Since the last call."""
        return self.capsys.readouterr()
