"""Cases of the rules of `--engine-dry-run`, with the engines of tests/support/scripted_engines.py.

The real vLLM responds in the same way (tests/engines/dry_run/test_vllm.py).
"""

from __future__ import annotations

from tests.checks.support import OMIT, VLLM_AGG, VLLM_DISAGG, Case, X, graph, vary

CASES: tuple[Case, ...] = (
    vary("PS186", graph, VLLM_AGG, {"worker/config": {"numa-bind-nodes": [0], "numa-bind": X}})(
        OMIT, True
    ),
    vary("PS187", graph, VLLM_AGG, X)({"model/id": "my-org/my-model"}, OMIT),
    vary("PS188", graph, VLLM_DISAGG, {"decode/config": {"attention-backend": X}})(
        "FLASHINFER", "FLASH_ATTN"
    ),
)
