"""The JSON document of `penstock drill`, from which its published schema is generated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from penstock.drill.evaluate import FailureType, FaultRecord, FaultRow
from penstock.drill.memory import MemoryTrend
from penstock.drill.run import DrillResult
from penstock.drill.traffic import RequestKind
from penstock.reports.json_document import Document, VersionedDocument


class FailureDocument(Document):
    """One failed request."""

    request: int
    """Number of the request."""
    kind: RequestKind
    """Kind of the request."""
    type: FailureType
    """What went wrong with the request."""
    error: str
    """Error that the client got; empty if it got none."""
    fault: int | None
    """Number of the fault before the failure; null before the first fault."""
    unavoidable: bool
    """Whether no other process could have served the request."""
    not_migratable: bool
    """Whether the request was lost with its worker because Dynamo does not migrate requests with a
    grammar."""
    cause: str
    """Cause of the failure, as far as it is known."""


class DrillDocument(VersionedDocument):
    """Result of a drill."""

    passed: bool
    """Whether no more requests failed than permitted, and all processes recovered."""
    engine_is_substitute: bool | None
    """Whether mockers ran instead of the engine; null if it is not known."""
    interrupted: bool
    """Whether the drill ended early, so that the result is partial."""
    command: str
    """Command that injects the same kinds of faults with the same seed."""
    seed: int
    """Seed of the order of faults."""
    seconds: float
    """Duration of the requests in seconds."""
    requests: int
    """Number of requests."""
    failed: Mapping[FailureType, int]
    """Number of failed requests by type."""
    unavoidable: int
    """Number of failed requests that no other process could have served."""
    not_migratable: int
    """Number of unavoidable failures of requests with a grammar, which Dynamo does not migrate from
    a lost worker."""
    retried: int
    """Number of requests that clients sent again after an error."""
    rows: Sequence[FaultRow]
    """Counts for each kind and target of faults."""
    failures: Sequence[FailureDocument]
    """Failed requests."""
    faults: Sequence[FaultRecord]
    """Injected faults, in order of time."""
    not_recovered: Sequence[int]
    """Numbers of the faults after which not all processes became ready within the time limit."""
    too_slow: Sequence[int]
    """Numbers of the faults whose recovery took longer than `drill.recovery_s` of the graph
    permits."""
    leftovers: Sequence[str]
    """Processes and files that were left behind."""
    permitted: Mapping[str, int]
    """Permitted failures of each fault by its kind, as `drill.permitted_failures` of the graph."""
    memory: Sequence[MemoryTrend]
    """Memory of each process; empty if the drill was too short for a slope."""


def drill_document(result: DrillResult, repeat: str) -> DrillDocument:
    """``repeat``: the command that runs the same kinds of faults with the same seed."""
    evaluation = result.evaluation
    totals = Counter(failure.type for failure in evaluation.failures)
    return DrillDocument.of(
        *(evaluation, result),
        passed=evaluation.passes,
        interrupted=result.was_interrupted,
        command=repeat,
        seed=result.options.seed,
        seconds=round(result.seconds, 1),
        failed={type_: totals[type_] for type_ in FailureType},
        unavoidable=sum(failure.is_unavoidable for failure in evaluation.failures),
        failures=[
            FailureDocument.of(
                failure,
                request=failure.request.number,
                kind=failure.request.kind,
                error=failure.request.error,
                fault=failure.fault.number if failure.fault is not None else None,
                unavoidable=failure.is_unavoidable,
                not_migratable=failure.is_not_migratable,
            )
            for failure in evaluation.failures
        ],
        not_recovered=[fault.number for fault in evaluation.not_recovered],
        too_slow=[fault.number for fault in evaluation.too_slow],
    )
