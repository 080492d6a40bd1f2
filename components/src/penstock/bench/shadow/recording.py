"""What a client got from A through the proxy, recorded while it passes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import httpx

from penstock.bench.shadow.response import BrokenResponseError, ShadowResponse, failed, refused
from penstock.bench.shadow.stream import StreamReader, document, is_stream

MOST_BYTES = 2**26  # of a response that is compared; longer ones only pass
ENCODINGS = frozenset({"gzip", "deflate"})  # that httpx reads without another package
LAST_BYTES = 64  # of a stream, among which `[DONE]` is sought


class Recording:
    """One response. It is read only after its end, so that reading does not delay the client."""

    def __init__(self) -> None:
        self.is_readable = True
        """Whether it can be compared: not if it is very long, or compressed in a rare form."""
        self._status = 0
        self._content_type = self._encoding = self._error = ""
        self._began = self._ended = time.monotonic()
        self._parts: list[tuple[float, bytes]] = []
        self.size = 0
        """Bytes of its body."""

    @property
    def is_done(self) -> bool:
        """Whether the last part ends a stream; some clients then close the connection at once."""
        return bool(self._parts) and b"[DONE]" in self._parts[-1][1][-LAST_BYTES:]

    def began(self) -> None:
        """The request is sent now."""
        self._began = time.monotonic()

    def started(self, status: int, headers: Mapping[str, str]) -> None:
        self._status = status
        self._content_type = headers.get("Content-Type", "")
        self._encoding = headers.get("Content-Encoding", "").replace("identity", "")
        self.is_readable = self._encoding in ("", *ENCODINGS)

    def add(self, part: bytes) -> None:
        self._ended = time.monotonic()
        self.size += len(part)
        self.is_readable = self.is_readable and self.size <= MOST_BYTES
        if self.is_readable:
            self._parts.append((self._ended - self._began, part))
        else:
            self._parts.clear()

    def failed(self, error: str) -> None:
        """``error``: why there is no complete response."""
        self._error, self._ended = error, time.monotonic()

    def response(self) -> ShadowResponse:
        """As `Client.send` returns it."""
        took_s = self._ended - self._began
        if self._error:
            return failed(self._error, took_s)
        try:
            if self._status != 200:
                return refused(self._status, self._body(), took_s)
            if not is_stream(self._content_type):
                return document(self._body(), took_s)
            reader = StreamReader()
            if self._encoding:
                reader.feed(self._body(), took_s)
                return replace(reader.response(took_s), ttft_ms=None, itl_ms=None)
            for at_s, part in self._parts:
                reader.feed(part, at_s)
            return reader.response(took_s)
        except BrokenResponseError as broken:
            return failed(str(broken), took_s)

    def _body(self) -> bytes:
        data = b"".join(part for _, part in self._parts)
        headers = {"content-encoding": self._encoding} if self._encoding else {}
        try:
            return httpx.Response(200, headers=headers, content=data).content
        except httpx.DecodingError:
            raise BrokenResponseError(f"the response is not {self._encoding}") from None
