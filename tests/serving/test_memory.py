"""The memory budget of a worker whose memory settings are unset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.manifests.source import open_source
from penstock.memory import MemoryBudget, Use
from penstock.serving.memory import memory_budgets
from penstock.serving.understand import Hints, understand
from tests.checks.model_folders import LATENT, model
from tests.checks.support import SGLANG_AGG, VLLM_AGG, graph

EIGHT = model(  # Qwen3-8B
    "eight-billion",
    model_type="qwen3",
    num_hidden_layers=36,
    num_attention_heads=32,
    head_dim=128,
    intermediate_size=12288,
    vocab_size=151936,
)
SERVES = {"model/id": "acme/model", "worker/gpus": 1, "model/context_length": 8192}


def budget_of(base: Any, tmp_path: Path, **changes: Any) -> MemoryBudget:
    path = tmp_path / "case.yaml"
    path.write_text(graph(base, changes))
    ((_, budget),) = memory_budgets(understand(open_source(path), Hints()))
    return budget


def test_sglang_reserves_by_the_size_of_a_step(tmp_path: Path) -> None:
    """136.36 GiB were logged for Qwen3-8B on a B200 (tests/memory/published.yaml)."""
    budget = budget_of(SGLANG_AGG, tmp_path, **SERVES, **{"model/path": EIGHT})
    assert budget.inputs.fraction == pytest.approx(0.854, abs=0.001)
    assert budget.pool_gib == pytest.approx(136.36, rel=0.02)
    assert {line.use for line in budget.beside} == {Use.ACTIVATIONS, Use.GRAPHS}


def test_sglang_reserves_for_complete_prompts_without_chunked_prefill(tmp_path: Path) -> None:
    unchunked = {
        "worker/config/chunked-prefill-size": -1,
        "worker/config/max-prefill-tokens": 32768,
    }
    budget = budget_of(SGLANG_AGG, tmp_path, **SERVES, **{"model/path": EIGHT}, **unchunked)
    assert budget.inputs.fraction == pytest.approx(1 - (512 + 1.5 * 32768) / 183398, abs=0.012)


@pytest.mark.parametrize(
    ("dynamo", "release", "fraction"), [("1.1.1", (0, 19), 0.9), ("1.6.1", (0, 31), 0.92)]
)
def test_vllms_release_decides_its_default_fraction(
    tmp_path: Path, dynamo: str, release: tuple[int, int], fraction: float
) -> None:
    image = f"nvcr.io/nvidia/ai-dynamo/vllm-runtime:{dynamo}"
    inputs = budget_of(VLLM_AGG, tmp_path, **{"engine/image": image}).inputs
    assert (inputs.release, inputs.fraction) == (release, fraction)


@pytest.mark.parametrize(
    ("changes", "mib"),
    [
        ({"cuda-graph-bs-decode": [1, 2048]}, 2 * (2048 - 512)),
        ({"cuda-graph-max-bs-decode": 1024}, 2 * (1024 - 512)),
        ({"disable-decode-cuda-graph": True}, -2 * 512),
        ({"disable-prefill-cuda-graph": True}, -8 * 74),
        ({"cuda-graph-backend-prefill": "disabled"}, -8 * 74),
        ({"pp-size": 1}, 0),
    ],
)
def test_sglang_reserves_for_graphs(changes: dict[str, Any], mib: float, tmp_path: Path) -> None:
    paths = {**SERVES, "model/path": EIGHT}
    plain = budget_of(SGLANG_AGG, tmp_path, **paths).inputs
    config = {f"worker/config/{key}": value for key, value in changes.items()}
    changed = budget_of(SGLANG_AGG, tmp_path, **paths, **config).inputs
    reserved = (plain.fraction - changed.fraction) * plain.gpu.memory_gib * 1024
    assert reserved == pytest.approx(mib, abs=200)  # the fraction has three digits


def test_sglang_keeps_less_of_the_sliding_layers(tmp_path: Path) -> None:
    both = budget_of(SGLANG_AGG, tmp_path, **{"worker/gpus": 1})
    full = budget_of(
        SGLANG_AGG,
        tmp_path,
        **{"worker/gpus": 1, "worker/config/disable-hybrid-swa-memory": True},
    )
    assert both.token_bytes == pytest.approx(full.token_bytes * (1 + 0.8) / 2)


def test_decode_context_parallelism_splits_a_sequence(tmp_path: Path) -> None:
    latent = {**SERVES, "model/path": LATENT, "worker/gpus": 8}
    latent_budget = budget_of(VLLM_AGG, tmp_path, **latent)
    eight = budget_of(
        VLLM_AGG, tmp_path, **latent, **{"worker/config/decode-context-parallel-size": 8}
    )
    assert eight.token_bytes == latent_budget.token_bytes / 8
