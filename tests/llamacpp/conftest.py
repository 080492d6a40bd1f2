"""Shared by the tests of grammars."""

from __future__ import annotations

import pytest

from penstock.environments import environments_root
from penstock.llamacpp.llguidance import Llguidance
from tests.support.needs import needed_by_its_tests


@pytest.fixture(scope="module")
@needed_by_its_tests("llamacpp")
def llguidance() -> Llguidance:
    root = environments_root() / "llamacpp"
    library = next(root.glob("lib/python*/site-packages/xllamacpp/*.so"))
    try:
        return Llguidance(library, ["<|im_end|>"])
    except OSError:  # workers get that of the environment
        pytest.skip("this system has no OpenMP library")
