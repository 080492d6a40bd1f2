"""Notes on the difference between this machine's GPUs and those that a graph was written for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.local.deployment import Program
from penstock.local.gpus.gpu import Gpu, gib, models


def gpu_notes(
    programs: Sequence[Program], gpus: Sequence[Gpu], written_for: str | None
) -> tuple[str, ...]:
    """``written_for``: the graph's `hardware.gpu`, such as h200; None: unknown. Empty without
    programs that use a GPU."""
    if not gpus or not any(program.gpus for program in programs):
        return ()
    notes = []
    unlike = [gpu for gpu in gpus if not _is(gpu, written_for)]
    if written_for and unlike:
        notes.append(
            f"the graph's settings and its memory check are for {written_for}, and this machine "
            f"has {models(gpus)}"
        )
    return (*notes, *(note for p in programs if (note := _weights_note(p, gpus))))


def _is(gpu: Gpu, kind: str | None) -> bool:
    """Whether a word of the name is the kind: `NVIDIA GB200` is not a b200."""
    return kind is not None and kind in re.split(r"[\s-]+", gpu.name.lower())


def _weights_note(program: Program, gpus: Sequence[Gpu]) -> str:
    """The engine may load them in fewer bits, so this is a note, not an error."""
    least = min((gpu.memory_bytes for gpu in gpus if gpu.memory_bytes), default=0)
    if not program.gpus or not least:
        return ""
    share = program.weights_bytes // program.gpus
    if share <= least:
        return ""
    total = gib(program.weights_bytes)
    return (
        f"{program.name}: the weight files have {total}, {gib(share)} for each of {program.gpus} "
        f"GPUs, and a GPU has {gib(least)}: the engine will probably run out of memory"
    )
