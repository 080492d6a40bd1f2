"""Keeps the requests that Dynamo records with their text, for `--include-text`, and writes them.

Dynamo 1.6.1 writes a record `request_payload` for each chat request if DYN_REQUEST_TRACE_RECORDS
names it. Of these records, only the keys of `SENT` are kept: never HTTP headers, and no users.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from penstock.capture.log_formats import NOT_DECODED, SCHEMA, reason
from penstock.capture.record import BrokenRecordError, RequestRecord
from penstock.errors import InputError, Problem
from penstock.files import PRIVATE, replacing

VARIABLE = "DYN_REQUEST_TRACE_RECORDS=request_end,request_payload"
# Keys of a request body that decide the response. Others, such as `user`, `metadata` and
# `prompt_cache_key`, name people or sessions.
SENT = frozenset((
    "messages", "prompt", "model", "tools", "tool_choice", "parallel_tool_calls",
    "response_format", "max_tokens", "max_completion_tokens", "min_tokens", "temperature",
    "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "n", "frequency_penalty",
    "presence_penalty", "repetition_penalty", "logit_bias", "logprobs", "top_logprobs",
    "ignore_eos", "reasoning_effort", "chat_template_kwargs", "stream", "stream_options",
))  # fmt: skip


class _Payload(msgspec.Struct):
    request_id: str
    request: dict[str, msgspec.Raw]


class _Record(msgspec.Struct):
    """A record, or the envelope of one."""

    schema: str = ""
    event_type: str = ""
    payload: msgspec.Raw = msgspec.Raw()  # other records have another one
    event: _Record | None = None


_DECODER = msgspec.json.Decoder(_Record)


class RequestTexts:
    """The bodies of chat requests, in a temporary file: a log may have more text than fits into
    memory.

    The operating system deletes the file when the process ends, and only its user can read it.
    """

    def __init__(self, folder: Path) -> None:
        """``folder``: of the temporary file. InputError if it cannot be written."""
        try:
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # closed by __exit__
        except OSError as error:
            raise InputError(_unwritable(folder, error)) from None
        self._folder = folder
        self._places: dict[str, tuple[int, int]] = {}  # request ID → offset and length

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # a full disk: writing has failed before
            self._file.close()

    def add(self, line: bytes) -> None:
        """Keep the body of a record `request_payload`; ignore other records.

        BrokenRecordError if it cannot be read. InputError if the disk is full.
        """
        try:
            outer = _DECODER.decode(line)
            record = outer.event or outer
            is_payload = record.schema == SCHEMA and record.event_type == "request_payload"
            if not is_payload or not bytes(record.payload):
                return
            payload = msgspec.json.decode(record.payload, type=_Payload)
        except NOT_DECODED as error:
            raise BrokenRecordError(reason(error)) from None
        kept: dict[str, Any] = {key: value for key, value in payload.request.items() if key in SENT}
        if payload.request_id in self._places or not kept.keys() & {"messages", "prompt"}:
            return
        # In JSON, a line break inside a value is white space between tokens.
        body = msgspec.json.encode(kept).replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"
        try:
            offset = self._file.seek(0, os.SEEK_END)
            self._file.write(body)
        except OSError as error:
            raise InputError(_unwritable(self._folder, error)) from None
        self._places[payload.request_id] = (offset, len(body))

    def known(self, requests: Sequence[RequestRecord]) -> int:
        """How many of ``requests`` have text."""
        return sum(request.key in self._places for request in requests)

    def write(self, path: Path, requests: Sequence[RequestRecord]) -> None:
        """One body per line, in the order of ``requests``, in a file that only its user can read.

        InputError if it cannot be written.
        """
        try:
            with replacing(path, PRIVATE) as file:
                for request in requests:
                    if place := self._places.get(request.key):
                        self._file.seek(place[0])
                        file.write(self._file.read(place[1]))
        except OSError as error:
            raise InputError(_unwritable(path, error)) from None


def no_text(source: str) -> Problem:
    """The error if no request has text."""
    return Problem(
        file=source,
        message="no request has text, so --include-text has nothing to write",
        fix=f"Set {VARIABLE} on the frontends, which Dynamo 1.6 applies to chat requests, and "
        "capture again, or omit --include-text.",
    )


def text_warnings(path: Path, known: int, total: int) -> list[str]:
    """Warnings about the written file: what it contains, and how many requests have no text."""
    notes = [f"{path} contains the text that users sent; only you can read the file"]
    if known < total:
        notes.append(
            f"{total - known:,} of {total:,} requests have no text, and are not in {path}: Dynamo "
            "writes the text of chat requests only"
        )
    return notes


def _unwritable(path: Path, error: OSError) -> Problem:
    message = f"cannot be written: {error.strerror or error}"
    fix = "Free space, or name a file in a folder in which you may write."
    return Problem(file=str(path), message=message, fix=fix)
