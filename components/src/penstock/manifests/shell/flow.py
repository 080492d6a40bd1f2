"""How a statement ends: with a status, or by leaving a loop, a function or the script."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.manifests.shell.text import Text


@dataclass(frozen=True)
class Outcome:
    """What a statement leaves behind."""

    # None if only the cluster knows it. Commands other than conditions (`[ … ]`, grep) are assumed
    # to succeed.
    status: bool | None
    # The condition of which the status is unknown.
    question: str = ""
    # Known for echo, printf and cat.
    output: Text | None = None


class Leave(Exception):  # noqa: N818  control flow, not an error
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
    """`exec`: another program replaces the script."""

    def __init__(self) -> None:
        super().__init__(None)
