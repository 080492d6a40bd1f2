"""Every error penstock raises on purpose, with its exit code; the CLI's one handler prints them.

PenstockError
├── UsageError          2   arguments that parse and make no sense
├── InputError          3   a file that cannot be read: missing, a directory, no UTF-8
├── GraphError          4   the graph YAML is refused, with every problem found
├── ManifestError       5   a DGD manifest is refused: broken document or unfilled placeholder
├── ChartError          6   the chart did not render
├── LaunchError         7   a launch the engine itself would refuse: flag, value or file
├── MissingToolError    8   a program or environment that the graph needs is not on this machine
├── PortInUseError      9   a port asked for is taken
├── AlreadyUpError     10   the graph is already up
├── NotUpError         11   the graph is not up
├── StartError         12   a process of the graph did not start or did not become ready
├── NotVerifiedError   13   a probe of `penstock verify` failed, or cannot tell and must pass
├── CheckError         14   `penstock check` finds errors (with --strict, or warnings)
├── ClusterError       15   the cluster does not answer, or refuses
├── RolloutError       16   what was written to the cluster did not become ready
└── SimulationError    17   a graph or workload that cannot be replayed, or a replay that failed
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class ProblemKind(StrEnum):
    """What code needs to know about a problem; it never tests the text of a message."""

    OTHER = "other"
    # The value has the wrong type only because it is quoted, or is not quoted, in YAML.
    QUOTING = "quoting"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing wrong with the input: where it is, what it is and how to fix it."""

    message: str
    file: str = ""
    # From 1.
    line: int | None = None
    # The dotted path in the document: `prefill.replicas`.
    place: str = ""
    fix: str = ""
    kind: ProblemKind = ProblemKind.OTHER

    def __str__(self) -> str:
        where = self.file + (f":{self.line}" if self.line is not None else "")
        head = " ".join(part for part in (where, self.place) if part)
        text = f"{head}: {self.message}" if head else self.message
        return f"{text}. Fix: {self.fix}" if self.fix else text


class PenstockError(Exception):
    """Base of all that is the input's or the machine's fault; ``exit_code`` is the process's."""

    exit_code: ClassVar[int]

    def __init__(self, *problems: Problem | str) -> None:
        self.problems = tuple(Problem(message=p) if isinstance(p, str) else p for p in problems)
        super().__init__("\n".join(str(p) for p in self.problems))


class UsageError(PenstockError):
    exit_code = 2


class InputError(PenstockError):
    exit_code = 3


class GraphError(PenstockError):
    exit_code = 4


class ManifestError(PenstockError):
    exit_code = 5


class ChartError(PenstockError):
    exit_code = 6


class LaunchError(PenstockError):
    exit_code = 7


class MissingToolError(PenstockError):
    exit_code = 8


class PortInUseError(PenstockError):
    exit_code = 9


class AlreadyUpError(PenstockError):
    exit_code = 10


class NotUpError(PenstockError):
    exit_code = 11


class StartError(PenstockError):
    exit_code = 12


class NotVerifiedError(PenstockError):
    exit_code = 13


class CheckError(PenstockError):
    exit_code = 14


class ClusterError(PenstockError):
    exit_code = 15


class RolloutError(PenstockError):
    exit_code = 16


class SimulationError(PenstockError):
    exit_code = 17
