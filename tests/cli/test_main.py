"""The command line: help, exit codes, and the table of exit codes in docs/commands.md."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from penstock import errors
from penstock.cli import main as cli
from penstock.cli.diff import EXIT_CHANGED
from penstock.errors import PenstockError
from tests.support.command_line import penstock

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "dynamo_graphs" / "quickstart-simulated.yaml"
COMMANDS_PAGE = (ROOT / "docs" / "commands.md").read_text()


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A copy of the quickstart."""
    path = tmp_path / "graph.yaml"
    path.write_text(QUICKSTART.read_text())
    return path


def error_classes() -> list[type[PenstockError]]:
    classes = [e for e in vars(errors).values() if isinstance(e, type)]
    return [e for e in classes if issubclass(e, PenstockError) and e is not PenstockError]


def test_help_lists_every_verb_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from penstock.cli.main import help_text; print(help_text());"
        "sys.exit(any(m in sys.modules for m in ('pydantic', 'yaml', 'helm_python', 'httpx')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    for verb, text in cli.COMMANDS.items():
        assert f"  {verb:<9}  {text}\n" in done.stdout


# `upgrade` writes the file, and `plan` makes one.
NO_GRAPH = [
    "upgrade",
    "plan",
    "ls",
    "init",
    "tools",
    "capture",
    "gateway",
    "rollback",
    "history",
    "uninstall",
]


@pytest.mark.parametrize("verb", cli.COMMANDS)
def test_every_verb_has_help(verb: str) -> None:
    done = penstock(verb, "--help")
    assert done.returncode == 0
    assert cli.COMMANDS[verb].split(",")[0] in " ".join(done.stdout.split())


@pytest.mark.parametrize("verb", [v for v in cli.COMMANDS if v not in NO_GRAPH])
def test_set_is_on_every_verb_that_takes_a_graph(verb: str) -> None:
    assert "--set PATH=VALUE" in penstock(verb, "--help").stdout


def test_exit_codes_are_unique_and_match_the_documentation() -> None:
    codes = {e.exit_code for e in error_classes()}
    assert len(codes) == len(error_classes())
    documented = {int(c) for c in re.findall(r"^\| (\d+) \|", COMMANDS_PAGE, re.MULTILINE)}
    assert documented == codes | {0, EXIT_CHANGED, cli.USAGE, cli.UNEXPECTED, cli.INTERRUPTED}


def test_an_unexpected_error_is_one_line_and_a_file_with_details(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("penstock.cli.tools_schema.run", broken)
    assert cli.main(["tools", "schema"]) == cli.UNEXPECTED
    message = capsys.readouterr().err
    assert "RuntimeError: a bug" in message
    log = Path(message.rsplit("Details: ", 1)[1].strip())
    assert "Traceback" in log.read_text()
    log.unlink()


def test_render_prints_the_manifests_or_writes_them(tmp_path: Path) -> None:
    done = penstock("render", str(QUICKSTART))
    assert done.returncode == 0
    kinds = [d["kind"] for d in yaml.safe_load_all(done.stdout)]
    assert kinds == [*["ConfigMap"] * 2, "DynamoGraphDeployment", "PodDisruptionBudget"]
    target = tmp_path / "out.yaml"
    assert penstock("render", str(QUICKSTART), "-o", str(target)).stdout == ""
    assert target.read_text() == done.stdout


@pytest.mark.parametrize(
    "command",
    [
        ("render", str(QUICKSTART)),
        ("tools", "schema"),
        ("gateway", "render", "k8s/gateway/gateway.yaml"),
    ],
)
def test_only_a_generated_file_is_overwritten_without_force(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    target = tmp_path / "out.yaml"
    target.write_text("mine: 1\n")
    done = penstock(*command, "-o", str(target))
    assert done.returncode == errors.InputError.exit_code
    assert f"{target}: already exists, and penstock did not generate it. Fix: " in done.stderr
    assert target.read_text() == "mine: 1\n"
    assert penstock(*command, "-o", str(target), "--force").returncode == 0
    generated = target.read_text()
    assert "mine: 1" not in generated
    target.write_text(f"{generated}\n# an edit\n")  # of the same kind
    assert penstock(*command, "-o", str(target)).returncode == 0
    assert target.read_text() == generated
    target.write_text("")
    assert penstock(*command, "-o", str(target)).returncode == 0
    target.unlink()
    target.symlink_to(tmp_path / "gone.yaml")
    assert penstock(*command, "-o", str(target)).returncode == errors.InputError.exit_code
    assert target.is_symlink()


def test_render_does_not_replace_its_own_graph(graph: Path) -> None:
    assert penstock("render", str(graph), "-o", str(graph)).returncode == 3
    assert graph.read_text() == QUICKSTART.read_text()


def test_render_applies_set(tmp_path: Path) -> None:
    done = penstock("render", str(QUICKSTART), "--set", "decode.replicas=7")
    documents = yaml.safe_load_all(done.stdout)
    (graph,) = (d for d in documents if d["kind"] == "DynamoGraphDeployment")
    counts = {c["name"]: c["replicas"] for c in graph["spec"]["components"]}
    assert counts == {"frontend": 1, "prefill": 2, "decode": 7}


def test_an_invalid_set_is_reported_at_its_place() -> None:
    done = penstock("render", str(QUICKSTART), "--set", "decode.replicas=-7")
    assert done.returncode == errors.GraphError.exit_code
    assert "--set decode.replicas" in done.stderr


def test_a_chart_error_points_into_the_graph(tmp_path: Path) -> None:
    graph = tmp_path / "graph.yaml"
    text = QUICKSTART.read_text().replace("kind: mocker", "kind: vllm")
    config = text[text.index("  config:") : text.index("prefill:")]
    graph.write_text(text.replace(config, "\n") + "\nkv_transfer:\n  backend: mpi\n")
    done = penstock("render", str(graph))
    assert done.returncode == errors.ChartError.exit_code
    line = graph.read_text().splitlines().index("  backend: mpi") + 1
    assert f"graph.yaml:{line} kv_transfer.backend" in done.stderr


def test_explain_prints_one_component() -> None:
    done = penstock("explain", str(QUICKSTART), "decode")
    assert done.returncode == 0
    for text in ("dynamo.mocker", "--disaggregation-mode", "File /etc/penstock/engine.json:"):
        assert text in done.stdout
    assert "Name:          prefill" not in done.stdout


def test_explain_prints_json() -> None:
    done = penstock("explain", str(QUICKSTART), "--json")
    components = json.loads(done.stdout)
    assert [c["name"] for c in components] == ["frontend", "prefill", "decode"]
    assert components[1]["launches"][0]["argv"][:3] == ["python3", "-m", "dynamo.mocker"]


def test_explain_suggests_a_component_with_a_similar_name() -> None:
    done = penstock("explain", str(QUICKSTART), "decod")
    assert done.returncode == errors.ManifestError.exit_code
    assert "Did you mean `decode`?" in done.stderr


@pytest.mark.slow
def test_the_schema_accepts_every_graph() -> None:
    schema = json.loads(penstock("tools", "schema").stdout)
    for path in sorted((ROOT / "dynamo_graphs").glob("*.yaml")):
        jsonschema.validate(yaml.safe_load(path.read_text()), schema)


def test_scale_edits_only_the_replicas(graph: Path) -> None:
    done = penstock("scale", str(graph), "decode=5")
    assert done.returncode == 0
    before, after = QUICKSTART.read_text().splitlines(), graph.read_text().splitlines()
    assert [(a, b) for a, b in zip(before, after, strict=True) if a != b] == [
        ("  replicas: 1", "  replicas: 5")
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("decode", "'decode' is not POOL=N. Fix: Give the number of replicas, such as `decode=2`."),
        (
            "decode=",
            "decode.replicas: must be an integer from 0 to 10,000, got nothing. Fix: Give ",
        ),
        ("decode=-1", "decode.replicas: must be an integer from 0 to 10,000, got -1. Fix: Give "),
        ("decode=1.5", "decode.replicas: must be an integer from 0 to 10,000, got 1.5. Fix: Give "),
        ("decode=two", "decode.replicas: must be an integer from 0 to 10,000, got two. Fix: Give "),
        ("decode=2 decode=3", "decode: given twice: 2 and 3. Fix: Give one number."),
        ("=3", "scale: '=3' is not POOL=N. Fix: Give the number of replicas, such as `decode=2`."),
        (
            "workers=2",
            "no component `workers`; this graph has frontend, prefill, decode. Fix: Use ",
        ),
    ],
)
def test_scale_rejects_malformed_changes(graph: Path, text: str, error: str) -> None:
    done = penstock("scale", str(graph), *text.split())
    assert done.returncode == errors.GraphError.exit_code
    assert error in done.stderr
    assert graph.read_text() == QUICKSTART.read_text()


@pytest.mark.parametrize("verb", ["status", "down", "logs"])
def test_a_graph_that_is_not_up_is_an_error(tmp_path: Path, verb: str) -> None:
    done = penstock(verb, str(tmp_path / "graph.yaml"))
    assert done.returncode == errors.NotUpError.exit_code


def test_an_unknown_environment_suggests_a_similar_name() -> None:
    done = penstock("tools", "env", "install", "envy")
    assert done.returncode == errors.MissingToolError.exit_code
    assert "Did you mean `envoy`?" in done.stderr


def test_scale_of_a_manifest_is_an_error(tmp_path: Path) -> None:
    manifest = tmp_path / "graph.yaml"
    manifest.write_text(penstock("render", str(QUICKSTART)).stdout)
    done = penstock("scale", str(manifest), "decode=2")
    assert done.returncode == errors.GraphError.exit_code
    assert "is a DGD manifest" in done.stderr


def test_a_misplaced_kind_is_a_graph_error(tmp_path: Path) -> None:
    graph = tmp_path / "graph.yaml"
    graph.write_text("kind: mocker\n" + QUICKSTART.read_text())
    done = penstock("explain", str(graph))
    assert done.returncode == errors.GraphError.exit_code
    assert "graph.yaml:1 kind" in done.stderr


def test_render_prints_the_images_to_copy() -> None:
    graph = str(ROOT / "dynamo_graphs" / "gpt-oss-20b-h100.yaml")
    done = penstock("render", graph, "--set", "platform=plain", "--images")
    assert done.stdout.splitlines() == [
        "nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:1.6.1",
        "quay.io/coreos/etcd:v3.5.21",
    ]


def test_env_alone_lists_the_environments() -> None:
    alone, listed = penstock("tools", "env"), penstock("tools", "env", "list")
    assert (alone.returncode, alone.stdout) == (0, listed.stdout)
    assert "llamacpp" in alone.stdout


def test_several_environments_are_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path))
    done = penstock("tools", "env", "remove", "sim", "page")
    assert done.stdout.splitlines() == ["sim was not installed", "page was not installed"]
    done = penstock("tools", "env", "remove", "sim", "pge")
    assert (done.returncode, done.stdout) == (8, "")  # nothing is removed if a name is wrong


@pytest.mark.parametrize("verb", ["down", "logs", "trace"])
def test_a_misspelled_file_is_suggested(verb: str) -> None:
    done = penstock(verb, str(ROOT / "dynamo_graphs" / "quickstar.yaml"))
    assert done.returncode == 11
    assert f"Did you mean {ROOT / 'dynamo_graphs' / 'quickstart.yaml'}?" in done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tune g.yaml --workload document", "plan --router"),
        ("page g.yaml", "top --web"),
        ("schema", "tools schema"),
        ("completion bash", "tools completion"),
        ("env list", "tools env"),
        ("tiny-model -", "tools tiny-model"),
        ("bench URL --method openrouter", "bench public --method"),
    ],
)
def test_the_old_name_of_a_command_is_accepted_with_a_warning(old: str, new: str) -> None:
    """With `--help` nothing else is printed to stderr, and the help is that of the new command."""
    done = penstock(*old.split(), "--help")
    warning = f" is now {new}; the old name is accepted for one release\n"
    assert done.stderr.endswith(warning)
    assert done.stderr.count("\n") == 1
    current = penstock(*new.removesuffix(" --method").split(), "--help").stdout
    assert (done.returncode, done.stdout) == (0, current)


def test_the_graph_of_the_router_stands_anywhere(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.yaml")
    for words in (["--router", missing, "--workload", "document"],
                  ["--workload", "document", "-q", f"--router={missing}"]):  # fmt: skip
        done = penstock("plan", *words)
        assert done.returncode == errors.InputError.exit_code
        assert "none.yaml" in done.stderr


def test_an_option_of_the_terminal_or_of_the_page_excludes_the_other() -> None:
    for words, message in {
        ("--web", "--once"): "--once cannot be combined with --web",
        ("--port", "0"): "--port needs --web",
        ("--web", "--url", "http://x/v1"): "--url needs --cluster",
    }.items():
        done = penstock("top", str(QUICKSTART), *words)
        assert (done.returncode, message in done.stderr) == (2, True)


def test_tools_alone_lists_the_tools() -> None:
    done = penstock("tools")
    assert done.returncode == 0
    for name, purpose in cli.SUBCOMMANDS.items():
        assert purpose in done.stdout or not name.startswith("tools ")
