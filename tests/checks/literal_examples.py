"""Examples of the rules that have no case: they are about the file itself."""

from __future__ import annotations

from collections.abc import Mapping

from tests.checks.support import VLLM_AGG, Case, graph, manifest

GRAPH = graph(VLLM_AGG)
LITERAL: Mapping[str, Case] = {
    case.rule: case
    for case in (
        Case(
            rule="PS001",
            # The byte 0xe9: "é" in Latin-1.
            bad=f"# Mod\udce9le de production\n{GRAPH}",
            near=f"# Modéle de production\n{GRAPH}",
        ),
        Case(
            rule="PS005",
            bad=graph(VLLM_AGG, {"checks/suppress/PS803": "one node is all there is"}),
            near=GRAPH,
        ),
        Case(
            rule="PS006",
            bad=manifest(VLLM_AGG, {"dgd/spec/backendFramework": ["vllm"]}),
            near=manifest(VLLM_AGG),
        ),
    )
}
