"""The correction factors of a run as text."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.simulate.calibration import Calibration
from penstock.simulate.report import aligned


def calibration_lines(found: Calibration) -> Iterator[str]:
    where = ", ".join(found.key)
    yield f"calibration of {where}, from {found.requests} requests (95% interval):"
    fixed = found.fixed_ttft_interval_ms
    yield from aligned(
        [
            _factor("prefill speed", found.prefill_speed, found.prefill_speed_interval),
            _factor("step time", found.step_time, found.step_time_interval),
            (
                "fixed TTFT",
                f"{found.fixed_ttft_ms:.1f} ms",
                f"({fixed[0]:.1f} to {fixed[1]:.1f} ms)",
            ),
        ]
    )
    yield "measured compared with predicted: without → with these factors:"
    before, after = found.errors_before, found.errors_after
    names = {"ttft": "TTFT", "itl": "ITL"}
    rows: list[tuple[str, ...]] = [("", "p50", "p90")]
    for key, name in names.items():
        shares = (f"{key}_p50", f"{key}_p90")
        rows.append(
            (name, *(f"{getattr(before, one):+.0%} → {getattr(after, one):+.0%}" for one in shares))
        )
    yield from aligned(rows)
    yield from (f"warning: {one}" for one in found.warnings)


def _factor(name: str, value: float, interval: tuple[float, ...]) -> tuple[str, str, str]:
    return name, f"× {value:.3f}", f"({interval[0]:.3f} to {interval[1]:.3f})"
