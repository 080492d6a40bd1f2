"""A graph for 1.6.1, rewritten by `penstock upgrade`, runs on 1.7 and replaces all processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.drill.graph_process import GraphProcess
from penstock.local.versions import python_of

NEXT = "1.7.0.dev20261026"
GRAPH = """\
model: {id: openai/gpt-oss-20b}
engine: {kind: mocker}
router: {temperature: 0.25, queue_threshold: 0.5}  # in the policy file
prefill: {}
decode: {}
"""


def pythons(state: dict[str, Any]) -> set[str]:
    """Of the frontend and the workers."""
    serving = [r for r in state["replicas"] if r["program"] in ("frontend", "prefill", "decode")]
    return {psutil.Process(int(r["pid"])).cmdline()[0] for r in serving}


@pytest.mark.destroys_graph
@pytest.mark.needs("dynamo-1.7")
def test_a_running_graph_is_upgraded_to_1_7(tmp_path: Path) -> None:
    python = python_of(NEXT)
    file = tmp_path / "graph.yaml"
    file.write_text(GRAPH)
    with GraphProcess(file, tmp_path, ["--port", "0"]) as graph:
        graph.wait_ready()
        before = graph.state()
        assert python not in pythons(before)
        old = {r["pid"] for r in before["replicas"] if r["program"] in ("prefill", "decode")}
        done = graph.penstock("upgrade", str(file), "--to", NEXT)
        assert done.returncode == 0, done.stderr
        after = graph.wait_for(
            lambda s: (
                not old & {r["pid"] for r in s["replicas"]}
                and all(r["state"] == "ready" for r in s["replicas"])
            ),
            120,
        )
        assert pythons(after) == {python}
