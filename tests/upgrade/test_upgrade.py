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
    places = {change.text: change.place for change in upgrade.changes}
    assert places["the chart no longer writes --router-queue-threshold"] == "router.queue_threshold"
    assert places["the chart writes --router-policy-config"] == "router.queue_threshold"
    assert 'dynamo: "1.6.1"' in upgrade.after
    assert "vllm-runtime:1.6.1" in upgrade.after


def with_args(args: str, *, rest: str = "") -> str:
    """A graph of 1.5.1 with these arguments of its decode pool."""
    head = 'dynamo: "1.5.1"\nmodel: {id: a/b}\nengine: {kind: trtllm}\nprefill: {}\n'
    return f"{head}decode:{args}\n{rest}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            ' {args: ["--no-publish-events-and-metrics"]}',
            ' {args: ["--no-publish-kv-events"]}',
        ),
        (
            ' {args: ["--publish-events-and-metrics", --stream-interval, "4"]}',
            ' {args: ["--publish-kv-events", "--publish-metrics", --stream-interval, "4"]}',
        ),
        (
            "\n  args:\n  - --publish-events-and-metrics  # ours\n  - --publish-events-and-metrics",
            '\n  args:\n  - "--publish-kv-events"\n  - "--publish-metrics"  # ours\n'
            '  - "--publish-kv-events"\n  - "--publish-metrics"',
        ),
    ],
)
def test_a_renamed_switch_stays_on_or_off(file: Path, before: str, after: str) -> None:
    upgrade = plan_upgrade(with_args(before), file, "1.6.1")
    assert upgrade.after == with_args(after).replace("1.5.1", "1.6.1")
    texts = [change.text for change in upgrade.changes if change.place == "decode.args[0]"]
    assert len(texts) == 1
    assert texts[0].endswith(" in 1.6.1; the file is changed")


def test_equal_changes_at_two_places_are_both_listed(file: Path) -> None:
    flag = '{args: ["--no-publish-events-and-metrics"]}'
    text = with_args(f" {flag}").replace("prefill: {}", f"prefill: {flag}")
    places = [change.place for change in plan_upgrade(text, file, "1.6.1").changes]
    assert places[:2] == ["prefill.args[0]", "decode.args[0]"]


def test_equal_changes_of_two_pools_by_the_chart_are_both_listed(file: Path) -> None:
    text = "model: {id: a/b}\nengine: {kind: trtllm}\nprefill: {request_limit: 4}\n"
    upgrade = plan_upgrade(f"{text}decode: {{request_limit: 8}}\n", file, NEXT)
    places = [c.place for c in upgrade.changes if "DYN_ENGINE_REQUEST_LIMIT" in c.text]
    assert sorted(places) == ["decode.request_limit", "prefill.request_limit"]
    (text,) = {c.text for c in upgrade.changes if "DYN_ENGINE_REQUEST_LIMIT" in c.text}
    assert text.endswith(
        "the variable DYN_ENGINE_REQUEST_LIMIT is renamed to "
        "DYN_BACKEND_ADMISSION_ENGINE_REQUEST_LIMIT; the old name is still read"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("dynamo:\n{}", 'dynamo: "{new}"\n{}'),
        ("dynamo: # none\n{}", 'dynamo: "{new}" # none\n{}'),
        ("dynamo:   # none\n{}", None),
        ("dynamo: null\n{}", 'dynamo: "{new}"\n{}'),
        ("{}dynamo:", '{}dynamo: "{new}"'),
        ("{}dynamo:\n", '{}dynamo: "{new}"\n'),
        ("{}dynamo: # none\n", '{}dynamo: "{new}" # none\n'),
        ("{}dynamo: \r\n", None),
    ],
)
def test_an_empty_version_is_set(file: Path, before: str, after: str | None) -> None:
    rest = "model: {id: a/b}\nengine: {kind: trtllm}\nworker: {}\n"
    upgrade = plan_upgrade(before.replace("{}", rest), file, NEXT)
    assert parse_graph(upgrade.after, str(file)).graph.dynamo == NEXT
    if after is not None:
        assert upgrade.after == after.replace("{}", rest).replace("{new}", NEXT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "tag", ["2.3.4", "12.8.1-dynamo1.6.1", "1.6.1-rc2", "1.6.1.post1", "latest", "1.6"]
)
def test_a_tag_that_is_not_the_graphs_version_is_left_and_noted(file: Path, tag: str) -> None:
    text = GRAPH.replace("vllm-runtime:1.6.1-efa", f"my-runtime:{tag}")
    upgrade = plan_upgrade(text, file, NEXT)
    assert f"image: reg:5000/x/my-runtime:{tag}  # ours" in upgrade.after
    assert upgrade.notes[0] == (
        f"no tag of Dynamo 1.6.1 in engine.image (reg:5000/x/my-runtime:{tag}): change it yourself"
    )


def test_a_tag_keeps_its_v_and_its_suffix(file: Path) -> None:
    text = GRAPH.replace(":1.6.1-efa", ":v1.6.1-efa")
    assert f'vllm-runtime:v{NEXT}-efa"' in plan_upgrade(text, file, NEXT).after


def test_an_image_of_another_version_than_the_graphs(file: Path) -> None:
    message = refused(file, GRAPH.replace(":1.6.1-efa", ":1.5.1"), NEXT)
    assert f"{file}:5 engine.image: reg:5000/x/vllm-runtime:1.5.1 has Dynamo 1.5.1" in message
    assert 'Set `dynamo: "1.5.1"`, or change the image.' in message


def test_a_version_that_does_not_exist(file: Path) -> None:
    message = refused(file, GRAPH, "1.7")
    assert message.startswith("--to: '1.7' is not a known version; penstock knows 1.5.1, 1.6.1")
    assert "Did you mean 1.7.0?" in message


def test_a_release_without_a_wheel_uses_the_facts_of_the_nearest_one(file: Path) -> None:
    upgrade = plan_upgrade(GRAPH, file, "1.7.0")
    assert (
        upgrade.notes[0] == f"the wheel of 1.7.0 is not on PyPI: penstock uses the facts of {NEXT}"
    )
    (change,) = upgrade.changes
    assert f"announced for v1.7, still accepted by {NEXT}" in change.text
    graph = parse_graph(upgrade.after, str(file)).graph
    assert (graph.dynamo, graph.engine.image) == ("1.7.0", "reg:5000/x/vllm-runtime:1.7.0-efa")
    assert "of 1.6.1" not in " ".join(upgrade.notes)


def test_a_patch_release_is_supported_next_to_the_one_before(file: Path) -> None:
    upgrade = plan_upgrade(GRAPH, file, "1.6.2")
    assert upgrade.notes == ("the wheel of 1.6.2 is not on PyPI: penstock uses the facts of 1.6.1",)
    assert upgrade.skew == ("1.6.1 and 1.6.2: supported (one minor release)",)
    again = plan_upgrade(upgrade.after, file, NEXT)
    assert "the wheel of 1.6.2 is not on PyPI: penstock uses the facts of 1.6.1" in again.notes


@pytest.mark.parametrize("to", ["1.7.0", NEXT])
def test_a_minor_release_cannot_be_skipped(file: Path, to: str) -> None:
    text = f'dynamo: "1.5.1"\n{GRAPH}'.replace(":1.6.1-efa", ":1.5.1")
    message = refused(file, text, to)
    assert message == (
        f"--to: {to} is more than one minor release after 1.5.1: NVIDIA supports an upgrade only "
        f"to the next one. Fix: Run `penstock upgrade {file} --to 1.6.2`, apply the file, and then "
        f"run `penstock upgrade {file} --to {to}`."
    )
    step = plan_upgrade(text, file, "1.6.2")
    assert plan_upgrade(step.after, file, to).old == "1.6.2"


@pytest.mark.parametrize(
    ("engine", "versions"),
    [
        ("trtllm", "TensorRT-LLM 1.3.0rc29 → 1.4.0rc2, NIXL 1.3.1 → 1.5.2"),
        ("vllm", "vLLM 0.31.0 → 0.33.0, NIXL 1.4.1 → 1.5.0"),
        ("sglang", "SGLang 0.5.21 → 0.5.23, NIXL 1.5.0 → 1.5.2"),
    ],
)
def test_the_versions_in_the_images_of_1_7(file: Path, engine: str, versions: str) -> None:
    text = f"model: {{id: a/b}}\nengine: {{kind: {engine}}}\nworker: {{}}\n"
    _, images, *keys = plan_upgrade(text, file, "1.7.0").notes
    assert images == f"NVIDIA's images of 1.7.0: {versions}, UCX 1.21 → 1.22"
    unverified = "the keys of TensorRT-LLM 1.4.0rc2 were not verified, only those up to 1.3.0rc29"
    assert [key.partition(":")[0] for key in keys] == [unverified] * (engine == "trtllm")


def test_the_engine_keys_of_1_6_are_known(file: Path) -> None:
    text = "model: {id: a/b}\nengine: {kind: trtllm}\nworker: {}\n"
    notes = plan_upgrade(f'dynamo: "1.5.1"\n{text}', file, "1.6.1").notes
    assert notes == ("NVIDIA's images of 1.6.2: TensorRT-LLM 1.3.0rc25 → 1.3.0rc29",)


def test_a_downgrade(file: Path) -> None:
    message = refused(file, GRAPH, "1.5.1")
    assert "dynamo: 1.5.1 is older than 1.6.1, which the graph targets" in message


def test_the_same_version(file: Path) -> None:
    text = f'dynamo: "1.6.1"\n{GRAPH}'
    message = refused(file, text, "1.6.1")
    assert f"{file}:1 dynamo: the graph already targets 1.6.1. Fix: Use --to 1.7.0." in message


def test_an_argument_of_a_newer_version(file: Path) -> None:
    text = GRAPH.replace('"--router-queue-policy", wspt', '"--batch-gateway-url=http://b"')
    message = refused(file, text, NEXT)
    assert f"{file}:9 frontend.args[0]: --batch-gateway-url needs Dynamo {NEXT}" in message
    assert "but the graph targets 1.6.1" in message


def test_a_graph_of_an_unknown_version(file: Path) -> None:
    message = refused(file, f'dynamo: "1.9.0"\n{GRAPH}', NEXT)
    assert (
        f'{file}:1 dynamo: must be one of 1.5.1, 1.6.1, 1.6.2, {NEXT}, 1.7.0, got "1.9.0"'
        in message
    )


def test_a_manifest(file: Path) -> None:
    file.write_text("apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\n")
    assert main(["upgrade", str(file), "--to", NEXT]) == GraphError.exit_code
