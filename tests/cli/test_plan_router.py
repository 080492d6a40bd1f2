"""`penstock plan --router` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.main import main
from tests.support.command_line import error_of, output_of

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
DISAGG = str(GRAPHS / "gpt-oss-120b-b200-disagg.yaml")
SINGLE = str(GRAPHS / "gpt-oss-20b-h100.yaml")
ROUTER = '''"--router-mode"
                - "kv"'''
MANIFEST = str(Path(__file__).parents[1] / "golden" / "dynamo" / "gpt-oss-120b-b200-disagg.yaml")
# Dynamo's default moves requests away from the worker that has their prefix: the lower bound of the
# ratio was 6.50; needed is 1.03. The prefixes do not fit into the small cache of one worker.
GRAPH = """\
model: {id: openai/gpt-oss-120b, context_length: 32768}  # ours
hardware: {gpu: h200}
engine:
  kind: trtllm
  config:
    max_batch_size: 64
    max_num_tokens: 8192
    kv_cache_config: {free_gpu_memory_fraction: 0.3}
# eight of them
worker: {replicas: 8, gpus: 1}
"""
WORKLOAD = """\
requests: 600
input: {mean: 17000, cv: 0.01, max: 18000}
output: 20
arrival: {poisson: 40}
system_prompts: {tokens: 16384, count: 60}
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    graph, workload = tmp_path / "ours.yaml", tmp_path / "prompts.yaml"
    graph.write_text(GRAPH)
    workload.write_text(WORKLOAD)
    return str(graph), str(workload)


@pytest.mark.needs("sim")
def test_better_settings_are_written_into_a_copy_of_the_graph(
    files: tuple[str, str], tmp_path: Path
) -> None:
    graph, workload = files
    target = tmp_path / "tuned.yaml"
    argv = ["plan", "--router", graph, "--workload", workload, "--ttft", "2s"]
    output = output_of([*argv, "-o", str(target)])
    assert "choice (seeds 0 to 1), the best of 18 combinations:" in output
    assert "confirmation (seeds 2 to 5):" in output
    assert "recommended: prefill_load_scale" in output
    assert f"wrote {target}" in output
    text = target.read_text()
    assert text.startswith(GRAPH)
    assert "# tuned by: penstock" in text
    assert "on traffic that was not used to choose them\nrouter:\n" in text
    assert main(["check", str(target)]) == 0
    # The same question again, from the cache, as JSON.
    document = json.loads(output_of([*argv, "--json"]))
    assert document["schema_version"] == 2
    assert document["recommended"]["is_changed"]
    base, best, *_ = document["confirmation"]["settings"]
    p90 = [settings["figures"]["ttft_p90_ms"]["median"] for settings in (base, best)]
    assert p90[1] < p90[0]
    assert best["ratio"]["low"] > 1.03
    assert best["figures"]["prefix_hit_rate"]["median"] > 0.1
    # Without --force a file is not replaced.
    assert "already exists" in error_of([*argv, "-o", str(target)], 3)


@pytest.mark.needs("sim")
@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ([DISAGG, "--set", "router.mode=round-robin"], 17, "round-robin has no settings to tune"),
        ([DISAGG, "--set", "router.mode=random"], 17, "random has no settings to tune"),
        ([SINGLE], 17, "1×1 worker: no pool has two workers"),
        ([SINGLE, "--set", "worker.replicas=2", "-o", "new.yaml"], 2, "-o: writes the file's own"),
        ([MANIFEST, "-o", "new.yaml"], 2, "-o: writes graphs, and this is a DGD manifest"),
    ],
)
def test_what_cannot_be_tuned_is_refused(
    argv: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output = error_of(["plan", "--router", *argv, "--workload", "short-chat"], code)
    assert message in output
    assert "Fix: " in output
    assert not list(tmp_path.glob("*.yaml"))


@pytest.mark.needs("sim")
def test_a_manifest_with_another_router_mode_names_no_field_of_a_graph(tmp_path: Path) -> None:
    manifest = tmp_path / "dgd.yaml"
    text = Path(MANIFEST).read_text()
    assert ROUTER in text
    manifest.write_text(text.replace(ROUTER, ROUTER.replace("kv", "round-robin")))
    output = error_of(["plan", "--router", str(manifest), "--workload", "short-chat"], 17)
    assert "the frontend's --router-mode: round-robin has no settings to tune" in output
    assert output.endswith("Fix: Set the router mode to kv.\n")


@pytest.mark.needs("sim")
def test_too_little_traffic_is_refused(files: tuple[str, str], tmp_path: Path) -> None:
    graph, workload = files
    trace = tmp_path / "short.jsonl"
    row = '{"timestamp": %d, "input_length": 64, "output_length": 5, "hash_ids": [%d]}'
    trace.write_text("\n".join(row % (10 * number, number) for number in range(300)))
    Path(workload).write_text("trace: {format: mooncake, file: short.jsonl}\n")
    assert "half of the trace has 150 requests; at least 200 are needed" in error_of(
        ["plan", "--router", graph, "--workload", workload], 17
    )
