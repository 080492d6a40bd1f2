"""Shared by the tests of grammars."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from penstock.environments import environments_root
from penstock.llamacpp.llguidance import Llguidance
from tests.support.needs import needed_by_its_tests


@pytest.fixture(scope="module")
@needed_by_its_tests("llamacpp")
def llamacpp_library() -> Path:
    root = environments_root() / "llamacpp"
    library = next(root.glob("lib/python*/site-packages/xllamacpp/*.so"))
    try:
        ctypes.CDLL(str(library))
    except OSError:  # workers get that of the environment
        pytest.skip("this system has no OpenMP library")
    return library


@pytest.fixture(scope="module")
@needed_by_its_tests("llamacpp")
def llguidance(llamacpp_library: Path) -> Llguidance:
    return Llguidance(llamacpp_library, ["<|im_end|>"])
