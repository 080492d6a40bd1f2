"""An operator's question as `plan` takes it: a model, GPUs, traffic and promises → PlanRequest."""

from __future__ import annotations

from penstock.errors import UsageError
from penstock.graph.slo import Slo
from penstock.hardware import GPUS
from penstock.plan.model import PlannedModel
from penstock.plan.space import Objective, PlanRequest
from penstock.plan.traffic import many, shares
from penstock.plan.trials import SEEDS
from penstock.simulate.timing import SYSTEMS
from penstock.workload.load import LoadedWorkload

LEAST_CONTEXT = 8192
MOST_GPUS = 64  # candidates grow with the square


def question(
    model: PlannedModel,
    loaded: LoadedWorkload,
    *,
    gpu: str,
    gpus: int,
    slo: Slo,
    objective: Objective,
    gpu_hour_price: float | None = None,
) -> PlanRequest:
    """UsageError for what cannot be planned."""
    if gpus > MOST_GPUS:
        fix = "divide the load and --gpus alike"
        raise UsageError(f"--gpus {gpus}: a plan looks at up to {MOST_GPUS}; {fix}")
    if gpu not in SYSTEMS:
        raise UsageError(f"--hardware {gpu} was not measured; there are {', '.join(SYSTEMS)}")
    if not slo:
        raise UsageError("a plan needs something to hold: --ttft, --itl or --e2e")
    if loaded.workload.conversation and objective is Objective.THROUGHPUT:
        message = "conversations go on for longer than a plan's replays: their most is not found"
        raise UsageError(f"{message}; plan for cost or interactivity, at a --load")
    requests = [one for seed in range(SEEDS) for one in many(loaded).requests(seed)]
    longest = max(one.input_tokens + one.output_tokens for one in requests)
    if longest > model.positions:
        message = f"{model.id} takes {model.positions} tokens"
        raise UsageError(f"requests of {longest} tokens: {message}; shorten those of {loaded.name}")
    return PlanRequest(
        model=model.id,
        shape=model.shape,
        folder=model.folder,
        gpu=GPUS[gpu],
        gpus=gpus,
        slo=slo,
        objective=objective,
        context=min(_context(longest), model.positions),
        shares=shares(loaded.requests(0)),
        gpu_hour_price=gpu_hour_price,
    )


def _context(longest: int) -> int:
    """Tokens: a power of two with room for requests twice as long, as a what-if has them."""
    context = LEAST_CONTEXT
    while context < 2 * longest:
        context *= 2
    return context
