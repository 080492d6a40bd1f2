"""The TLS context with the roots that httpx trusts, made once per test process.

Each httpx client makes its own, which takes 30 ms; most clients of the tests never use it.
"""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import Any

import certifi

_create = ssl.create_default_context
_ROOTS = os.environ.get("SSL_CERT_FILE") or certifi.where()


@cache
def _with_roots() -> ssl.SSLContext:
    return _create(cafile=_ROOTS)


def _context(*purpose: Any, **more: Any) -> ssl.SSLContext:
    """As `ssl.create_default_context`."""
    is_of_httpx = not purpose and more == {"cafile": _ROOTS}
    return _with_roots() if is_of_httpx else _create(*purpose, **more)


def install() -> None:
    ssl.create_default_context = _context  # type: ignore[assignment]
