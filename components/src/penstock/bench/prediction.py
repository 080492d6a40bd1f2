"""What `simulate` predicts for the requests of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.bench.measurement import Percentiles, percentiles_of
from penstock.simulate.metrics import MAX_REFUSED, steady_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Replays
from penstock.simulate.study import Study
from penstock.simulate.window import ServedRequest
from penstock.workload.load import LoadedWorkload


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Latencies in milliseconds, over the same window as in a `Measurement`."""

    graph: str
    """Name of the simulated graph."""
    requests: int
    """Number of requests of the workload."""
    too_long: int
    """Number of these requests that the graph rejects; the latencies are those of the others."""
    ttft_ms: Percentiles | None
    """Predicted time to first token; null if no request was simulated."""
    itl_ms: Percentiles | None
    """Predicted mean inter-token latency of each request; null if no request has two output
    tokens."""
    e2e_ms: Percentiles | None
    """Predicted end-to-end latency; null if no request was simulated."""


@dataclass(frozen=True, kw_only=True)
class Predicted:
    prediction: Prediction
    requests: Sequence[ServedRequest]
    """Those of which the prediction has the latencies, for charts."""


def predicted(
    graph: Replayable, workload: LoadedWorkload, seed: int, replays: Replays
) -> Predicted:
    """One replay of the requests that a run with this seed sends. SimulationError if the graph
    cannot be replayed."""
    study = Study(workload=workload, replays=replays, seeds=1, first_seed=seed)
    (row,) = study.rows([graph], None)
    total = len(workload.requests(seed))
    requests = steady_requests(row.results[0])
    prediction = Prediction(
        graph=graph.name,
        requests=total,
        too_long=row.too_long,
        **percentiles_of(requests, has_p99=row.too_long <= MAX_REFUSED * total),
    )
    return Predicted(prediction=prediction, requests=requests)
