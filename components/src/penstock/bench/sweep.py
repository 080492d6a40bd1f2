"""Measures one endpoint at several loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.bench.measurement import Bench, BenchRequest
from penstock.bench.run import INTERRUPTED, Progress, bench, new_folder
from penstock.errors import BenchError
from penstock.text.numbers import plain_number


def scale_text(scale: float) -> str:
    """As it is printed, and in the names of its folder and files."""
    return plain_number(scale, 6)


@dataclass(frozen=True, kw_only=True)
class Level:
    """One run of a sweep."""

    scale: float
    """Times the load of the request."""
    bench: Bench

    @property
    def name(self) -> str:
        return scale_text(self.scale)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """In order of the scales. It ends with the first level that misses the SLO or is incomplete."""

    levels: Sequence[Level]
    unmeasured: Sequence[float]
    """Scales that were left out for this reason."""
    interrupted: str
    """What ended the sweep early; empty if nothing did."""
    gpus: int | None
    """Of the endpoint; None if not known."""

    def gpu_rate(self, level: Level) -> float | None:
        """Output tokens/s/GPU; None if the number of GPUs is not known."""
        return level.bench.measurement.output_rate / self.gpus if self.gpus else None

    @property
    def front(self) -> list[Level]:
        """Levels for which no other one has as many tokens/s per user and more tokens/s of all
        users, or the other way around."""
        return [
            level for level in self.levels if not any(_beats(other, level) for other in self.levels)
        ]

    @property
    def highest(self) -> Level | None:
        """The last one that meets the SLO; None without an SLO, and if none does."""
        return next((level for level in reversed(self.levels) if level.bench.meets_slo), None)


def _beats(first: Level, second: Level) -> bool:
    rates = _rates(first), _rates(second)
    return rates[0] != rates[1] and all(a >= b for a, b in zip(*rates, strict=True))


def _rates(level: Level) -> tuple[float, float]:
    measured = level.bench.measurement
    return measured.user_rate or 0.0, measured.output_rate


def sweep(
    request: BenchRequest,
    scales: Sequence[float],
    folder: Path,
    progress: Progress,
    *,
    gpus: int | None,
) -> Sweep:
    """``scales``: multiples of the load of ``request``, lowest first. Raises as `bench` does for
    the first level; a later one that fails ends the sweep."""
    levels: list[Level] = []
    interrupted = ""
    for scale in scales:
        workload = request.workload.at_scale(scale) if scale != 1 else request.workload

        def at_scale(text: str, done: int, total: int, scale: float = scale) -> None:
            progress(f"scale {scale_text(scale)}: {text}", done, total)

        try:
            level_folder = new_folder(folder / f"scale-{scale_text(scale)}")
            measured = bench(replace(request, workload=workload), level_folder, at_scale)
        except (BenchError, KeyboardInterrupt) as error:
            if not levels:
                raise
            interrupted = str(error) or INTERRUPTED
            break
        levels.append(Level(scale=scale, bench=measured))
        interrupted = measured.interrupted
        if interrupted or measured.meets_slo is False or not measured.measurement.counted:
            break
    return Sweep(
        levels=levels, unmeasured=scales[len(levels) :], gpus=gpus, interrupted=interrupted
    )
