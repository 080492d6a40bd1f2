"""URLs on the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence

import httpx

from penstock.errors import InputError

MOST_PORT = 65535
_HOST_AND_PORT = re.compile(r"[\w.-]+:\d+(/.*)?")  # a URL without a scheme


def is_url(text: str) -> bool:
    """Whether ``text`` names an endpoint and not a file, even if it is not a correct URL."""
    return "://" in text or _HOST_AND_PORT.fullmatch(text) is not None


def require_urls(texts: Sequence[str]) -> None:
    """InputError for the first that is not an HTTP URL."""
    for text in texts:
        if not _is_http(text):
            fix = "Write http:// or https://, a host, and a port up to 65535."
            raise InputError(f"{text!r} is not a URL", fix=fix)


def _is_http(text: str) -> bool:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return False
    return url.scheme in ("http", "https") and bool(url.host) and (url.port or 0) <= MOST_PORT
