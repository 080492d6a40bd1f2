"""The graphs that come with penstock: `dynamo_graphs/` of the checkout, or their copies in the
wheel."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import Problem, UsageError
from penstock.files import shipped
from penstock.text.names import nearest


def shipped_graphs() -> list[str]:
    """Their names, without `.yaml`."""
    return sorted(file.stem for file in _folder().glob("*.yaml"))


def shipped_graph(name: str) -> str:
    """The text of one. UsageError for a name that is not known."""
    name = name.removesuffix(".yaml")
    names = shipped_graphs()
    if name in names:
        return (_folder() / f"{name}.yaml").read_text("utf-8")
    near = nearest(name, names)
    fix = f"Did you mean {near}?" if near else f"Use one of {', '.join(names)}."
    raise UsageError(Problem(place="--example", message=f"no graph is called {name!r}", fix=fix))


def _folder() -> Path:
    return shipped("graphs", "dynamo_graphs")
