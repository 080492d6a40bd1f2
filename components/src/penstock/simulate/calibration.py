"""Factors that correct predictions of one model, GPU and engine: their file, and their use.

`bench --calibrate` computes them. An engine's speed-up ratios, which are part of the key of a
replay's cached result, scale its steps; the fixed TTFT is added to the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import AfterValidator, Field

from penstock.errors import GraphError, InputError
from penstock.graph.text_file import read_text_file
from penstock.manifests.deployment import Role
from penstock.simulate.frontend import FrontendTime
from penstock.simulate.interval import family
from penstock.simulate.model import PoolReplay, Replayable
from penstock.strict_yaml.base import Items, Positive, Spec, Text, invalid
from penstock.strict_yaml.kind import DocumentKind
from penstock.strict_yaml.problems import field_problems, parse_strictly
from penstock.text.numbers import count_of, limit_text, significant

VERSION: Final = 1
DRAFTS = "aic_nextn"  # the engine's number of draft tokens
UNCALIBRATED = "step times without calibration"
# By engine and GPU: measured / predicted time of a decode step, the median of the sources in the
# fitting halves of benchmarks/points and benchmarks/runs. `docs/accuracy.md` has their figures.
STEP_TIMES = {("vllm", "h100"): 1.07, ("vllm", "h200"): 1.07}
DRAFTING = (
    "the replay cannot scale prefill and decode of aggregated workers with speculative decoding "
    "separately"
)
Factor = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
Milliseconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Share = Annotated[float, Field(allow_inf_nan=False)]
MARK = "penstock_calibration:"
KIND = DocumentKind(
    name="a calibration file", example="a file that `penstock bench --calibrate` wrote"
)
HEADER = "# Written by `penstock bench --calibrate`. Read it with --calibration FILE.\n"


def _ordered(limits: Sequence[float]) -> Sequence[float]:
    low, high = limits
    if low > high:
        message = f"the lower limit {limit_text(low)} is above the upper limit {limit_text(high)}"
        raise invalid("", message, "Exchange the limits.")
    return limits


Range = Annotated[
    Items[Annotated[float, Field(ge=0)]],
    Field(min_length=2, max_length=2),
    AfterValidator(_ordered),
]


FactorRange = Annotated[Items[Factor], Field(min_length=2, max_length=2), AfterValidator(_ordered)]


class Errors(Spec):
    """Measured divided by predicted percentile, minus 1."""

    ttft_p50: Share = Field(description="Measured median TTFT / predicted one, minus 1.")
    ttft_p90: Share = Field(description="Measured p90 of TTFT / predicted one, minus 1.")
    itl_p50: Share = Field(description="Measured median ITL / predicted one, minus 1.")
    itl_p90: Share = Field(description="Measured p90 of ITL / predicted one, minus 1.")


class Load(Spec):
    """Requests, their rate and their lengths."""

    workload: Text = Field(description="Name of the workload.")
    request_rate: Annotated[float, Field(ge=0)] = Field(description="Served requests/s.")
    concurrency: Annotated[float, Field(ge=0)] = Field(
        description="Mean number of concurrent requests."
    )
    uncached_input_tokens: Range = Field(
        description="10th and 90th percentile of the input tokens that no prefix cache had."
    )
    output_tokens: Range = Field(description="10th and 90th percentile of the output tokens.")


class Calibration(Spec):
    """Factors for one model, GPU and engine."""

    model: Text = Field(description="Model, without its organization.")
    gpu: Text = Field(description="GPU type.")
    engine: Text = Field(description="Inference engine.")
    prefill_speed: Factor = Field(description="Measured speed of prefill / predicted speed.")
    step_time: Factor = Field(description="Measured time of a decode step / predicted time.")
    fixed_ttft_ms: Milliseconds = Field(
        description="Constant that is added to each predicted TTFT, in milliseconds."
    )
    requests: Positive = Field(description="Number of requests that the factors come from.")
    prefill_speed_interval: FactorRange = Field(
        description="95% confidence interval of prefill_speed."
    )
    step_time_interval: FactorRange = Field(description="95% confidence interval of step_time.")
    fixed_ttft_interval_ms: Range = Field(
        description="95% confidence interval of fixed_ttft_ms, in milliseconds."
    )
    errors_before: Errors = Field(description="Errors of the prediction without the factors.")
    errors_after: Errors = Field(description="Errors of the prediction with the factors.")
    peak_prefill_throughput: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="Input tokens/s that a worker prefills, as llm-d's `peakPrefillThroughput`; "
        "only of a quick calibration.",
    )
    load: Load = Field(description="The load at which the factors were measured.")
    shape: Text = Field(description="Pools of the graph: workers × GPUs.")
    measured_at: Text = Field(description="Date of the measurement, UTC.")
    versions: dict[Text, Text] = Field(description="Versions of the software that measured.")
    command: Text = Field(description="The command of the measurement.")
    warnings: Items[Text] = Field(
        default=(), description="Why the measurement may not represent the deployment."
    )

    @property
    def key(self) -> tuple[str, str, str]:
        return self.model, self.gpu, self.engine

    @property
    def factors(self) -> Factors:
        return Factors(
            prefill_speed=self.prefill_speed,
            step_time=self.step_time,
            fixed_ttft_ms=self.fixed_ttft_ms,
        )

    def __str__(self) -> str:
        requests = count_of(self.requests, "request")
        return f"{self.factors} ({requests} of {self.load.workload}, {self.shape})"


class Calibrations(Spec):
    """A calibration file."""

    penstock_calibration: Literal[1] = Field(description="Version of the format of this file.")
    entries: Items[Calibration] = Field(description="One for each model, GPU and engine.")

    def of(self, key: tuple[str, str, str]) -> Calibration | None:
        return next((entry for entry in self.entries if entry.key == key), None)


@dataclass(frozen=True, kw_only=True)
class Factors:
    prefill_speed: float = 1.0
    step_time: float = 1.0
    fixed_ttft_ms: float = 0.0

    @property
    def frontend_time(self) -> FrontendTime:
        return FrontendTime(fixed_ms=self.fixed_ttft_ms)

    def __str__(self) -> str:
        return (
            f"prefill speed × {significant(self.prefill_speed)}, "
            f"step time × {significant(self.step_time)}, "
            f"TTFT + {significant(self.fixed_ttft_ms)} ms"
        )


def group_of(deployment: Replayable) -> tuple[str, str, str]:
    """Model, GPU and engine."""
    engine = deployment.pools[0].engine["engine"]
    model = family(engine["timing_model"]["config"]["model"])
    return model, deployment.gpu.name, engine["backend"]


def can_scale(deployment: Replayable) -> bool:
    """False for an aggregated engine with speculative decoding, for which the replay has one ratio
    for all steps."""
    return not any(p.role is Role.WORKER and DRAFTS in p.engine["engine"] for p in deployment.pools)


def uncalibrated(deployment: Replayable) -> Replayable:
    """The deployment with the step time that is usual for its engine and GPU."""
    step_time = _usual_step_time(deployment)
    if step_time is None:
        return deployment
    if not can_scale(deployment):
        note = f"decode steps take AISimulate's time, not {step_time} times this, as {DRAFTING}"
        return replace(deployment, assumed=(*deployment.assumed, note))
    pools = tuple(_scaled(pool, Factors(step_time=step_time)) for pool in deployment.pools)
    return replace(deployment, pools=pools, assumed=(*deployment.assumed, _usual_note(deployment)))


def _usual_step_time(deployment: Replayable) -> float | None:
    _, gpu, engine = group_of(deployment)
    return STEP_TIMES.get((engine, gpu))


def _usual_note(deployment: Replayable) -> str:
    *_, engine = group_of(deployment)
    times = _usual_step_time(deployment)
    return f"decode steps take {times} times AISimulate's time, as measured for {engine}"


def corrected(deployment: Replayable, factors: Factors) -> Replayable:
    """The deployment with the factors, which replace earlier ones."""
    pools = tuple(_scaled(pool, factors) for pool in deployment.pools)
    return replace(deployment, pools=pools, frontend_time=factors.frontend_time)


def _scaled(pool: PoolReplay, factors: Factors) -> PoolReplay:
    """A step of an aggregated engine takes the time of its prefill plus that of its decode."""
    speed, decode_speed = factors.prefill_speed, 1 / factors.step_time
    ratios = {"speedup_ratio": speed}
    if pool.role is Role.DECODE:
        ratios = {"speedup_ratio": decode_speed}
    elif pool.role is Role.WORKER:
        ratios |= {"decode_speedup_ratio": decode_speed / speed}
    engine = {**pool.engine["engine"], **ratios}
    return replace(pool, engine={**pool.engine, "engine": engine})


@dataclass(frozen=True, kw_only=True)
class CalibrationFile:
    """The file of `--calibration`."""

    name: str
    content: Calibrations

    def of(self, key: tuple[str, str, str]) -> Calibration | None:
        return self.content.of(key)

    def calibrated(self, deployment: Replayable) -> Replayable:
        """The deployment with the factors of its model, GPU and engine, else with a note in
        `assumed`."""
        entry = self.of(group_of(deployment))
        if entry is None:
            note = f"{UNCALIBRATED}, as {self.missing(group_of(deployment))}"
            return replace(deployment, assumed=(*deployment.assumed, note))
        if not can_scale(deployment):
            note = f"{UNCALIBRATED}, as {DRAFTING}"
            return replace(deployment, assumed=(*deployment.assumed, note))
        others = (note for note in deployment.assumed if note != _usual_note(deployment))
        return replace(
            corrected(deployment, entry.factors),
            calibration=entry,
            assumed=(*others, f"calibration of {self.name}: {entry}"),
        )

    def missing(self, *keys: tuple[str, str, str]) -> str:
        """What is missing if the file has no entry for ``keys``."""
        requested = "; ".join(", ".join(key) for key in keys)
        known = "; ".join(", ".join(entry.key) for entry in self.content.entries) or "nothing"
        return f"{self.name} has no entry for {requested}; its entries are for {known}"


def load_calibrations(path: Path) -> Calibrations:
    """InputError when the file cannot be read, GraphError with every problem in it, and for two
    entries of the same model, GPU and engine."""
    problems_of = partial(field_problems, root=Calibrations)
    calibrations = parse_strictly(read_text_file(path), str(path), KIND, Calibrations, problems_of)
    keys = [entry.key for entry in calibrations.entries]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        message = f"{', '.join(twice)} has two entries"
        fix = "Remove one of them."
        raise GraphError(message, file=str(path), place="entries", fix=fix)
    return calibrations


def existing_calibrations(path: Path) -> Calibrations:
    """The calibrations of a file that will be replaced; none if there is no file, or an empty one.
    InputError if it is another kind of file, GraphError if it is damaged."""
    if not path.exists():
        return Calibrations(penstock_calibration=VERSION, entries=())
    text = read_text_file(path)
    if not text.strip():
        return Calibrations(penstock_calibration=VERSION, entries=())
    if MARK not in text:
        message = "already exists, and is not a calibration file"
        fix = "Name another file, or remove it first."
        raise InputError(message, file=str(path), fix=fix)
    return load_calibrations(path)


def with_entry(file: Calibrations, entry: Calibration) -> Calibrations:
    """The file with the entry instead of an earlier one for the same model, GPU and engine."""
    kept = [old for old in file.entries if old.key != entry.key]
    entries = tuple(sorted([*kept, entry], key=lambda calibration: calibration.key))
    return Calibrations(penstock_calibration=VERSION, entries=entries)


def calibrations_text(file: Calibrations) -> str:
    """The YAML of a file, which `load_calibrations` reads."""
    return HEADER + yaml.dump(
        _quoted(file.model_dump(mode="json")),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
    )


class _Quoted(str):
    """A text value, quoted because readers of YAML disagree about texts such as 1e3 and y."""


class _Dumper(yaml.SafeDumper):
    """Writes ranges in one line."""


def _quote(dumper: yaml.SafeDumper, text: _Quoted) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    is_range = all(isinstance(item, float) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=is_range)


_Dumper.add_representer(_Quoted, _quote)
_Dumper.add_representer(list, _list)


def _quoted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _quoted(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_quoted(child) for child in value]
    return _Quoted(value) if isinstance(value, str) else value
