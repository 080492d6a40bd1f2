"""`penstock init`: the graphs that it writes, its questions, and what it refuses."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml

from penstock.checks.finding import Level
from penstock.checks.run import check_file
from penstock.cli.command_line import CommandParser
from penstock.cli.init import MAX_GPUS, WORKLOADS
from penstock.cli.main import module_of
from penstock.errors import GraphError, InputError, UsageError
from penstock.hardware import GPUS
from penstock.plan import starting_graph as starting
from penstock.plan.starting_graph import (
    GPU_NAMES,
    MODELS,
    Traffic,
    find_model_id,
    graph_gpu,
    starting_graph,
)
from penstock.serving.understand import Hints
from penstock.workload import find_workload
from penstock.workload.load import SAME_LENGTHS, ready_names
from tests.support.command_line import ROOT, penstock

ANSWERS = ("--model", "gpt-oss-120b", "--gpu", "h100", "--gpus", "8", "--workload", "short-chat")
# GPUs for each traffic: fewer than one node, one node with a remainder, several nodes.
COUNTS = (2, 7, 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "gpu"),
    [
        pytest.param(model, gpu, marks=[pytest.mark.nightly] if (i + j) % 3 else [])
        for i, model in enumerate(MODELS)
        for j, gpu in enumerate(GPU_NAMES)
    ],
)
def test_every_combination_passes_check(model: str, gpu: str, tmp_path: Path) -> None:
    file = tmp_path / "graph.yaml"
    for number, traffic in enumerate(Traffic):
        for count in (COUNTS[number % 3], COUNTS[(number + 1) % 3]):
            graph = starting_graph(
                model, GPUS[gpu], count, traffic, concurrency=number * 60 or None
            )
            file.write_text(graph.text("penstock init"))
            unsuppressed = [f for f in check_file(file, Hints()) if not f.suppressed]
            worst = [f for f in unsuppressed if f.level in (Level.ERROR, Level.WARNING)]
            assert worst == [], (traffic, count, graph.candidate)
            assert graph.candidate.gpus <= count


def test_quiet_prints_no_advice(tmp_path: Path) -> None:
    done = penstock("init", "mine.yaml", *ANSWERS, "-q", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mine.yaml: ")
    assert "next steps" not in done.stdout
    assert "before you install" not in done.stdout
    done = penstock("init", "--example", "quickstart", "-q", folder=tmp_path)
    assert done.stdout == "wrote quickstart.yaml\n"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("new/", "new/: names a folder. Fix: Name a YAML file, such as new/graph.yaml."),
        (
            "a.json",
            "a.json: names a JSON file, but a graph is YAML. "
            "Fix: Name a YAML file, such as a.yaml.",
        ),
    ],
)
@pytest.mark.parametrize("arguments", [ANSWERS, ("--example", "quickstart")])
def test_a_name_that_is_not_of_a_yaml_file(
    name: str, expected: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = penstock("init", name, *arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (InputError.exit_code, "")
    assert expected in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_next_steps_can_be_pasted_for_a_folder_with_spaces(tmp_path: Path) -> None:
    (tmp_path / "my graphs").mkdir()
    file = "my graphs/mine.yaml"
    for arguments in ((file, *ANSWERS), ("my graphs/example.yaml", "--example", "quickstart")):
        done = penstock("init", *arguments, folder=tmp_path)
        assert f"\n  penstock check '{arguments[0]}'\n" in done.stdout
        assert f"\n  penstock up '{arguments[0]}'" in done.stdout


def test_the_options_are_those_that_are_planned() -> None:
    assert tuple(Traffic) == WORKLOADS
    assert starting.MAX_GPUS == MAX_GPUS


def test_the_command_for_a_long_latency_has_no_exponent(tmp_path: Path) -> None:
    done = penstock("init", str(tmp_path / "mine.yaml"), *ANSWERS, "--ttft", "20m")
    assert "--ttft 1200000ms" in done.stdout
    assert "ttft_ms: 1200000" in (tmp_path / "mine.yaml").read_text()


def test_the_file_has_the_answers_and_the_next_steps_name_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    slo = ("--ttft", "500ms", "--itl", "0.02s", "--concurrency", "40")
    done = penstock("init", str(file), *ANSWERS, *slo)
    assert (done.returncode, done.stderr) == (0, "")
    graph = yaml.safe_load(file.read_text())
    assert graph["model"]["id"] == "openai/gpt-oss-120b"
    assert graph["hardware"]["gpu"] == "h100"
    assert graph["slo"] == {"ttft_ms": 500, "itl_ms": 20}
    assert (graph["worker"]["replicas"], graph["worker"]["gpus"]) == (3, 2)
    assert graph["worker"]["config"]["max_batch_size"] == 32  # 40 requests on 3 workers
    assert "40 requests at the same time, shared by the workers" in file.read_text()
    assert "updates: an update starts one more worker of each pool (2 GPUs) before" in done.stdout
    assert "suppressed" not in done.stdout
    assert "set model.cache.pvc to a PersistentVolumeClaim of your namespace" in done.stdout
    assert "set model.token_secret to a Secret with HF_TOKEN (now: hf-token-secret)" in done.stdout
    assert " --concurrency 40\n" in done.stdout  # the next step has the same traffic
    assert "penstock init mine.yaml --model openai/gpt-oss-120b" in file.read_text()
    for step in ("check", "up", "plan --model gpt-oss-120b --gpu h100 --gpus 8"):
        assert f"  penstock {step} " in done.stdout
    assert done.stdout.count(str(file)) == 3


def test_few_requests_get_few_workers_and_the_output_says_how_they_were_chosen(
    tmp_path: Path,
) -> None:
    h100 = GPUS["h100"]
    for concurrency, replicas in ((1, 1), (9, 2), (40, 3), (5000, 3)):
        graph = starting_graph(MODELS[0], h100, 8, Traffic.CHAT, concurrency=concurrency)
        assert graph.candidate.worker.replicas == replicas
    pools = starting_graph(MODELS[0], h100, 64, Traffic.DOCUMENTS, concurrency=4).candidate
    assert (pools.prefill[0].replicas, pools.worker.replicas) == (1, 1)
    done = penstock("init", str(tmp_path / "a.yaml"), *ANSWERS)
    assert "chosen by rule, for up to 8 GPUs: the number of concurrent requests is" in done.stdout
    assert "`penstock plan` chooses by replaying the workload" in done.stdout
    done = penstock("init", str(tmp_path / "b.yaml"), *ANSWERS, "--concurrency", "3")
    assert "1 × TP2/EP2 aggregated, batch 8" in done.stdout
    assert "chosen by rule, for 3 concurrent requests; " in done.stdout


def test_long_prompts_get_separate_pools_if_the_gpus_suffice(tmp_path: Path) -> None:
    for count, is_disaggregated in ((2, False), (4, True), (8, True), (64, True)):
        graph = starting_graph(MODELS[0], GPUS["h100"], count, Traffic.DOCUMENTS)
        assert graph.candidate.is_disaggregated is is_disaggregated
        assert graph.candidate.gpus == min(count, 58)  # of 64, six are free for updates


def test_gpus_stay_free_for_updates_if_each_pool_keeps_two_workers() -> None:
    h100 = GPUS["h100"]
    for count, used in ((4, 4), (8, 6), (16, 14), (64, 62)):
        graph = starting_graph(MODELS[0], h100, count, Traffic.CHAT)
        assert graph.candidate.gpus == used
        assert "an update starts one more worker of each pool (2 GPUs)" in graph.update()
    graph_8 = starting_graph(MODELS[1], h100, 8, Traffic.CHAT)
    assert (
        "(1 GPU) before it stops the old ones; 1 GPU of hardware.nodes is free" in graph_8.update()
    )


def test_an_update_that_is_not_possible_is_reported_with_its_suppression(tmp_path: Path) -> None:
    words = (*ANSWERS[:-2], "--workload", "document")
    done = penstock("init", str(tmp_path / "a.yaml"), *words)
    assert "no rolling update is possible: an update starts one more worker of each" in done.stdout
    assert "(6 GPUs), but no GPU of hardware.nodes is free. Before an update add" in done.stdout
    message = "an update needs 6 free GPUs (one more replica of each pool); 0 of 8 are free"
    assert f"suppressed: PS803: {message}. Reason: add a node before an update" in done.stdout


def test_the_help_has_the_lengths_of_the_workloads() -> None:
    text = " ".join(penstock("init", "--help").stdout.split())
    for name in ("short-chat", "document", "agentic"):
        workload = find_workload(name).workload
        own_line = text.partition(f"{name}: ")[2].partition(";")[0]
        lengths = [workload.input, workload.output, workload.system_prompts]
        numbers = [
            str(round(getattr(length, "mean", 0) or length.tokens)) for length in lengths if length
        ]
        assert all(number in own_line for number in numbers), (name, own_line)


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("mine")
    done = penstock("init", str(file), *ANSWERS)
    assert done.returncode == InputError.exit_code
    assert f"{file}: already exists" in done.stderr
    assert file.read_text() == "mine"
    (tmp_path / "link.yaml").symlink_to(tmp_path / "gone.yaml")
    assert penstock("init", str(tmp_path / "link.yaml"), *ANSWERS).returncode == 3
    assert not (tmp_path / "gone.yaml").exists()


@pytest.mark.parametrize(
    ("changed", "code", "message"),
    [
        (("--model", "gpt-oss-12b"), UsageError, "Did you mean gpt-oss-120b? Known: openai/gpt-"),
        (("--gpu", "a100"), UsageError, "a100 is not supported. Fix: Use one of h100, "),
        (("--gpu", "rtx-pro-6000"), UsageError, "is not supported"),
        (("--gpus", "0"), UsageError, "'0' is not an integer from 1 to 1024"),
        (("--gpus", "1"), UsageError, "too small for openai/gpt-oss-120b. Fix: Use at least 2"),
        (("--workload", "short-chats"), UsageError, "Did you mean `short-chat`?"),
        (("--workload", "docs"), UsageError, "Did you mean `document`?"),
        (("--workload", "chatt"), UsageError, "Did you mean `short-chat`?"),
        (("--ttft", "500"), UsageError, "write it as 500ms"),
    ],
)
def test_an_unknown_answer_is_an_error_that_says_what_is_known(
    changed: tuple[str, str], code: type[UsageError], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    done = penstock("init", str(file), *ANSWERS, *changed)
    assert done.returncode == code.exit_code
    assert message in done.stderr
    assert not file.exists()


def test_a_name_that_helm_rejects_and_a_missing_folder_are_errors(tmp_path: Path) -> None:
    done = penstock("init", str(tmp_path / "My_Graph.yaml"), *ANSWERS)
    assert done.returncode == GraphError.exit_code
    assert "my-graph.yaml" in done.stderr
    done = penstock("init", str(tmp_path / "no" / "mine.yaml"), *ANSWERS)
    assert done.returncode == InputError.exit_code


def test_models_and_gpus_are_found_by_the_names_that_people_use() -> None:
    assert find_model_id("GPT-OSS-20B") == "openai/gpt-oss-20b"
    assert graph_gpu("H100-SXM-80GB") == GPUS["h100"]
    assert graph_gpu("NVIDIA-B200") == GPUS["b200"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_questions_are_asked_for_what_is_missing_until_the_answer_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("a100\nb200\nmany\n\ndocuments\n"))
    file = tmp_path / "mine.yaml"
    done = penstock("init", str(file), "--model", "gpt-oss-20b")
    assert done.returncode == 0, done.stderr
    assert "a100 is not supported" in done.stderr
    assert "'many' is not an integer" in done.stderr
    graph = yaml.safe_load(file.read_text())
    assert graph["hardware"]["gpu"] == "b200"
    assert (graph["prefill"]["replicas"], graph["decode"]["gpus"]) == (4, 4)  # 8: a node's GPUs


@pytest.mark.parametrize("stdin", [io.StringIO(), Terminal("")])
def test_without_answers_it_ends(
    stdin: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    done = penstock("init", str(tmp_path / "mine.yaml"), *ANSWERS[:4])
    assert done.returncode == UsageError.exit_code
    assert list(tmp_path.iterdir()) == []


def test_an_example_is_a_copy_of_the_graph(tmp_path: Path) -> None:
    done = penstock("init", "--example", "quickstart", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    source = ROOT / "dynamo_graphs" / "quickstart.yaml"
    assert (tmp_path / "quickstart.yaml").read_text() == source.read_text()
    again = penstock("init", "--example", "quickstart", folder=tmp_path)
    assert again.returncode == InputError.exit_code
    assert "quickstart.yaml: already exists" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--example", "quikstart"),
            "no graph is called 'quikstart'. Fix: Did you mean `quickstart`?",
        ),
        (("--example", "quickstart", "--gpus", "8"), "--example and --gpus exclude each other"),
    ],
)
def test_a_wrong_example(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = penstock("init", *arguments, folder=tmp_path)
    assert done.returncode == UsageError.exit_code
    assert message in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_missing_file_with_the_name_of_an_example(tmp_path: Path) -> None:
    done = penstock("check", "dynamo_graphs/quickstart.yaml", folder=tmp_path)
    assert "`penstock init --example quickstart` writes a copy of this graph." in done.stdout


@pytest.mark.parametrize(
    ("words", "notes"),
    [
        (("--traffic", "short-chat"), ["--traffic is now --workload"]),
        (("--workload", "chat"), ["chat is now short-chat"]),
        (("--traffic", "chat"), ["chat is now short-chat", "--traffic is now --workload"]),
        (("--workload", "short-chat"), []),
    ],
)
def test_the_old_names_of_workloads_are_accepted_with_a_note(
    words: tuple[str, ...], notes: list[str], tmp_path: Path
) -> None:
    done = penstock("init", "g.yaml", *ANSWERS[:-2], *words, folder=tmp_path)
    assert "--workload short-chat" in (tmp_path / "g.yaml").read_text()
    warnings = [line for line in done.stderr.splitlines() if "warning" in line]
    end = "; the old name is accepted for one release"
    assert warnings == [f"penstock init: warning: {note}{end}" for note in notes]


@pytest.mark.parametrize("command", ["simulate", "plan", "bench", "plan --router"])
def test_other_commands_accept_the_old_names_too(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = CommandParser(prog=f"penstock {command}")
    module_of(command).add_arguments(parser)
    (workload,) = [action for action in parser.actions() if action.dest == "workload"]
    assert callable(workload.type)
    assert [workload.type(name) for name in ("documents", "g.yaml")] == ["document", "g.yaml"]
    note = "documents is now document; the old name is accepted for one release"
    assert capsys.readouterr().err == f"penstock {command}: warning: {note}\n"


@pytest.mark.parametrize(
    ("name", "meant"),
    [("chat", "short-chat"), ("documents", "document"), ("latency", "short-chat"),
     ("batch", "document"), ("chatt", "short-chat"), ("long_context", "long-context")],
)  # fmt: skip
def test_other_commands_suggest_the_workload_with_the_lengths_of_a_name_of_init(
    name: str, meant: str
) -> None:
    with pytest.raises(InputError, match=f"Did you mean `{meant}`"):
        find_workload(name)


def test_each_workload_of_init_is_ready_made_or_names_one() -> None:
    assert {SAME_LENGTHS.get(name, name) for name in WORKLOADS} <= set(ready_names())
