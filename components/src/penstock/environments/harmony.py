"""The vocabulary of Dynamo's parsers gpt_oss and harmony.

The library (openai-harmony's) downloads o200k_base.tiktoken at first use, or reads it from
$TIKTOKEN_ENCODINGS_BASE. The package in harmony.txt carries that file under the name of its cache.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from penstock.environments.paths import environments_root, is_installed
from penstock.errors import MissingToolError

NAME = "harmony"
FILE = "o200k_base.tiktoken"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
CACHED_AS = "fb374d419588a4632f3f557e76b4b70aebbca790"  # sha1 of its URL


def link(environment: Path) -> None:
    """Link the file to where `vocabulary` finds it; MissingToolError when its checksum is wrong."""
    cached = next(environment.glob(f"lib/python*/site-packages/**/{CACHED_AS}"), None)
    if cached is None or hashlib.sha256(cached.read_bytes()).hexdigest() != SHA256:
        raise MissingToolError(f"the package does not contain the expected {FILE}", place=NAME)
    folder = environment / "encodings"
    folder.mkdir()
    (folder / FILE).symlink_to(cached)


def vocabulary() -> Path | None:
    """The folder for $TIKTOKEN_ENCODINGS_BASE, None when the environment is not installed."""
    environment = environments_root() / NAME
    return environment / "encodings" if is_installed(environment) else None


def tiktoken_cache() -> Path | None:
    """The folder for $TIKTOKEN_CACHE_DIR, in which tiktoken finds o200k_base by the name of its
    cache; None when the environment is not installed."""
    folder = vocabulary()
    return (folder / FILE).resolve().parent if folder else None
