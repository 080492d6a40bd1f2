"""What an operator asks `plan` for: a model, a GPU budget, a workload and an SLO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from penstock.errors import Problem, UsageError
from penstock.graph.slo import Slo
from penstock.hardware import Gpu, find_gpu
from penstock.hardware.gpus import gpu_fix
from penstock.models import ModelShape
from penstock.plan.draft import Draft, draft_of
from penstock.plan.model import PlannedModel, planned_model
from penstock.plan.traffic import SEEDS, has_shared_prefixes
from penstock.simulate.calibration import CalibrationFile, Factors
from penstock.simulate.interval import FEWEST, NEAREST, family, has_interval
from penstock.simulate.timing import SYSTEMS
from penstock.workload.duration import for_means
from penstock.workload.load import LoadedWorkload

ENGINE = "trtllm"  # of each planned graph
MIN_CONTEXT = 8192  # tokens
MOST_COVERAGE = 0.92  # of an interval from NEAREST points: 12 of 13
REDUNDANT = 2  # workers of a pool, so that one is left when one is lost
MAX_GPUS = 64  # the number of candidates grows with the square


class Objective(StrEnum):
    # The fewest GPUs that meet the SLO at the workload's rate.
    COST = "cost"
    # The highest rate at which the GPUs meet the SLO.
    THROUGHPUT = "throughput"
    # The most output tokens/s for one user, with the SLO met at the workload's rate.
    INTERACTIVITY = "interactivity"


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    model: str  # its id on the model hub
    shape: ModelShape
    # Holds the model's config.json; None for a model whose shape is part of penstock.
    folder: Path | None
    gpu: Gpu
    gpus: int  # the budget
    slo: Slo
    objective: Objective
    context: int  # tokens of the longest request, input and output
    shares_prefixes: bool  # whether requests of the workload share prefixes
    gpu_hour_price: float | None = None  # price of one GPU for one hour, in any currency
    min_replicas: int = 1  # of each pool
    survives_loss: bool = False  # whether the SLO must also be met with one worker fewer
    # Coverage of the intervals at whose upper end the SLO must be met; None: at the prediction.
    confidence: float | None = None
    draft: Draft | None = None  # None: no speculative decoding
    calibrations: CalibrationFile | None = None

    def calibrated(self, file: CalibrationFile) -> PlanRequest:
        """With predictions that the file corrects. UsageError for a request that cannot be."""
        place = "--calibration"
        if file.of(self.group) is None:
            fix = "Name another file, or remove --calibration."
            raise _refused(place, file.missing(self.group), fix)
        if self.draft is not None:
            message = "only some of the graphs with speculative decoding could be calibrated"
            raise _refused(place, message, "Remove --calibration or --acceptance.")
        if self.confidence is not None:
            message = "there are no measured points of calibrated predictions"
            raise _refused(place, message, "Remove --calibration or --confidence.")
        return replace(self, calibrations=file)

    @property
    def factors(self) -> Factors:
        """That correct predictions."""
        found = self.calibrations and self.calibrations.of(self.group)
        return found.factors if found else Factors()

    @property
    def group(self) -> tuple[str, str, str]:
        return family(self.model), self.gpu.name, ENGINE

    @property
    def nodes(self) -> int:
        return -(-self.gpus // self.gpu.gpus_per_node)


def plan_request(
    model: str,
    loaded: LoadedWorkload,
    *,
    scratch: Path,
    gpu: str,
    gpus: int,
    slo: Slo,
    objective: Objective,
    attain: float,
    gpu_hour_price: float | None = None,
    min_replicas: int = 1,
    survives_loss: bool = False,
    confidence: float | None = None,
    draft_model: str | None = None,
    acceptance: tuple[float, ...] | None = None,
) -> PlanRequest:
    """UsageError for what cannot be planned, InputError for a model that was not measured.

    ``scratch``: an empty folder, which must exist for as long as the request is used.
    ``attain``: share of requests that must meet the SLO.
    ``acceptance``: of draft tokens, as `Draft.rates`; None: no speculative decoding.
    """
    found = planned_model(model, scratch)
    known = _measured_gpu(gpu)
    _check(loaded, gpus, slo, objective)
    if survives_loss:
        min_replicas = max(min_replicas, REDUNDANT)
    if min_replicas > gpus:
        message = f"{min_replicas} replicas need more than {gpus} GPUs"
        if survives_loss and min_replicas == REDUNDANT:
            raise _refused("--n-minus-one", message, "Remove it, or raise --gpus.")
        raise _refused("--min-replicas", message, "Lower it, or raise --gpus.")
    if confidence is not None:
        _check_confidence(confidence, has_draft=acceptance is not None)
        _require_intervals(slo, family(found.id), known)
    sampled = loaded.with_workload(for_means(loaded.workload))
    requests = [one for seed in range(SEEDS) for one in sampled.requests(seed)]
    if not any(one.output_tokens > 1 for one in requests):
        _check_single_tokens(loaded.name, slo, objective)
    longest = _longest(loaded, [one.tokens for one in requests], found, attain)
    return PlanRequest(
        model=found.id,
        shape=found.shape,
        folder=found.folder,
        gpu=known,
        gpus=gpus,
        slo=slo,
        objective=objective,
        context=min(_context(longest), found.positions),
        shares_prefixes=has_shared_prefixes(loaded.requests(0)),
        gpu_hour_price=gpu_hour_price,
        min_replicas=min_replicas,
        survives_loss=survives_loss,
        confidence=confidence,
        draft=draft_of(found.id, draft_model, acceptance),
    )


def _measured_gpu(text: str) -> Gpu:
    """The GPU of a name in any case. UsageError for one without measured kernels."""
    found = find_gpu(text)
    if found is not None and found.name in SYSTEMS:
        return found
    _, fix = gpu_fix(text, list(SYSTEMS))
    raise _refused("--gpu", f"{text} was not measured", fix)


def _check(loaded: LoadedWorkload, gpus: int, slo: Slo, objective: Objective) -> None:
    if gpus > MAX_GPUS:
        message = f"{gpus} is more than the limit of {MAX_GPUS}"
        raise _refused("--gpus", message, "Divide --scale and --gpus by the same number.")
    if not slo:
        raise UsageError(Problem(message="a plan needs an SLO", fix="Add --ttft, --itl or --e2e."))
    if loaded.workload.conversation and objective is Objective.THROUGHPUT:
        message = "the replays of a plan are too short to find the maximum rate of conversations"
        raise _refused("--objective", message, "Use --objective cost or interactivity.")


def _check_single_tokens(workload: str, slo: Slo, objective: Objective) -> None:
    """Outputs of one token have no ITL, and so no output tokens/s per user."""
    message = f"every output of {workload} has one token, so there"
    if objective is Objective.INTERACTIVITY:
        message += " are no output tokens/s per user to compare"
        raise _refused("--objective", message, "Use --objective cost.")
    if slo.itl_ms is not None:
        message += " is no inter-token latency to limit"
        raise _refused("--itl", message, "Use --ttft or --e2e instead.")


def _check_confidence(confidence: float, *, has_draft: bool) -> None:
    if confidence > MOST_COVERAGE:
        message = f"{confidence:g} is more than {NEAREST} measured points can show"
        raise _refused("--confidence", message, f"Use at most {MOST_COVERAGE:g}.")
    if has_draft:
        message = "there are no measured points of speculative decoding"
        raise _refused("--confidence", message, "Remove --confidence or --acceptance.")


def _require_intervals(slo: Slo, model: str, gpu: Gpu) -> None:
    """Refuse what no graph can meet. ``model``: its `family`."""
    needed = {
        "ttft": slo.ttft_ms is not None or slo.e2e_ms is not None,
        "itl": slo.itl_ms is not None or slo.e2e_ms is not None,
    }
    group = ENGINE, gpu.name, model
    missing = [name.upper() for name in needed if needed[name] and not has_interval(group, name)]
    if missing:
        points = f"fewer than {FEWEST} measured points of {' and '.join(missing)}"
        where = f"{model} with {ENGINE} on {gpu.name}"
        message = f"there are {points} for {where}, so there is no interval"
        raise _refused("--confidence", message, "Remove --confidence.")


def _refused(place: str, message: str, fix: str) -> UsageError:
    return UsageError(Problem(place=place, message=message, fix=fix))


def _longest(
    loaded: LoadedWorkload, lengths: Sequence[int], model: PlannedModel, attain: float
) -> int:
    """Of the requests that the model takes. The engines reject others of a trace; UsageError for
    others of a sampled workload, and for so many that the SLO is out of reach."""
    fitting = [length for length in lengths if length <= model.positions]
    if loaded.workload.trace is None and len(fitting) < len(lengths):
        longest, takes = max(lengths), f"{model.id} takes {model.positions}"
        message = f"a request of {loaded.name} has {longest} tokens; {takes}"
        raise _refused("--workload", message, "Shorten the requests, or use another model.")
    if len(fitting) < max(1, attain * len(lengths)):
        share = 1 - len(fitting) / len(lengths)
        message = (
            f"{share:.1%} of the requests of {loaded.name} are longer than the {model.positions} "
            f"tokens that {model.id} takes, so {attain * 100:.4g}% cannot meet the SLO"
        )
        raise _refused("--workload", message, "Shorten the requests, or use another model.")
    return max(fitting)


def _context(longest: int) -> int:
    """A power of two with room for requests twice as long, which the sensitivity analysis has."""
    context = MIN_CONTEXT
    while context < 2 * longest:
        context *= 2
    return context
