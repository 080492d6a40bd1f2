"""The YAML loader of the package: libyaml's, or PyYAML's own if libyaml is not available."""

from __future__ import annotations

from typing import Any

import yaml

# libyaml reads the manifests of a graph in 2 ms, PyYAML's own loader in 25 ms.
SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(text: str) -> Any:
    """The value of the one document in the text, as PyYAML reads it; raises yaml.YAMLError."""
    return yaml.load(text, SafeLoader)  # noqa: S506  (ruff does not know the name)
