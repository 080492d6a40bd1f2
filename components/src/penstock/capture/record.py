"""What a parser makes of one line or message: a request, or the reason why there is none.

Jumps of the clock in one log are corrected, so that its order and its gaps stay plausible.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, lcm

from penstock.text.numbers import limit_text
from penstock.workload.request import BLOCK_TOKENS

LARGEST_TOKENS = 10**9
LARGEST_MS = 10**14  # the year 5138; larger values are microseconds or nanoseconds
TOLERANCE_MS = 2_000.0  # two records may be written in another order than their requests ended
LONGEST_PAUSE_MS = 24 * 3600 * 1000.0  # without a monotonic clock, more is a jump


class BrokenRecordError(Exception):
    """A record that cannot be read; the message contains nothing of a prompt or a key."""


class LeftOut(StrEnum):
    """Records that are valid and not part of a trace."""

    OTHER_EVENT = "records of other events"
    SERVER_MESSAGE = "messages of Envoy itself"
    OTHER_PATH = "requests that do not generate text (path or method)"
    FAILED = "requests that failed (status not 200)"
    NO_LENGTHS = "records without token counts"
    DUPLICATE = "duplicate records"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request, without its text. Times are Unix times in ms."""

    key: str  # of its log; records with equal keys and arrivals are duplicates
    arrival_ms: float
    end_ms: float
    writer_ms: float | None = None  # of the log writer's monotonic clock, at the end
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    # One for each block of `block_tokens` of the input; equal ones stand for equal prefixes.
    prefixes: array[int] = field(default_factory=lambda: array("Q"))
    block_tokens: int = BLOCK_TOKENS
    workers: tuple[int, ...] = ()  # Dynamo's IDs of those that served it


def trace_block_tokens(block_tokens: int) -> int:
    """The size of a trace's blocks for hashes per ``block_tokens``: a multiple of both sizes."""
    return lcm(block_tokens, BLOCK_TOKENS)


def prefixes_of(hashes: list[int], block_tokens: int, input_tokens: int) -> array[int]:
    """One hash per block of the trace.

    Each hash stands for the whole prompt up to its end, so a trace's block needs only the last one
    in it. Raises BrokenRecordError if the number of hashes contradicts the length.
    """
    needed = ceil(input_tokens / block_tokens)
    if len(hashes) != needed:
        length = f"{input_tokens} tokens in blocks of {block_tokens}"
        raise BrokenRecordError(f"{len(hashes)} prefix hashes instead of {needed} for {length}")
    step = trace_block_tokens(block_tokens) // block_tokens
    kept = hashes[step - 1 :: step]
    if len(hashes) % step:
        kept.append(hashes[-1])
    return array("Q", kept)


def checked_time(ms: float, name: str) -> float:
    """BrokenRecordError for a number that is no Unix time in ms."""
    if not 0 < ms < LARGEST_MS:
        raise BrokenRecordError(f"{name} is {limit_text(ms)}, not a Unix time in ms")
    return ms


def checked_tokens(count: int | None, name: str) -> int | None:
    """BrokenRecordError for a number of tokens that is negative or too large."""
    if count is not None and not 0 <= count <= LARGEST_TOKENS:
        raise BrokenRecordError(f"{name} is {count}, not a number of tokens")
    return count


@dataclass(frozen=True, kw_only=True)
class Jump:
    """A jump of the clock between the record of ``line`` and the one before."""

    file: str
    line: int
    ms: float  # negative: backwards


@dataclass(kw_only=True)
class StreamClock:
    """The clock of one log; call `shift_ms` for each record in the order of the log."""

    jumps: list[Jump] = field(default_factory=list)
    _offset_ms: float | None = None  # Unix time minus the writer's time, before any jump
    _writer_ms: float = 0.0
    _end_ms: float | None = None  # of the last record, corrected
    _known_ms: list[float] = field(default_factory=lambda: [0.0])  # shifts so far
    _shift_ms: float = 0.0  # of the last record

    def continues_with(self, record: RequestRecord) -> bool:
        """Whether the writer of this log can also have written ``record``, in a later file."""
        if self._end_ms is None or record.writer_ms is None:
            return True
        offset = self._end_ms - self._shift_ms - self._writer_ms
        is_same = abs(record.end_ms - record.writer_ms - offset) <= TOLERANCE_MS
        return is_same and record.writer_ms >= self._writer_ms - TOLERANCE_MS

    def shift_ms(self, record: RequestRecord, file: str, line: int) -> float:
        """What to add to the record's times; a new jump is appended to `jumps`."""
        if record.writer_ms is not None:
            shift = self._measured(record.end_ms, record.writer_ms)
        else:
            shift = self._inferred(record.end_ms)
        if all(abs(shift - known) > TOLERANCE_MS for known in self._known_ms):
            self.jumps.append(Jump(file=file, line=line, ms=self._shift_ms - shift))
            self._known_ms.append(shift)
        self._shift_ms = shift
        self._end_ms = record.end_ms + shift
        return shift

    def _measured(self, end_ms: float, writer_ms: float) -> float:
        offset = end_ms - writer_ms
        if self._offset_ms is None or writer_ms < self._writer_ms:  # another writer: a restart
            base = self._inferred(end_ms) if self._offset_ms is not None else 0.0
            self._offset_ms = offset + base
        self._writer_ms = writer_ms
        shift = self._offset_ms - offset
        if abs(shift) <= TOLERANCE_MS:
            self._offset_ms = offset  # follows the slow drift between the two clocks
            return 0.0
        return shift

    def _inferred(self, end_ms: float) -> float:
        if self._end_ms is None:
            return 0.0
        least, most = self._end_ms - TOLERANCE_MS, self._end_ms + LONGEST_PAUSE_MS
        plausible = [shift for shift in self._known_ms if least <= end_ms + shift <= most]
        aim = self._end_ms - end_ms  # the shift with which the record follows the last one at once
        return min(plausible, key=lambda shift: abs(shift - aim), default=aim)


@dataclass(kw_only=True)
class Clocks:
    """The clocks of all logs. Frontends with the same path write files alternately. Each frontend
    has its own clock, which continues in its next file."""

    _of_stream: dict[str, list[StreamClock]] = field(default_factory=dict)

    def of(self, stream: str, first: RequestRecord) -> StreamClock:
        """The clock of a file whose first record this is. ``stream``: that of `stream_of`, whose
        files are read in their order."""
        clocks = self._of_stream.setdefault(stream, [])
        for clock in clocks:
            if clock.continues_with(first):
                return clock
        clocks.append(StreamClock())
        return clocks[-1]

    @property
    def jumps(self) -> list[Jump]:
        return [
            jump for clocks in self._of_stream.values() for clock in clocks for jump in clock.jumps
        ]
