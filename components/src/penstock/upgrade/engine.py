"""What an upgrade changes in the images besides Dynamo: the engine and the KV transfer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.checks.version_range import NAMES
from penstock.engines.releases import RELEASES
from penstock.graph.model import Graph
from penstock.graph.versions import minor

# NIXL of TensorRT-LLM, vLLM and SGLang, and UCX (docs.nvidia.com/dynamo, Deprecations, 2026-11-23).
TRANSFER: Mapping[str, tuple[str, str, str, str]] = {
    "1.5": ("1.3.1", "1.3.2", "1.4.0", "1.21"),
    "1.6": ("1.3.1", "1.4.1", "1.5.0", "1.21"),
    "1.7": ("1.5.2", "1.5.0", "1.5.2", "1.22"),
}
ENGINES = ("trtllm", "vllm", "sglang")
# The newest TensorRT-LLM whose configuration keys were read (engines/data/trtllm_arguments.json).
KEYS_UNTIL = "1.3.0rc29"


def engine_notes(graph: Graph, old: str, new: str) -> Iterator[str]:
    """The versions in the images of the newest patches, and whether the engine's keys are known."""
    kind, releases = graph.engine.kind, (minor(old), minor(new))
    if kind not in ENGINES or releases[0] == releases[1]:
        return
    name, at = NAMES[kind], ENGINES.index(kind)
    versions = {
        name: [str(getattr(RELEASES[release], kind)) for release in releases],
        "NIXL": [TRANSFER[release][at] for release in releases],
        "UCX": [TRANSFER[release][-1] for release in releases],
    }
    changes = ", ".join(
        f"{program} {first} → {second}"
        for program, (first, second) in versions.items()
        if first != second
    )
    yield f"NVIDIA's images of {RELEASES[releases[1]].dynamo}: {changes}"
    if (release := versions[name][1]) != KEYS_UNTIL and kind == "trtllm":
        yield (
            f"the keys of {name} {release} were not verified, only those up to {KEYS_UNTIL}: "
            f"compare the graph's engine settings with the release notes of {name}"
        )
