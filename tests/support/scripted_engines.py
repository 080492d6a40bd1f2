"""Engines for `check --engine-dry-run` that respond by a few of a worker's arguments.

The tests of rules and the examples of their pages use them, because the real ones take seconds.
`tests/engines/dry_run` runs the real ones.
"""

from __future__ import annotations

from pathlib import Path

from penstock.engines.dry_run.protocol import Accepted, Configuration, Outcome, Refused, Resolved
from penstock.manifests.deployment import Engine

VERSIONS = {Engine.VLLM: "0.31.0", Engine.SGLANG: "0.5.21"}


class ScriptedEngines:
    """vLLM 0.31.0 and SGLang 0.5.21, as far as the tests need them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[Configuration] = []

    def has(self, engine: Engine) -> bool:
        return engine in VERSIONS

    def version(self, engine: Engine) -> str:
        return VERSIONS[engine]

    def ask(self, engine: Engine, configuration: Configuration) -> Outcome:
        self.asked.append(configuration)
        return _vllm(configuration) if engine is Engine.VLLM else Accepted(resolved=Resolved())


def _vllm(configuration: Configuration) -> Outcome:
    # The chart writes the engine's settings into a file.
    words = " ".join((*configuration.launch.arguments, *configuration.launch.files.values()))
    if "numa-bind-nodes" in words and "numa-bind:" not in words:
        return Refused(message="numa_bind_nodes and numa_bind_cpus require numa_bind=True.")
    backend = "FLASHINFER" if "FLASHINFER" in words else "FLASH_ATTN"
    return Accepted(resolved=Resolved(attention_backend=backend, block_size=16))
