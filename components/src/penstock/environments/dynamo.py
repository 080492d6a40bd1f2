"""The Python that runs Dynamo's frontend, router and mockers, in the default version.

A checkout of the repository has Dynamo in penstock's own environment. The wheel does not require
it, because pip cannot resolve the requirements of ai-dynamo (decision 20): `up` installs the
environment `dynamo-1.6`.
"""

from __future__ import annotations

import importlib.metadata
import sys

from penstock.environments.paths import installed_python
from penstock.errors import MissingToolError
from penstock.graph.versions import DEFAULT, minor

NAME = f"dynamo-{minor(DEFAULT)}"
REPLAY = "sim"  # it has Dynamo's parsers too


def is_in_own_environment() -> bool:
    try:
        importlib.metadata.version("ai-dynamo")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def dynamo_python() -> str:
    """penstock's own Python if it has Dynamo, else that of the environment.

    MissingToolError if neither has it.
    """
    return _python(NAME)


def parsers_python() -> str:
    """As `dynamo_python`, for Dynamo's parsers only."""
    return _python(NAME, REPLAY)


def _python(*names: str) -> str:
    if is_in_own_environment():
        return sys.executable
    python = next(filter(None, map(installed_python, names)), None)
    if python is None:
        message = f"Dynamo {DEFAULT} is not installed"
        raise MissingToolError(
            message, fix=f"Run `penstock tools env install {NAME}` (0.6 GB, once)."
        )
    return str(python)
