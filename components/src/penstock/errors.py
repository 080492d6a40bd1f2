"""Every error that penstock raises on purpose, with its exit code; `cli.main` prints them.

PenstockError
├── UsageError          2   arguments that are valid alone and not together
├── InputError          3   a file that cannot be read: missing, a directory, not UTF-8
├── GraphError          4   an invalid graph YAML, with every problem
├── ManifestError       5   an invalid DGD manifest: broken document or unfilled placeholder
├── ChartError          6   the chart cannot be rendered
├── LaunchError         7   a launch that the engine would reject: flag, value or file
├── MissingToolError    8   a required program or environment is not on this machine
├── PortInUseError      9   a requested port is in use
├── AlreadyUpError     10   the graph is already up
├── NotUpError         11   the graph is not up
├── StartError         12   a process of the graph did not start or did not become ready
├── NotVerifiedError   13   a probe of `penstock verify` failed, or must pass and cannot tell
├── CheckError         14   `penstock check` found errors (with --strict also warnings)
├── ClusterError       15   the cluster does not respond, or rejects a request
├── RolloutError       16   a rollout did not become ready
└── SimulationError    17   a graph or workload cannot be replayed, or the replay failed
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
    # The value is no mapping, where a section or a mapping is expected.
    SECTION = "section"
    # A person must replace the value: `<your-namespace>`.
    PLACEHOLDER = "placeholder"
    # A program such as envsubst must fill the value before the file is applied: `${REPLICAS}`.
    TEMPLATE = "template"
    # The file may be right, but does not say what runs: the image or the operator decides.
    UNDECIDED = "undecided"
    # The file may be valid, but it has nothing that penstock reads.
    NOTHING_TO_READ = "nothing to read"
    # The file is not a graph but, for example, a Compose file.
    OTHER_FILE = "other file"
    # The time that the user permits has passed.
    LATE = "late"
    # A key is there twice, and its reader ignores the first value.
    REPEATED = "repeated"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing wrong with the input: where it is, what it is and how to fix it."""

    message: str
    file: str = ""
    # From 1.
    line: int | None = None
    # From 1, in characters; known where `penstock check` prints it.
    column: int | None = None
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
    """Base of all errors that the input or the machine causes."""

    exit_code: ClassVar[int]
    """Exit code of the process."""

    def __init__(
        self,
        *problems: Problem | str,
        file: str = "",
        line: int | None = None,
        place: str = "",
        fix: str = "",
    ) -> None:
        """A text is the message of a problem, which then has the other fields."""
        self.problems = tuple(
            Problem(message=p, file=file, line=line, place=place, fix=fix)
            if isinstance(p, str)
            else p
            for p in problems
        )
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


class DrillError(PenstockError):
    exit_code = 18


class BenchError(PenstockError):
    exit_code = 19


class LimitError(PenstockError):
    """A limit of `--fail-if` is exceeded, or `bench shadow` has findings."""

    exit_code = 20


class UndecidedError(PenstockError):
    """It is not certain whether a limit of `--fail-if` is exceeded, or `bench shadow` sent too few
    requests for a verdict."""

    exit_code = 21
