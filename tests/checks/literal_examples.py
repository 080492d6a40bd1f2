"""Examples of the rules that have no case: they are about the file itself."""

from __future__ import annotations

from collections.abc import Mapping

from tests.checks.support import Case, vllm_agg, vllm_agg_dgd

GRAPH = vllm_agg()
LITERAL: Mapping[str, Case] = {
    case.rule: case
    for case in (
        Case(
            rule="PS001",
            bad=GRAPH.replace("model:\n", "model:\n  served_name: cin\udce9ma\n"),  # é in Latin-1
            near=GRAPH.replace("model:\n", "model:\n  served_name: cinéma\n"),
        ),
        Case(
            rule="PS005",
            bad=vllm_agg({"checks/suppress/PS803": "one node is all there is"}),
            near=vllm_agg({"checks/suppress/PS810": "a test needs one frontend"}),
            is_repaired_by_near=True,
        ),
        Case(
            rule="PS006",
            bad=vllm_agg_dgd({"dgd/spec/backendFramework": ["vllm"]}),
            near=vllm_agg_dgd(),
        ),
    )
}
