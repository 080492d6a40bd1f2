"""`penstock upgrade`: what it writes, what it reports, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.errors import GraphError
from penstock.graph.load import parse_graph
from penstock.upgrade.plan import plan_upgrade
from penstock.upgrade.report import lines

NEXT = "1.7.0.dev20261026"
GRAPH = """\
# our graph
model: {id: openai/gpt-oss-120b}
engine:
  kind: vllm
  image: reg:5000/x/vllm-runtime:1.6.1-efa  # ours
router:
  queue_threshold: 0.5
frontend:
  args: ["--router-queue-policy", wspt]
prefill: {replicas: 2}
decode: {replicas: 1, gpus: 4}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "llm.yaml"
    path.write_text(GRAPH)
    return path


def refused(file: Path, text: str, to: str) -> str:
    file.write_text(text)
    with pytest.raises(GraphError) as caught:
        plan_upgrade(text, file, to)
    assert main(["upgrade", str(file), "--to", to]) == GraphError.exit_code
    assert file.read_text() == text
    return str(caught.value)


def test_the_file_gets_the_version_and_keeps_its_comments(file: Path) -> None:
    assert main(["upgrade", str(file), "--to", NEXT]) == 0
    text = file.read_text()
    assert text == GRAPH.replace("model:", f'dynamo: "{NEXT}"\nmodel:', 1).replace(
        "reg:5000/x/vllm-runtime:1.6.1-efa", f'"reg:5000/x/vllm-runtime:{NEXT}-efa"'
    )
    assert parse_graph(text, str(file)).graph.dynamo_version == NEXT


def test_a_plan_writes_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upgrade", str(file), "--to", NEXT, "--plan"]) == 0
    assert file.read_text() == GRAPH
    assert f'+dynamo: "{NEXT}"' in capsys.readouterr().out


def test_the_plan_has_the_order_the_changes_and_the_restarts(file: Path) -> None:
    upgrade = plan_upgrade(GRAPH, file, NEXT)
    titles = [step.title for step in upgrade.steps]
    assert titles == [f"CRDs of Dynamo {NEXT}", f"operator {NEXT}", "graph llm"]
    (change,) = upgrade.changes
    assert (change.place, change.line) == ("frontend.args[0]", 9)
    assert change.text.startswith("deprecated: --router-queue-policy: announced for v1.7")
    restarts = "\n".join(upgrade.restarts)
    assert "prefill: restarted" in restarts
    assert "frontend: restarted" in restarts
    assert "the KV cache of 2 × prefill and 1 × decode is lost" in restarts
    assert f"upgrade of {file}: Dynamo 1.6.1 → {NEXT}" in list(lines(upgrade))


def test_a_graph_on_several_nodes_upgrades_grove_between_crds_and_operator(file: Path) -> None:
    text = GRAPH.replace("gpus: 4", "gpus: 8, nodes: 2")
    titles = [step.title for step in plan_upgrade(text, file, NEXT).steps]
    assert [title.split()[0] for title in titles] == ["CRDs", "Grove", "operator", "graph"]


def test_platform_plain_needs_neither_crds_nor_operator(file: Path) -> None:
    text = f"platform: plain\n{GRAPH}"
    assert [s.title for s in plan_upgrade(text, file, NEXT).steps] == ["graph llm"]


def test_settings_of_the_router_move_from_flags_to_the_file_at_1_6(file: Path) -> None:
    text = f'dynamo: "1.5.1"\n{GRAPH}'.replace(":1.6.1-efa", ":1.5.1")
    file.write_text(text)
    upgrade = plan_upgrade(text, file, "1.6.1")
    found = {change.text: change.place for change in upgrade.changes}
    assert found["the chart no longer writes --router-queue-threshold"] == "router.queue_threshold"
    assert found["the chart writes --router-policy-config"] == "router.queue_threshold"
    assert 'dynamo: "1.6.1"' in upgrade.after
    assert "vllm-runtime:1.6.1" in upgrade.after


def test_a_renamed_argument_gets_its_new_name(file: Path) -> None:
    text = 'dynamo: "1.5.1"\nmodel: {id: a/b}\nengine: {kind: trtllm}\nworker: {}\n'
    text = text.replace("worker: {}", 'worker: {args: ["--no-publish-events-and-metrics"]}')
    file.write_text(text)
    assert '"--publish-kv-events"' in plan_upgrade(text, file, "1.6.1").after


def test_a_version_that_does_not_exist(file: Path) -> None:
    message = refused(file, GRAPH, "1.7.0")
    assert message.startswith("--to: '1.7.0' is not a known version; penstock knows 1.5.1, 1.6.1")
    assert f"Did you mean {NEXT}?" in message


def test_a_downgrade(file: Path) -> None:
    message = refused(file, GRAPH, "1.5.1")
    assert "dynamo: 1.5.1 is older than 1.6.1, which the graph targets" in message


def test_the_same_version(file: Path) -> None:
    text = f'dynamo: "1.6.1"\n{GRAPH}'
    message = refused(file, text, "1.6.1")
    assert f"{file}:1 dynamo: the graph already targets 1.6.1. Fix: Use --to {NEXT}." in message


def test_an_argument_of_a_newer_version(file: Path) -> None:
    text = GRAPH.replace('"--router-queue-policy", wspt', '"--batch-gateway-url=http://b"')
    message = refused(file, text, NEXT)
    assert f"{file}:9 frontend.args[0]: --batch-gateway-url needs Dynamo {NEXT}" in message
    assert "but the graph targets 1.6.1" in message


def test_a_graph_of_an_unknown_version(file: Path) -> None:
    message = refused(file, f'dynamo: "1.9.0"\n{GRAPH}', NEXT)
    assert f'{file}:1 dynamo: must be one of 1.5.1, 1.6.1, {NEXT}, got "1.9.0"' in message


def test_a_manifest(file: Path) -> None:
    file.write_text("apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\n")
    assert main(["upgrade", str(file), "--to", NEXT]) == GraphError.exit_code


def test_an_image_without_a_version_is_left_and_noted(file: Path) -> None:
    text = GRAPH.replace(":1.6.1-efa", ":latest")
    file.write_text(text)
    upgrade = plan_upgrade(text, file, NEXT)
    assert "vllm-runtime:latest" in upgrade.after
    assert upgrade.notes[0].startswith("no version in the tag of engine.image")
