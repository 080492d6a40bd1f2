"""The OpenMP library that llama.cpp needs, for systems without it, such as python:slim images.

xllamacpp expects libgomp.so.1 on the system. The wheels of sentencepiece carry that library under
another name, and are small; nothing else of the package is used.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from penstock.errors import MissingToolError

NAME = "llamacpp"
LIBRARY = "libgomp.so.1"
FOLDER = "openmp"


def link(environment: Path) -> None:
    """Link the library under its own name; MissingToolError when the package has none."""
    packages = "lib/python*/site-packages"
    library = next(environment.glob(f"{packages}/sentencepiece.libs/libgomp-*"), None)
    if library is None:
        raise MissingToolError(f"the package sentencepiece does not contain {LIBRARY}", place=NAME)
    folder = environment / FOLDER
    folder.mkdir()
    (folder / LIBRARY).symlink_to(library)


def search_path(environment: Path) -> Path | None:
    """Folder to search for the library; None when the system has it."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return environment / FOLDER
    return None
