"""Shared by the tests of grammars."""

from __future__ import annotations

import pytest

from penstock.environments import environments_root
from penstock.llamacpp.llguidance import Llguidance


@pytest.fixture(scope="module")
def llguidance() -> Llguidance:
    root = environments_root() / "llamacpp"
    library = next(root.glob("lib/python*/site-packages/xllamacpp/*.so"), None)
    if library is None:
        pytest.skip("not installed: penstock env install llamacpp")
    try:
        return Llguidance(library, ["<|im_end|>"])
    except OSError as error:  # this system has no OpenMP; workers get that of the environment
        pytest.skip(str(error))
