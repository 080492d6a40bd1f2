"""The parts of `tensorrt_llm` and `vllm` that Dynamo's own parsers import.

Only `parse_child` installs them, in a process that serves nothing: they must never be importable
together with a real engine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from types import ModuleType

Substitutes = Mapping[str, Mapping[str, object]]
"""Module name → the names that it defines."""


@contextmanager
def substituted(modules: Substitutes) -> Iterator[None]:
    """Make ``modules`` importable inside the block; modules imported there keep them."""
    names = sorted({package for name in modules for package in _with_parents(name)})
    for name in names:
        module = ModuleType(name)
        module.__path__ = []  # a package, so that its children can be imported
        module.__dict__.update(modules.get(name, {}))
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)


def _with_parents(name: str) -> Iterator[str]:
    """`a`, `a.b` and `a.b.c` of `a.b.c`."""
    return accumulate(name.split("."), lambda parent, child: f"{parent}.{child}")
