"""CUDA_VISIBLE_DEVICES of the user: the GPUs that `up` may assign. Pure.

CUDA ends the list at the first invalid entry without a message; here that is a problem.
"""

from __future__ import annotations

from penstock.local.gpus.gpu import Gpu, Inventory

VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible(gpus: tuple[Gpu, ...], text: str | None) -> Inventory:
    """``text``: indices, UUIDs or their beginnings, separated by commas; None: all GPUs.

    Indices are those of `nvidia-smi`.
    """
    if text is None:
        return Inventory(gpus=gpus)
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if entries in ([], ["-1"]):
        return Inventory(
            hidden=len(gpus), problem=f"{VARIABLE}={text!r} hides every GPU" if gpus else ""
        )
    chosen = []
    for entry in entries:
        match = _found(gpus, entry)
        if isinstance(match, str):
            return Inventory(hidden=len(gpus), problem=f"{VARIABLE}={text}: {match}")
        if match not in chosen:
            chosen.append(match)
    chosen.sort(key=lambda gpu: gpu.index)
    return Inventory(gpus=tuple(chosen), hidden=len(gpus) - len(chosen))


def _found(gpus: tuple[Gpu, ...], entry: str) -> Gpu | str:
    """The GPU that ``entry`` names, else what is wrong with it."""
    if entry.startswith("MIG-"):
        return f"{entry} is a MIG device, which `up` does not support"
    if entry.isdigit():
        matching = [gpu for gpu in gpus if gpu.index == int(entry)]
    else:
        matching = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    if len(matching) > 1:
        return f"{entry} matches {len(matching)} GPUs"
    return matching[0] if matching else f"this machine has no GPU {entry}"
