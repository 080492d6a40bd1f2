"""Reads Dynamo's request trace from NATS, live or from a JetStream stream, until it is
stopped.

Each request is appended to a partial trace at once, so that a crash loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from penstock.capture.capture import Captured, jump_problem
from penstock.capture.log_formats import parse_dynamo
from penstock.capture.record import BrokenRecordError, LeftOut, StreamClock
from penstock.capture.trace_file import BlockIds, trace_line
from penstock.errors import InputError, Problem
from penstock.files import append

SUBJECT = "dynamo.request_trace.v1"  # the default of DYN_REQUEST_TRACE_NATS_SUBJECT
SCHEMES = ("nats", "tls", "ws", "wss")
CONNECT_S = 5
LOST_AFTER = 30  # attempts to connect again
# The requests of a partial trace are in the order of their ends, and no timestamp is negative: the
# first one gets this timestamp, so that longer requests that arrived before it may follow.
LONGEST_REQUEST_MS = 3_600_000.0
# The variables that Dynamo reads, and the options of nats-py.
CREDENTIALS = {
    "NATS_AUTH_USERNAME": "user",
    "NATS_AUTH_PASSWORD": "password",
    "NATS_AUTH_TOKEN": "token",
    "NATS_AUTH_CREDENTIALS_FILE": "user_credentials",
}


@dataclass(frozen=True, kw_only=True)
class NatsSource:
    """Where records come from, and when the capture ends."""

    url: str
    subject: str = SUBJECT
    stream: str | None = None  # of JetStream: from its first message; None: from now on
    duration_s: float | None = None
    requests: int | None = None
    reconnects: int = LOST_AFTER
    reconnect_s: float = 1.0  # between two attempts to connect again
    watch_s: float = 1.0  # between checks whether the stream was created again

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return shown([self.url])


def shown(sources: Sequence[str]) -> str:
    """Files and URLs for a message, without the passwords of the URLs."""
    return ", ".join(_without_user(source) if is_nats(source) else source for source in sources)


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def is_nats(source: str) -> bool:
    return source.partition("://")[0] in SCHEMES and "://" in source


def capture_nats(
    source: NatsSource,
    partial: Path,
    *,
    notify: Callable[[str], None],
    strict: bool = False,
    on_other: Callable[[bytes], None] = lambda _: None,
) -> tuple[Captured, Problem | None]:
    """The captured requests, and the error that ended the capture early, or None.

    ``partial``: the file to append to; the caller deletes it. ``notify``: gets a line about each
    event of the connection. ``on_other``: as in `capture_files`. InputError if no connection can be
    made.
    """
    reader: _Reader | None = None
    try:
        with partial.open("wb", buffering=0) as file:
            reader = _Reader(source, file, notify, strict, on_other)
            return asyncio.run(reader.run())
    except OSError as error:
        kept = ""
        if reader is not None and reader.written:
            kept = f"; it contains the {reader.written:,} requests until then"
        message = f"cannot be written: {error.strerror or error}{kept}"
        fix = "Free space, or name a file in a folder in which you may write."
        raise InputError(message, file=str(partial), fix=fix) from None
    finally:
        if partial.is_file() and not partial.stat().st_size:
            partial.unlink()


class _Reader:
    def __init__(
        self,
        source: NatsSource,
        file: FileIO,
        notify: Callable[[str], None],
        strict: bool,
        on_other: Callable[[bytes], None],
    ) -> None:
        self._source = source
        self._file = file
        self._notify = notify
        self._strict = strict
        self._on_other = on_other
        self._captured = Captured()
        self._clock = StreamClock()
        self._ids = BlockIds()
        self._start_ms: float | None = None  # Unix time of timestamp 0 of the partial trace
        self._stop = asyncio.Event()
        self._problem: Problem | None = None
        self._write_error: OSError | None = None
        self._created: datetime | None = None  # when the JetStream stream was
        self._subscription: Subscription | None = None
        self.written = 0
        """Requests in the file."""

    async def run(self) -> tuple[Captured, Problem | None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        client = await self._connect()
        watch: asyncio.Task[None] | None = None
        try:
            await self._subscribe(client)
            stream = f", stream {self._source.stream}" if self._source.stream else ""
            self._notify(f"reading {self._source.subject} from {self._source.shown}{stream}")
            if self._created is not None:
                watch = asyncio.create_task(self._watch_stream(client))
            async with asyncio.timeout(self._source.duration_s):
                await self._stop.wait()
        except TimeoutError:
            pass
        finally:
            self._stop.set()  # closing is no loss of the connection
            if watch is not None:
                watch.cancel()
            if not client.is_closed:
                await client.close()
        if self._write_error is not None:
            raise self._write_error
        self._captured.jumps = self._clock.jumps
        return self._captured, self._problem

    async def _connect(self) -> Client:
        credentials = {option: os.environ.get(name) for name, option in CREDENTIALS.items()}
        options: dict[str, Any] = {name: value for name, value in credentials.items() if value}
        try:
            # The first failure is an error at once; with reconnects, nats-py would try again.
            once = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0}
            await (await self._open(options, **once)).close()
            return await self._open(
                options,
                allow_reconnect=True,
                max_reconnect_attempts=self._source.reconnects,
                reconnect_time_wait=self._source.reconnect_s,
                error_cb=self._on_error,
                disconnected_cb=self._on_disconnect,
                reconnected_cb=self._on_reconnect,
                closed_cb=self._on_closed,
            )
        except (NatsError, OSError, ValueError, TimeoutError) as error:
            raise InputError(self._unreachable(error)) from None

    async def _open(self, credentials: dict[str, Any], **options: Any) -> Client:
        quiet = {"error_cb": _ignore} | options
        return await nats.connect(
            self._source.url, connect_timeout=CONNECT_S, **quiet, **credentials
        )

    def _unreachable(self, error: Exception) -> Problem:
        message = f"cannot connect to {self._source.shown}: {_text(error)}"
        fix = f"Check the address, and the credentials in {', '.join(CREDENTIALS)}."
        return Problem(message=message, fix=fix)

    async def _subscribe(self, client: Client) -> None:
        if self._source.stream is None:
            await client.subscribe(self._source.subject, cb=self._on_message)
            await client.flush()
            return
        created = await self._created_at(client)
        try:
            self._subscription = await client.jetstream().subscribe(
                self._source.subject,
                stream=self._source.stream,
                ordered_consumer=True,
                cb=self._on_message,
            )
            self._created = created
        except (NatsError, TimeoutError, ValueError) as error:
            message = f"cannot read subject {self._source.subject} of stream "
            message += f"{self._source.stream}: {_text(error)}"
            fix = "Check --stream and --subject, or omit --stream to read new records only."
            raise InputError(message, fix=fix) from None

    async def _watch_stream(self, client: Client) -> None:
        """Read a stream again from its first record if it was deleted and created again, as one in
        the memory of a server that restarted. The subscription would continue at the old number."""
        while True:
            await asyncio.sleep(self._source.watch_s)
            created = await self._created_at(client)
            if created is None or created == self._created:
                continue
            if self._subscription is not None:
                with contextlib.suppress(NatsError, TimeoutError):
                    await self._subscription.unsubscribe()
            with contextlib.suppress(InputError):  # it was deleted again; the next look finds it
                await self._subscribe(client)
                self._notify(f"stream {self._source.stream} was created again; reading all of it")

    async def _created_at(self, client: Client) -> datetime | None:
        """When the stream was created; None if it does not exist, NATS is not connected, or the
        user may not ask."""
        assert self._source.stream is not None
        try:
            return (await client.jetstream().stream_info(self._source.stream)).created
        except (NatsError, TimeoutError, ValueError):  # ValueError: a name with a dot
            return None

    async def _on_message(self, message: Msg) -> None:
        """Records after the end are not read, so that `--requests N` gives N requests."""
        if self._stop.is_set():
            return
        captured = self._captured
        captured.records += 1
        try:
            parsed = parse_dynamo(message.data)
            if parsed is LeftOut.OTHER_EVENT:
                self._on_other(message.data)
        except BrokenRecordError as error:
            self._broken(str(error))
            return
        except InputError as error:  # the text cannot be written
            self._end(error.problems[0])
            return
        if isinstance(parsed, LeftOut):
            captured.left_out[parsed] += 1
            return
        if not captured.add(parsed, self._clock, self._source.subject, captured.records):
            return
        if self._strict and self._clock.jumps:
            captured.requests.pop()  # with a wrong time
            self._end(jump_problem(self._clock.jumps[-1]))
            return
        request = captured.requests[-1]
        if self._start_ms is None:
            self._start_ms = request.arrival_ms - LONGEST_REQUEST_MS
        self._write(trace_line(request, self._ids, self._start_ms).encode())
        if len(captured.requests) == self._source.requests:
            self._stop.set()

    def _write(self, line: bytes) -> None:
        """Append a line, or none of it: the trace up to there can be used."""
        try:
            append(self._file, line)
        except OSError as error:
            self._write_error = error
            self._stop.set()
            return
        self.written += 1

    def _broken(self, text: str) -> None:
        number = self._captured.records
        problem = Problem(file=self._source.subject, line=number, message=text)
        self._captured.broken.append(problem)
        if self._strict:
            self._end(problem)

    def _end(self, problem: Problem) -> None:
        self._problem = self._problem or problem
        self._stop.set()

    async def _on_error(self, error: Exception) -> None:
        """Errors while connecting come as exceptions, too."""
        if self._captured.records:
            self._notify(f"NATS: {_text(error)}")

    async def _on_disconnect(self) -> None:
        if not self._stop.is_set():
            self._notify("the connection to NATS is lost; connecting again")

    async def _on_reconnect(self) -> None:
        missed = "" if self._source.stream else "; records in between are not in the trace"
        self._notify(f"connected again{missed}")

    async def _on_closed(self) -> None:
        if not self._stop.is_set():
            seconds = self._source.reconnects * self._source.reconnect_s
            message = f"the connection to {self._source.shown} was lost for about {seconds:g} s"
            self._end(Problem(message=message, fix="Start NATS, and capture again."))


async def _ignore(_: Exception) -> None:
    """The same error is raised."""


def _text(error: Exception) -> str:
    return str(error).removeprefix("nats: ") or type(error).__name__
