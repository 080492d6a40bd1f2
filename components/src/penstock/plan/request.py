"""What an operator asks `plan` for: a model, a GPU budget, a workload and an SLO.

AISimulate ships the configurations of the models that it has measured, so no hub is contacted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod
from pathlib import Path

from penstock.errors import InputError, UsageError
from penstock.files import write_file
from penstock.graph.slo import Slo
from penstock.hardware import Gpu
from penstock.hardware.gpus import requested_gpu
from penstock.models import ModelShape
from penstock.models.config import UnknownShapeError, shape_of
from penstock.plan.traffic import has_shared_prefixes
from penstock.simulate.calibration import CalibrationFile, Factors
from penstock.simulate.interval import FEWEST, NEAREST, family, has_interval
from penstock.simulate.study import SEEDS
from penstock.simulate.timing import SYSTEMS, measured_models
from penstock.text.names import nearest
from penstock.text.numbers import count_of
from penstock.workload.duration import for_means
from penstock.workload.load import LoadedWorkload

METHOD = "EAGLE-3"
# By model; the draft models that Dynamo's recipes use.
DRAFT_MODELS: Mapping[str, str] = {"openai/gpt-oss-120b": "nvidia/gpt-oss-120b-Eagle3-v3"}
DRAFT_TOKENS = 3  # drafted in each step, as in those recipes
ALIASES = {"gpt-oss-120b": "openai/gpt-oss-120b", "gpt-oss-20b": "openai/gpt-oss-20b"}
ENGINE = "trtllm"  # of each planned graph
MIN_CONTEXT = 8192  # tokens
MOST_COVERAGE = 0.92  # of an interval from NEAREST points: 12 of 13
REDUNDANT = 2  # workers of a pool, so that one is left when one is lost
MAX_GPUS = 64  # the number of candidates grows with the square


@dataclass(frozen=True, kw_only=True)
class Draft:
    """EAGLE-3 with a draft model, and how many of its tokens are accepted."""

    model: str  # id or path of the draft model
    rates: tuple[float, ...]  # that token 1, 2, … is accepted, given that those before it were

    @property
    def tokens(self) -> int:
        """Tokens that are drafted in each step."""
        return len(self.rates)

    @property
    def length(self) -> float:
        """Mean number of tokens that a step generates for a request."""
        return 1.0 + sum(prod(self.rates[:token]) for token in range(1, self.tokens + 1))


def draft_of(
    model: str, draft_model: str | None, acceptance: tuple[float, ...] | None
) -> Draft | None:
    """The draft model to consider; None without acceptance rates: then speculative decoding is not
    considered.

    UsageError for a model whose draft model is not known.
    """
    if acceptance is None:
        if draft_model is None:
            return None
        message = "no acceptance rates are given"
        fix = "Add --acceptance RATES, such as --acceptance chat."
        raise UsageError(message, place="--draft-model", fix=fix)
    draft_id = draft_model or DRAFT_MODELS.get(model)
    if draft_id is None:
        message = f"no draft model is known for {model}"
        fix = "Name one with --draft-model ID."
        raise UsageError(message, place="--acceptance", fix=fix)
    return Draft(model=draft_id, rates=acceptance[:DRAFT_TOKENS])


def planned_model(name: str, scratch: Path) -> tuple[str, ModelShape]:
    """Its id and shape. InputError for a model that was not measured, or whose shape is not known.

    ``scratch``: an empty folder, to which its config.json is written.
    """
    full = ALIASES.get(name, name)
    known = measured_models()
    if full not in known:
        close = nearest(full, [*known, *ALIASES])
        examples = ", ".join([*ALIASES, *sorted(known)[:8]])
        fix = f"Did you mean {close}?" if close else f"Use a measured model, such as {examples}."
        raise InputError(f"{name} was not measured", place="--model", fix=fix)
    text = known[full].read_text()
    try:
        shape = shape_of(json.loads(text), full)
    except UnknownShapeError as error:
        message = f"the shape of {full} is not known: {error}"
        raise InputError(message, place="--model", fix="Choose another model.") from None
    write_file(scratch / "config.json", text)
    return full, shape


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
        """The request with predictions that the file corrects. UsageError for a request that cannot
        be."""
        place = "--calibration"
        if file.of(self.group) is None:
            fix = "Name another file, or remove --calibration."
            raise _refused(place, file.missing(self.group), fix)
        if self.draft is not None:
            message = "only some of the graphs with speculative decoding could be calibrated"
            raise _refused(place, message, "Remove --calibration or --acceptance.")
        return replace(self, calibrations=file)

    @property
    def factors(self) -> Factors:
        """The factors that correct predictions."""
        calibration = self.calibrations and self.calibrations.of(self.group)
        return calibration.factors if calibration else Factors()

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
    model, shape = planned_model(model, scratch)
    known = requested_gpu(gpu, list(SYSTEMS), "was not measured")
    _check(loaded, gpus, slo, objective)
    if survives_loss:
        min_replicas = max(min_replicas, REDUNDANT)
    if min_replicas > gpus:
        message = f"{min_replicas} replicas need more than {count_of(gpus, 'GPU')}"
        if survives_loss and min_replicas == REDUNDANT:
            raise _refused("--n-minus-one", message, "Remove it, or raise --gpus.")
        raise _refused("--min-replicas", message, "Lower it, or raise --gpus.")
    if confidence is not None:
        _check_confidence(confidence, has_draft=acceptance is not None)
        _require_intervals(slo, family(model), known)
    sampled = loaded.with_workload(for_means(loaded.workload))
    requests = [request for seed in range(SEEDS) for request in sampled.requests(seed)]
    if not any(request.output_tokens > 1 for request in requests):
        _check_single_tokens(loaded.name, slo, objective)
    lengths = [request.tokens for request in requests]
    longest = _longest(loaded, lengths, model, shape.positions, attain)
    return PlanRequest(
        model=model,
        shape=shape,
        folder=scratch,
        gpu=known,
        gpus=gpus,
        slo=slo,
        objective=objective,
        context=min(_context(longest), shape.positions),
        shares_prefixes=has_shared_prefixes(loaded.requests(0)),
        gpu_hour_price=gpu_hour_price,
        min_replicas=min_replicas,
        survives_loss=survives_loss,
        confidence=confidence,
        draft=draft_of(model, draft_model, acceptance),
    )


def _check(loaded: LoadedWorkload, gpus: int, slo: Slo, objective: Objective) -> None:
    if gpus > MAX_GPUS:
        message = f"{gpus} is more than the limit of {MAX_GPUS}"
        raise _refused("--gpus", message, "Divide --scale and --gpus by the same number.")
    if not slo:
        raise UsageError("a plan needs an SLO", fix="Add --ttft, --itl or --e2e.")
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
    return UsageError(message, place=place, fix=fix)


def _longest(
    loaded: LoadedWorkload, lengths: Sequence[int], model: str, positions: int, attain: float
) -> int:
    """Tokens of the longest request, of those that ``model`` takes with its ``positions``. The
    engines reject others of a trace; UsageError for others of a sampled workload, and for so many
    that the SLO is out of reach."""
    fitting = [length for length in lengths if length <= positions]
    fix = "Shorten the requests, or use another model."
    if loaded.workload.trace is None and len(fitting) < len(lengths):
        message = f"a request of {loaded.name} has {max(lengths)} tokens; {model} takes {positions}"
        raise _refused("--workload", message, fix)
    if len(fitting) < max(1, attain * len(lengths)):
        share = 1 - len(fitting) / len(lengths)
        message = (
            f"{share:.1%} of the requests of {loaded.name} are longer than the {positions} "
            f"tokens that {model} takes, so {attain * 100:.4g}% cannot meet the SLO"
        )
        raise _refused("--workload", message, fix)
    return max(fitting)


def _context(longest: int) -> int:
    """A power of two with room for requests twice as long, which the sensitivity analysis has."""
    context = MIN_CONTEXT
    while context < 2 * longest:
        context *= 2
    return context
