"""Requests that sent no token for too long, from the logs of the frontends that moved them.

A frontend (Dynamo 1.6.1, `frontend.inactivity_timeout_s`) takes such a request from its worker, and
writes one line about it:

    … route request failed request.outcome="timeout" error.type="response_timeout" … worker_id=7 …
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.local.state_file import ReplicaStatus
from penstock.manifests.deployment import Role

_MOVED = re.compile(
    rb'route request failed [^\n]*error\.type="response_timeout"[^\n]*? worker_id=(\d+)'
)


class HungRequests:
    """Follows the logs of the frontends."""

    def __init__(self) -> None:
        self._offsets: dict[str, int] = {}
        """By log: the bytes that were read."""

    def new(self, replicas: Iterable[ReplicaStatus]) -> Iterator[str]:
        """The worker IDs, in hexadecimal, of the requests that hung since the last call. In a log
        that is followed for the first time, only later ones count."""
        logs = {replica.log for replica in replicas if replica.role is Role.FRONTEND}
        self._offsets = {log: self._offsets.get(log, -1) for log in logs}
        for log in sorted(logs):
            for found in _MOVED.finditer(self._read(log)):
                yield f"{int(found[1]):x}"

    def _read(self, log: str) -> bytes:
        """The complete lines that were added; none of a log that cannot be read."""
        try:
            with Path(log).open("rb") as file:
                offset = self._offsets[log]
                size = file.seek(0, 2)
                if not 0 <= offset <= size:
                    self._offsets[log] = size
                    return b""
                file.seek(offset)
                lines, end, _ = file.read(size - offset).rpartition(b"\n")
        except OSError:
            return b""
        self._offsets[log] = offset + len(lines) + len(end)
        return lines
