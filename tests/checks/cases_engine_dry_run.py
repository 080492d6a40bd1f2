"""Cases of the rules of `--engine-dry-run`, with the engines of tests/support/scripted_engines.py.

The real vLLM responds in the same way (tests/engines/dry_run/test_vllm.py).
"""

from __future__ import annotations

from tests.checks.support import VLLM_AGG, VLLM_DISAGG, Case, graph

CASES: tuple[Case, ...] = (
    Case(
        rule="PS186",
        bad=graph(VLLM_AGG, {"worker/config": {"numa-bind-nodes": [0]}}),
        near=graph(VLLM_AGG, {"worker/config": {"numa-bind-nodes": [0], "numa-bind": True}}),
    ),
    Case(
        rule="PS187",
        bad=graph(VLLM_AGG, {"model/id": "my-org/my-model"}),
        near=graph(VLLM_AGG),
    ),
    Case(
        rule="PS188",
        bad=graph(VLLM_DISAGG, {"decode/config": {"attention-backend": "FLASHINFER"}}),
        near=graph(VLLM_DISAGG, {"decode/config": {"attention-backend": "FLASH_ATTN"}}),
    ),
)
