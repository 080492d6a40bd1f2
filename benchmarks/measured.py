"""Reads the measured points in benchmarks/points, and says which half a source belongs to.

The figures and their sources: docs/measured-points.md.
"""

from __future__ import annotations

import csv
from hashlib import sha256
from pathlib import Path

POINTS = Path(__file__).parent / "points" / "points.csv"
FIT, HELD_OUT = "fit", "held-out"
SEED = 7
# The simulator's authors publish the first of these with its data, and predictions were compared
# with the next two before the split was made. The fourth is the rest of InferenceX: as no other
# source with input lengths has the ITL of TensorRT-LLM on B200, InferenceX is split by model.
FIXED = {
    "aiconfigurator": FIT,
    "inferencex": FIT,
    "llm-d": FIT,
    "inferencex-others": HELD_OUT,
}


def half(source_group: str) -> str:
    """``fit`` or ``held-out``: by the name of the source group, never by its figures."""
    if source_group in FIXED:
        return FIXED[source_group]
    digest = sha256(f"{SEED}:{source_group}".encode()).digest()
    return HELD_OUT if digest[0] % 2 else FIT


def read() -> list[dict[str, str]]:
    """The rows of points.csv; an empty cell is unknown."""
    with POINTS.open(newline="") as file:
        return list(csv.DictReader(file))


def can_be_replayed(point: dict[str, str]) -> bool:
    """Whether a point has the lengths, the layout and the load that a replay needs."""
    layout = ("decode_tp", "decode_dp", "decode_replicas")
    needed = ("isl", "osl", *layout, *(() if point["load"] == "offline" else LOADS[point["load"]]))
    return all(point[column] for column in needed)


# The column that gives the amount of load; `burst` sends all requests at once.
LOADS = {"concurrency": ("concurrency",), "poisson": ("rate",), "burst": ("requests",), "ramp": ()}
