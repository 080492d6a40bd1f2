"""Just enough of `tensorrt_llm` and `vllm` for Dynamo's own parsers to import without them.

`parse_child` alone installs these, in a process that serves nothing: they must never be importable
beside a real engine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from types import ModuleType

Substitutes = Mapping[str, Mapping[str, object]]
"""Module name → the names it holds."""


@contextmanager
def substituted(modules: Substitutes) -> Iterator[None]:
    """Make ``modules`` importable inside the block; what was imported there keeps what it took."""
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
