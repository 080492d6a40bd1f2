"""The environment `sim`, or a skip that says so."""

import pytest

from penstock.errors import MissingToolError
from penstock.simulate.replay import require_environment


def installed() -> bool:
    try:
        require_environment()
    except MissingToolError:
        return False
    return True


needs_sim = pytest.mark.skipif(
    not installed(), reason="the environment sim is not installed: penstock env install sim"
)
