"""How a statement ends: a status, or leaving a loop, a function or the script."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.manifests.shell.text import Text


@dataclass(frozen=True)
class Outcome:
    """``status`` None: only the cluster knows. ``question`` is then set for conditions (`[ … ]`,
    grep); other commands are assumed to succeed. ``output`` is known for echo, printf and cat."""

    status: bool | None
    question: str = ""
    output: Text | None = None


class Leave(Exception):  # noqa: N818  a way of going on, no error
    """Leaves a loop or a function."""


class Break(Leave):
    pass


class Continue(Leave):
    pass


class Return(Leave):
    pass


class Exit(Exception):  # noqa: N818
    """Leaves the script."""

    def __init__(self, status: bool | None) -> None:
        self.status = status


class Replaced(Exit):
    """`exec`: another program takes the script's place."""

    def __init__(self) -> None:
        super().__init__(None)
