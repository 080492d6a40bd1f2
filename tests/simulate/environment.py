"""The marker of tests that need the environment `sim`; tests/conftest.py skips them without it."""

import pytest

needs_sim = pytest.mark.sim
