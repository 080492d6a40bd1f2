"""Which Host headers are accepted, and which paths. Pure; `local/envoy.py` reads it too.

A web page of another site reaches an address of this machine if its own name resolves to that
address (DNS rebinding). Its requests then have its name in the header Host.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from .errors import Refusal

# The API, and what programs on this machine read. A frontend also has paths that change it, such
# as /busy_threshold, with which one request makes it refuse all others.
API = "/v1"
READABLE = ("/health", "/live", "/metrics", "/openapi.json", "/docs")
SHOWN = f"{', '.join(READABLE[:-1])} and {READABLE[-1]}"
MISDIRECTED = 421  # RFC 9110
MESSAGE = (
    "The header Host does not name this machine. Use localhost or an IP address in the URL, or "
    "start the graph with `--allow-host NAME`."
)
UNKNOWN_HOST = Refusal(message=MESSAGE, param=None, code="unknown_host", status=MISDIRECTED)


def pattern(names: Iterable[str] = ()) -> str:
    """A regular expression (RE2 and Python) for all of the header.

    An IP address cannot be rebound, so each one is accepted, besides localhost and ``names``.
    """
    named = "|".join(map(re.escape, names))
    local = r"(?:[a-z0-9-]+\.)?localhost\.?"
    address = r"[0-9]+(?:\.[0-9]+){3}|\[[0-9a-f:.]+(?:%[a-z0-9.%_~-]+)?\]"
    known = "|".join(part for part in (local, address, named) if part)
    return rf"(?i)(?:{known})(?::[0-9]*)?"


def is_served(path: str) -> bool:
    """``path``: without percent-encoding. One with `.` or `..` would reach another rule."""
    if posixpath.normpath(path) != (path.rstrip("/") or "/"):
        return False
    return path == API or path.startswith((f"{API}/", "/docs/")) or path in READABLE


def not_served(path: str) -> Refusal:
    message = f"The endpoint does not serve {path}: only paths below {API}, and {SHOWN}."
    return Refusal(message=message, param=None, code="unknown_url", status=404)
