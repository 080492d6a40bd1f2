"""The GPU that a graph or an argument means, if penstock supports it, and what to say if not."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.hardware.gpus import find_gpu
from penstock.text.names import nearest

# GPUs and accelerators whose names look like those of supported ones.
_OTHERS = re.compile(
    r"a(10g?|16|30|40|100|800|2000|4000|5000|6000)x?|l(4|20|40s?)|[vp]100s?|[tp]4|h(20|800)"
    r"|b(40|100)|gh200|rtx|gtx|geforce|quadro|titan|pro|ada|spark|thor|jetson|orin|nvl|pcie|mig"
    r"|mi\d+[a-z]?|radeon|instinct|gaudi\d?|hpu|tpu.*|trainium\d?|inferentia\d?"
)


def gpu_fix(text: str, supported: Sequence[str]) -> tuple[str, str]:
    """(message, fix) for an argument that is no supported GPU."""
    meant = meant_gpu(text, supported)
    listed = f"Use one of {', '.join(supported)}."
    if meant:
        return f"{text} is unknown", f"Did you mean {meant}? {listed}"
    return f"{text} is not supported", listed


def meant_gpu(text: str, supported: Sequence[str]) -> str:
    """The supported GPU that a text names with other words or a typing error, else empty.

    A100 is no H100: for the name of another GPU nothing is suggested.
    """
    found = find_gpu(text)
    if found is not None and found.name in supported:
        return found.name
    words = re.split(r"[^a-z0-9]+", text.lower())
    if any(_OTHERS.fullmatch(word) for word in words):
        return ""
    first = text.strip("\"'“”‘’ ")[:1].lower()
    return nearest(text, [name for name in supported if name.startswith(first)]) if first else ""
