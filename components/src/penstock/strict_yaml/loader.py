"""The loaders of the package for text that others wrote: YAML, and JSON in a manifest.

YAML is read by libyaml, or by PyYAML itself if libyaml is not available.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import yaml

# Of a file; goyaml, with which kubectl reads, has a similar limit.
MOST_ALIASED = 20_000
TOO_MANY_ALIASED = f"the aliases of the file stand for more than {MOST_ALIASED:,} values"
WRITE_OUT = "Write the values out instead of referring to aliases of aliases."


@dataclass
class AliasCount:
    """Counts the values for which aliases stand, while the events of a text are read.

    Nine lines of aliases of aliases stand for more values than a machine can hold ("billion
    laughs"). Readers share the values, so that only what walks over all of them takes forever.
    """

    # Values that aliases stand for so far.
    aliased: int = 0
    # Values so far, with those of aliases.
    _total: int = 0
    # Anchor → the number of values in it.
    _sizes: dict[str, int] = field(default_factory=dict)
    # The anchor of each open collection, and the total at its begin.
    _open: list[tuple[str | None, int]] = field(default_factory=list)

    def add(self, event: yaml.Event) -> bool:
        """Count an event; whether aliases still stand for at most MOST_ALIASED values."""
        if isinstance(event, yaml.CollectionEndEvent):
            self._keep(*self._open.pop())
        elif isinstance(event, yaml.AliasEvent):
            size = self._sizes.get(event.anchor or "", 1)
            self.aliased += size
            self._total += size
        elif isinstance(event, yaml.NodeEvent):
            self._total += 1
            if isinstance(event, yaml.CollectionStartEvent):
                self._open.append((event.anchor, self._total - 1))
            else:
                self._keep(event.anchor, self._total - 1)
        return self.aliased <= MOST_ALIASED

    def _keep(self, anchor: str | None, before: int) -> None:
        if anchor is not None:
            self._sizes[anchor] = self._total - before


DEEPEST = 50  # levels of nesting
DEEPEST_OBJECT = 200  # of any Kubernetes object: the schema of a CRD has more levels than a DGD

# libyaml reads the manifests of a graph in 2 ms, PyYAML's own loader in 25 ms.
SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(text: str) -> Any:
    """The value of the one document in the text, as PyYAML reads it; raises yaml.YAMLError."""
    _check_size(text)
    return yaml.load(text, SafeLoader)  # noqa: S506  (ruff does not know the name)


def load_all(text: str) -> list[Any]:
    """The value of each document in the text; raises yaml.YAMLError."""
    _check_size(text, DEEPEST_OBJECT)
    return list(yaml.load_all(text, SafeLoader))


def _check_size(text: str, deepest: int = DEEPEST) -> None:
    """libyaml's loader is recursive: 100,000 levels overflow the stack of the process. What it
    loads shares the values of aliases."""
    depth, aliases = 0, AliasCount()
    for event in yaml.parse(text, SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > deepest:
            raise yaml.YAMLError(_too_deep(deepest))
        if not aliases.add(event):
            raise yaml.YAMLError(TOO_MANY_ALIASED)


def load_json(text: str) -> Any:
    """The value of JSON text; raises ValueError, also if it is nested too deeply."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError(_too_deep(DEEPEST), text, 0) from None
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [item for container in level for item in _items(container)]
        if not level:
            return value
    raise json.JSONDecodeError(_too_deep(DEEPEST), text, 0)


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _too_deep(deepest: int) -> str:
    return f"nested more than {deepest} levels deep"
