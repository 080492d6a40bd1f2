"""The OpenMP library of the environment `llamacpp`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.environments import openmp
from penstock.environments.paths import environments_root
from penstock.errors import MissingToolError


def test_the_library_is_linked_under_the_name_that_the_loader_looks_for(tmp_path: Path) -> None:
    library = tmp_path / "lib/python3.12/site-packages/sentencepiece.libs/libgomp-1a2b.so.1.0.0"
    library.parent.mkdir(parents=True)
    library.write_text("library")
    openmp.link(tmp_path)
    assert (tmp_path / openmp.FOLDER / "libgomp.so.1").read_text() == "library"


def test_a_package_without_the_library_fails(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match="sentencepiece does not contain"):
        openmp.link(tmp_path)


def test_the_folder_is_searched_only_where_the_system_has_no_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openmp, "LIBRARY", "libc.so.6")
    assert openmp.search_path(tmp_path) is None
    monkeypatch.setattr(openmp, "LIBRARY", "libno-such-library.so.1")
    assert openmp.search_path(tmp_path) == tmp_path / openmp.FOLDER


@pytest.mark.needs("llamacpp")
def test_the_linked_library_can_be_loaded() -> None:
    library = environments_root() / openmp.NAME / openmp.FOLDER / openmp.LIBRARY
    code = f"import ctypes; ctypes.CDLL({str(library)!r}).omp_get_max_threads()"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
