"""The loaders of the package for text that others wrote: YAML, and JSON in a manifest.

YAML is read by libyaml, or by PyYAML itself if libyaml is not available.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import yaml

from penstock.strict_yaml.aliases import TOO_MANY_ALIASED, AliasCount

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
