"""The releases of Dynamo and the engine versions in their images.

Sources: the extras that each ai-dynamo wheel requires, and Dynamo's pages "Compatibility" and
"Release artifacts" (docs.nvidia.com/dynamo). Where they differ (vLLM of 0.6), the pages count,
which list the images. No wheel of 1.6.2 and 1.7.0 could be read: their engines are from the pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Release:
    """The newest patch of one release, with the engines of its images."""

    dynamo: str
    trtllm: str
    vllm: str
    sglang: str

    @property
    def operator(self) -> str:
        """The Dynamo operator has the version of Dynamo."""
        return self.dynamo


def _release(dynamo: str, trtllm: str, vllm: str, sglang: str) -> Release:
    return Release(dynamo=dynamo, trtllm=trtllm, vllm=vllm, sglang=sglang)


# Oldest first, by the first two numbers.
RELEASES: Mapping[str, Release] = {
    "0.4": _release("0.4.1", "1.0.0rc6", "0.10.1.1", "0.5.0rc2"),
    "0.5": _release("0.5.1", "1.1.0rc5", "0.10.1.1", "0.5.0rc2"),
    "0.6": _release("0.6.1", "1.1.0rc5", "0.11.0", "0.5.3.post2"),
    "0.7": _release("0.7.1", "1.2.0rc3", "0.11.0", "0.5.4.post3"),
    "0.8": _release("0.8.1", "1.2.0rc6.post1", "0.12.0", "0.5.6.post2"),
    "0.9": _release("0.9.1", "1.3.0rc3", "0.14.1", "0.5.8"),
    "1.0": _release("1.0.2", "1.3.0rc5.post1", "0.16.0", "0.5.9"),
    "1.1": _release("1.1.1", "1.3.0rc11", "0.19.0", "0.5.10.post1"),
    "1.2": _release("1.2.1", "1.3.0rc14", "0.20.1", "0.5.11"),
    "1.3": _release("1.3.1", "1.3.0rc19", "0.23.0", "0.5.14"),
    "1.4": _release("1.4.2", "1.3.0rc22", "0.26.0", "0.5.16"),
    "1.5": _release("1.5.1", "1.3.0rc25", "0.28.0", "0.5.18"),
    "1.6": _release("1.6.2", "1.3.0rc29", "0.31.0", "0.5.21"),
    "1.7": _release("1.7.0", "1.4.0rc2", "0.33.0", "0.5.23"),
}
OLDEST, NEWEST = next(iter(RELEASES)), list(RELEASES)[-1]
# The release that penstock deploys. The tables of flags are from its parsers.
DEPLOYED = "1.6"


def following(release: str) -> str | None:
    """The release after it; None for the last one, and for one that is not known."""
    known = list(RELEASES)
    at = known.index(release) + 1 if release in known else len(known)
    return known[at] if at < len(known) else None
