"""Cases of the rules of `--engine-dry-run`, with the engines of tests/support/scripted_engines.py.

The real vLLM responds in the same way (tests/engines/dry_run/test_vllm.py).
"""

from __future__ import annotations

from tests.checks.support import OMIT, Case, X, vary, vllm_agg, vllm_disagg

CASES: tuple[Case, ...] = (
    vary("PS186", vllm_agg, {"worker/config": {"numa-bind-nodes": [0], "numa-bind": X}})(
        OMIT, True
    ),
    vary("PS187", vllm_agg)({"model/id": "my-org/my-model"}, OMIT),
    vary("PS188", vllm_disagg, {"decode/config": {"attention-backend": X}})(
        "FLASHINFER", "FLASH_ATTN"
    ),
)
