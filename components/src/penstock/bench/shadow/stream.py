"""Reads a streamed completion from its bytes, as they arrive."""

from __future__ import annotations

import json

from penstock.bench.shadow.response import Assembler, BrokenResponseError, ShadowResponse

LONGEST_LINE = 2**26  # bytes of one event; a response that never ends must not fill the memory
EVENTS = "text/event-stream"


class StreamReader:
    """Server-sent events of one completion; comments are skipped. Times in seconds since the
    request was sent."""

    def __init__(self) -> None:
        self.is_complete = False
        self._found = Assembler()
        self._rest = b""

    def feed(self, data: bytes, at_s: float) -> None:
        """The next bytes. BrokenResponseError for an event that is none of a completion."""
        # Not `splitlines` of the text, which also splits at characters that JSON permits.
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._add(line, at_s)
        if len(self._rest) > LONGEST_LINE:
            raise BrokenResponseError("an event of the stream is too long")

    def response(self, e2e_s: float) -> ShadowResponse:
        """After the last bytes. BrokenResponseError if the stream is incomplete."""
        self._add(self._rest, e2e_s)
        if not self.is_complete and not self._found.finish_reason:
            raise BrokenResponseError("the stream ended early")
        return self._found.response(e2e_s, is_stream=True)

    def _add(self, line: bytes, at_s: float) -> None:
        text = line.decode(errors="replace")
        if text.startswith("event:") and text.removeprefix("event:").strip() == "error":
            raise BrokenResponseError("an error in the stream")
        if self.is_complete or not text.startswith("data:"):
            return
        data = text.removeprefix("data:").strip()
        if data == "[DONE]":
            self.is_complete = True
        else:
            self._found.add(parsed(data), at_s)


def is_stream(content_type: str) -> bool:
    """BrokenResponseError for a type that no completion has."""
    kind = content_type.split(";", maxsplit=1)[0].strip().lower()
    if kind not in (EVENTS, "application/json"):
        raise BrokenResponseError(f"the response is {kind or 'without a type'}, not JSON")
    return kind == EVENTS


def document(data: bytes, e2e_s: float) -> ShadowResponse:
    """A response that is not streamed. BrokenResponseError if it is no completion."""
    assembler = Assembler()
    assembler.add(parsed(data.decode(errors="replace")), e2e_s)
    return assembler.response(e2e_s, is_stream=False)


def parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BrokenResponseError("the response is not JSON") from None
