"""The traced requests in a folder of the receiver, and what could not be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.tracing.requests import TracedRequest, requests_of
from penstock.tracing.spans import decode
from penstock.tracing.store import NAME, OLDER, read


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What `load` found."""

    requests: tuple[TracedRequest, ...]
    unreadable: int
    """Messages that cannot be decoded; a damaged part of a file counts as one."""


def is_recorded(folder: Path) -> bool:
    """Whether anything was stored in ``folder``."""
    return any((folder / name).exists() for name in (NAME, OLDER))


def load(folder: Path) -> Loaded:
    """All requests in ``folder``, oldest first; none if nothing was stored."""
    decoded = decode(read(folder))
    return Loaded(requests=requests_of(decoded), unreadable=decoded.unreadable)
