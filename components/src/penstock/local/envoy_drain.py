"""Let the open requests of an Envoy end before it ends, while another one gets the new ones.

Envoy itself ends at once at SIGTERM. So penstock starts each Envoy with this signal blocked, sees
that one is pending, drains the Envoy, and ends it with SIGINT.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

URL = "http://envoy"  # of the admin interface, which is a socket
ADMIN = "admin"  # file name of the socket
OPEN_REQUESTS = r"^http\.(gateway|openai)\.downstream_rq_active$"
RESPONSE_S = 10.0
READY_S = 15.0
POLL_S = 0.05
# The next response on a connection that a client keeps asks the client to open another one.
SETTLE_S = 1.0


def admin_section(path: str) -> dict[str, Any]:
    """Envoy's configuration of an admin interface at a socket that only this user can reach."""
    return {"address": {"pipe": {"path": path, "mode": 0o600}}}


@contextmanager
def short_path(folder: Path) -> Iterator[Path]:
    """A path to ``folder`` that is never too long for a socket in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


@contextmanager
def sigterm_blocked() -> Iterator[None]:
    """Processes that this thread starts meanwhile have SIGTERM blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def is_terminated(pid: int) -> bool:
    """Whether a SIGTERM waits for a process that has it blocked."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    except OSError:  # it has ended
        return False
    masks = [line.split()[1] for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(int(mask, 16) >> (signal.SIGTERM - 1) & 1 for mask in masks)


def wait_until_live(admin: Path, has_ended: Callable[[], bool]) -> None:
    """Wait until Envoy listens; up to `READY_S`, or until it ``has_ended``."""
    deadline = time.monotonic() + READY_S
    with _client(admin) as client:
        while time.monotonic() < deadline and not has_ended():
            with suppress(httpx.HTTPError):
                if client.get("/ready").status_code == httpx.codes.OK:
                    return
            time.sleep(POLL_S)


def drain(
    admin: Path, has_ended: Callable[[], bool], limit_s: float, settle_s: float = SETTLE_S
) -> int:
    """Stop listening, and wait until no request has been open for ``settle_s`` seconds; after
    ``limit_s`` return the number of those that still are. 0 if Envoy does not respond."""
    deadline, idle_since = time.monotonic() + limit_s, None
    count = 0
    with suppress(httpx.HTTPError), _client(admin) as client:
        client.post("/healthcheck/fail").raise_for_status()  # `Connection: close` from now on
        client.post("/drain_listeners").raise_for_status()
        while not has_ended():
            now, count = time.monotonic(), _open_requests(client)
            idle_since = None if count else idle_since or now
            if now >= deadline or (idle_since is not None and now - idle_since >= settle_s):
                return count
            time.sleep(POLL_S)
    return 0


def _open_requests(client: httpx.Client) -> int:
    lines = client.get("/stats", params={"filter": OPEN_REQUESTS}).text.splitlines()
    return sum(int(line.rpartition(": ")[2]) for line in lines)


def _client(admin: Path) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(admin))
    return httpx.Client(transport=transport, base_url=URL, timeout=RESPONSE_S)
