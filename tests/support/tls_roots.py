"""The TLS context with certifi's roots, made once per test process.

Each httpx client makes its own, which takes 30 ms; most clients of the tests never use it.
"""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any

import certifi

_create = ssl.create_default_context


@cache
def _with_certifi() -> ssl.SSLContext:
    return _create(cafile=certifi.where())


def _context(**arguments: Any) -> ssl.SSLContext:
    """As `ssl.create_default_context`, which httpx calls with names."""
    is_certifi = arguments == {"cafile": certifi.where()}
    return _with_certifi() if is_certifi else _create(**arguments)


def install() -> None:
    ssl.create_default_context = _context  # type: ignore[assignment]
