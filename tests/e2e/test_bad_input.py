"""Invalid input: the error fits one screen, has a place and a fix, and leaves nothing running."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.cli.main import main
from tests.support.command_line import penstock
from tests.support.local_graphs import QUICKSTART, assert_nothing_left, without_envoy

INPUT, GRAPH, LAUNCH, TOOL, START, CHECK = 3, 4, 7, 8, 12, 14
SCREEN = 40  # lines


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert_nothing_left(tmp_path)


def rejected(folder: Path, graph: Path) -> tuple[int, str]:
    """As `up`, in this process, for a graph of which nothing starts."""
    with pytest.MonkeyPatch.context() as patch, unchanged(graph):
        for name, value in environment(folder).items():
            patch.setenv(name, value)
        return checked(penstock("up", str(graph), "--port", "0"))


def up(folder: Path, graph: Path, *arguments: str, **env: str) -> tuple[int, str]:
    """Run a `penstock up` that must fail; return its exit code and its error output."""
    command = [sys.executable, "-m", "penstock.cli.main", "up", str(graph), "--port", "0"]
    with unchanged(graph):
        done = subprocess.run(
            [*command, *arguments],
            env={**os.environ, **environment(folder), **env},
            capture_output=True,
            text=True,
            timeout=90,
        )
        return checked(done)


def environment(folder: Path) -> dict[str, str]:
    return {"PENSTOCK_STATE_HOME": str(folder / "state"), **without_envoy(folder)}


@contextmanager
def unchanged(graph: Path) -> Iterator[None]:
    before = graph.read_bytes() if graph.is_file() and os.access(graph, os.R_OK) else b""
    yield
    if before:
        assert graph.read_bytes() == before


def checked(done: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    assert done.stdout == ""
    assert "Traceback" not in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) <= SCREEN
    return done.returncode, done.stderr


def write(folder: Path, text: str) -> Path:
    path = folder / "graph.yaml"
    path.write_text(text)
    return path


def edited(folder: Path, old: str, new: str) -> Path:
    text = QUICKSTART.read_text()
    assert old in text
    return write(folder, text.replace(old, new, 1))


# Edit of the quickstart, arguments, exit code, and what `up` prints.
SERVERS = "infrastructure:\n  discovery: etcd\n  etcd_endpoints: [http://127.0.0.1:9]\n"
TRACE = "  config:\n    dynamo: {response_replay_trace_path: /no/trace}\n"
UP = [
    ("replicas: 2", "replicsa: 2", (), GRAPH, ("graph.yaml:", "prefill.replicsa", "`replicas`?")),
    ("  config:\n", TRACE, (), START, ("exit code", "/no/trace", "Log:")),
    ("speedup_ratio: 2.0", "speedup_ratio: fast", (), LAUNCH,
     ("engine.config.engine.speedup_ratio", "graph.yaml:")),
    ("model:", "model:", ("--prot", "1"), 2, ("--prot",)),
    ("model:", "model:", ("--det",), 2, ("--det",)),  # flags have no abbreviations
    ("model:", "model:", ("--host", "192.0.2.1"), 9, ("--host", "address of this machine")),
    ("model:", f"{SERVERS}model:", (), START,
     ("infrastructure.etcd_endpoints: http://127.0.0.1:9 does not respond",)),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "arguments", "code", "words"), UP)
def test_what_up_cannot_start_is_an_error_and_leaves_nothing(
    folder: Path, old: str, new: str, arguments: tuple[str, ...], code: int, words: tuple[str, ...]
) -> None:
    exit_code, output = up(folder, edited(folder, old, new), *arguments)
    assert exit_code == code, output
    assert [text for text in words if text not in output] == []


def unreadable(folder: Path) -> Path:
    path = write(folder, QUICKSTART.read_text())
    path.chmod(0)
    # root reads everything: a path through a file is unreadable for root too
    return path / "inside.yaml" if os.access(path, os.R_OK) else path


def binary(folder: Path) -> Path:
    path = folder / "graph.yaml"
    path.write_bytes(b"model: \xff\xfe")
    return path


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda folder: folder, INPUT, ["is a directory"]),
        (lambda folder: folder / "none.yaml", INPUT, ["no such file"]),
        (unreadable, INPUT, ["cannot be read"]),
        (binary, INPUT, ["UTF-8"]),
        (
            lambda folder: edited(
                folder, "  context_length", "  path: /no/model\n  context_length"
            ),
            INPUT,
            ["model.path", "/no/model", "Fix:"],
        ),
        (
            lambda folder: edited(folder, "  replicas: 1\n", "  replicas: 0\n"),
            GRAPH,
            ["graph.yaml:", "decode.replicas"],
        ),
    ],
)
def test_a_graph_that_up_rejects_before_anything_starts(
    folder: Path, make: Callable[[Path], Path], code: int, words: list[str]
) -> None:
    exit_code, output = rejected(folder, make(folder))
    assert exit_code == code
    assert [text for text in words if text not in output] == []


def test_a_missing_server_program(folder: Path) -> None:
    graph = write(folder, QUICKSTART.read_text() + "\ninfrastructure:\n  discovery: etcd\n")
    tools = folder / "bin"
    tools.mkdir()
    (tools / "setpriv").symlink_to(shutil.which("setpriv") or "/bin/true")
    if any(Path(p, "etcd").exists() for p in ("/usr/sbin", "/usr/local/sbin")):
        pytest.skip("etcd lies in sbin, which is searched whatever PATH says")
    code, output = up(folder, graph, PATH=str(tools))
    assert code == TOOL
    assert "etcd" in output
    assert "apt install etcd-server" in output


@pytest.mark.parametrize("graph", ["quickstart-simulated", "gpt-oss-120b-b200-disagg"])
def test_a_flag_that_the_engine_rejects_is_reported_at_its_line(folder: Path, graph: str) -> None:
    text = (QUICKSTART.parent / f"{graph}.yaml").read_text()
    line = next(n for n, words in enumerate(text.splitlines(), 2) if words.startswith("  kind:"))
    kind = text.splitlines()[line - 2]
    path = write(folder, text.replace(kind, f"{kind}\n  args: [--no-such-flag]"))
    code, output = up(folder, path)
    assert code == CHECK
    assert f"graph.yaml:{line} engine.args[0]: PS141" in output
    assert "--no-such-flag" in output
    assert len(output.splitlines()) == 1  # once, not once a pool
    code, output = up(folder, path, "--skip-check")  # the parser itself says it too
    assert code == LAUNCH
    assert f"graph.yaml:{line} engine.args[0]: " in output


def test_a_signal_while_starting_leaves_nothing(folder: Path) -> None:
    graph = write(folder, QUICKSTART.read_text())
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", "up", str(graph), "--port", "0"],
        env={**os.environ, "PENSTOCK_STATE_HOME": str(folder / "state"), **without_envoy(folder)},
        stderr=subprocess.PIPE,
    )
    while not list((folder / "state").glob("*/logs/decode.0.log")):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


# Edit of the quickstart: old text, new text, line, place, cause, fix.
EDITS = [
    ("decode:", "decode: {}\ndecode:", 22, "decode", "first on line 21", "Keep one of them."),
    ("replicas: 2", 'replicas: "2"', 19, "prefill.replicas", 'string "2"', "without quotes"),
    ("replicas: 2", "replicas: -1", 19, "prefill.replicas", "got -1", "Set replicas to"),
    ("kind: mocker", "kind: [mocker", 12, "", "not valid YAML", "brackets on this line"),
    ("decode:", "decode:\n  <<: {gpus: 1}", 22, "decode.<<", "merge keys (`<<:`) are not supported",
     "Write the merged keys out."),
    ("8192", "8k", 8, "model.context_length", 'got the string "8k"', "Write 8192 (8 × 1024)"),
    ("8192", "8,192", 8, "model.context_length", 'got the string "8,192"', "Write 8192."),
    ("8192", "8_192", 8, "model.context_length", "Helm reads 8_192 as 8192", "Write 8192"),
    ("model:", "drain_timeout_s: 500ms\nmodel:", 6, "drain_timeout_s", 'the string "500ms"',
     "the unit is seconds, and 500ms is 0.5"),
    ("model:", "drain_timeout_s: 2m\nmodel:", 6, "drain_timeout_s", 'the string "2m"',
     "Write 120; the unit is seconds."),
    *(("model:", f"hardware: {{gpu: {gpu}}}\nmodel:", 6, "hardware.gpu", cause, fix)
      for gpu, cause, fix in (
          ("A100", '"A100" is not supported', "one of h100, h200, b200, b300, gb200, gb300, write"),
          ("RTX 4090", '"RTX 4090" is not supported', "Otherwise remove the key."),
          ("H100-SXM-80GB", 'got "H100-SXM-80GB"', "Did you mean `h100`?"),
          ("NVIDIA-GB200", 'got "NVIDIA-GB200"', "Did you mean `gb200`?"))),
    ("  replicas: 2", "\treplicas: 2", 19, "", "indented with a tab", "two spaces"),
    ("  replicas: 2", "   replicas: 2\n  gpus: 0", 20, "", "indented by 2 spaces, but line 19",
     "Indent line 20 by 1 space more."),
    ("  kind: mocker", " kind: mocker", 12, "", "indented by 2 spaces, but line 11",
     "Indent lines 12 to 16 by 1 space less."),
    ("      speedup_ratio", "     speedup_ratio", 15, "", "indented by 5 spaces",
     "Indent line 15 by 1 space more."),
    ("  context_length", "context_length", 8, "context_length", "unknown key", "to `model`."),
    ("id: openai", 'id: "openai', 7, "", "the quote that opens at column 7", "Close it"),
    ("decode:", "decode", 21, "", "the line has no colon", "Write a colon"),
    ("decode:", "decodes:", 21, "decodes", "unknown key `decodes`", "Did you mean `decode`?"),
    ("replicas: 2", "replicas: 2x", 19, "prefill.replicas", '"2x"', "such as 2."),
    ("replicas: 2", "replicas: ${N}", 19, "prefill.replicas", '"${N}"', "variables are not"),
    ("replicas: 2", "replicas:2", 18, "prefill", '"replicas:2"', "Write `replicas: 2`"),
    ("replicas: 2", "replicas = 2", 18, "prefill", '"replicas = 2"', "Write `replicas: 2`"),
    ("kind: mocker", "kind:mocker", 11, "", "no space after the colon", "after `kind:`"),
    ("  replicas: 2", "  - replicas: 2", 18, "prefill", "got a list", "Remove the `- `"),
    ("decode:", "decode:\n  - gpus: 0", 22, "", "begins as a list", "Remove the `- `"),
    ("kind: mocker", "kind: TensorRT-LLM", 11, "engine.kind", '"TensorRT-LLM"', "`trtllm`?"),
    ("kind: mocker", "kind: ollama", 11, "engine.kind", 'got "ollama"', "Write one of them."),
    ("decode:", "decode:\n  gpus: -1", 22, "decode.gpus", "got -1", "at least 0"),
    ("decode:", "decode:\n  args: --a 1", 22, "decode.args", '"--a 1"', '["--a", "1"]'),
    ("decode:", "decode:\n  env: [{name: A, value: b}]", 22, "decode.env", "got a list",
     'such as `A: "…"`'),
    ("prefill:", "<<<<<<< HEAD\nprefill:", 18, "", "merge conflict", "Resolve the conflict"),
    ("prefill:", "---\nprefill:", 18, "", "a second document", "Keep one document"),
    ("  replicas: 2", "\u00a0 replicas: 2", 19, "", "unknown key '\\xa0 replicas'", "Replace it"),
]  # fmt: skip

# Whole files: text, line, place, cause, fix.
MANIFEST = "apiVersion: {}\nkind: {}\nmetadata: {{name: x}}\nspec: {{}}\n"
FILES = [
    ("services:\n  vllm: &v {image: vllm}\n", 1, "services", "is a Compose file", "penstock init"),
    ("replicaCount: 1\nimage: {tag: latest}\n", 1, "replicaCount", "another Helm chart", " init`"),
    ("tensor_parallel_size: 4\n", 1, "tensor_parallel_size", "of an engine", "engine.config"),
    ('{"architectures": ["A"], "model_type": "llama"}', 1, "architectures", "config.json",
     "model.path"),
    ("name: x\nsteps: []\n", 1, "name", "none of its keys", "penstock init"),
    ("{{- if .Values.on }}\nmodel: {}\n{{- end }}\n", 1, "", "a template", "helm template"),
    ("[model]\nid = 'x'\n", 1, "", "this is a list", "penstock init"),
    ("engine: {kind: mocker}\nworker: {}\nmodel: a/b\n", 3, "model", '"a/b"', 'Write `id: "a/b"`'),
    (QUICKSTART.read_text().partition("decode:\n")[0], None, "decode",
     "missing: the graph has `prefill` but not `decode`", "a single pool called `worker`"),
    ("", None, "", "the file is empty", "penstock init"),
    ("# nothing\n", None, "", "the file is empty", "penstock init"),
    (MANIFEST.format("nvidia.com/v1beta1", "DynamoGraphDeployment"), 2, "kind",
     "a Kubernetes manifest (DynamoGraphDeployment)", "`penstock check`, `explain` and `up`"),
    (MANIFEST.format("apps/v1", "Deployment"), 1, "kind", "manifest (Deployment)", "the graph"),
]  # fmt: skip


def render(capsys: pytest.CaptureFixture[str], graph: Path) -> tuple[int, list[str]]:
    """The exit code of `penstock render`, and its errors."""
    code = main(["render", str(graph)])
    output = capsys.readouterr()
    assert not output.out or code == 0
    return code, output.err.removeprefix("penstock render: ").splitlines()


def assert_error(line: str, graph: Path, number: int | None, words: tuple[str, str, str]) -> None:
    place, cause, fix = words
    where = f"{graph}:{number}" if number else str(graph)
    assert line.startswith(f"{where} {place}: " if place else f"{where}"), line
    message, _, remedy = line.partition(". Fix: ")
    assert cause in message
    assert fix in remedy


@pytest.mark.parametrize(("old", "new", "line", "place", "cause", "fix"), EDITS)
def test_an_edit_that_is_wrong_is_reported_with_place_cause_and_fix(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    line: int,
    place: str,
    cause: str,
    fix: str,
) -> None:
    graph = edited(folder, old, new)
    code, errors = render(capsys, graph)
    assert (code, len(errors)) == (GRAPH, 1), errors
    assert_error(errors[0], graph, line, (place, cause, fix))


@pytest.mark.parametrize(("text", "line", "place", "cause", "fix"), FILES)
def test_a_file_of_another_kind_is_one_error_that_names_the_kind(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    line: int | None,
    place: str,
    cause: str,
    fix: str,
) -> None:
    graph = write(folder, text)
    code, errors = render(capsys, graph)
    assert (code, len(errors)) == (GRAPH, 1), errors
    assert_error(errors[0], graph, line, (place, cause, fix))


@pytest.mark.parametrize("change", [lambda text: text.replace("\n", "\r\n"), "\ufeff{}".format])
def test_windows_line_endings_and_a_byte_order_mark_are_accepted(
    folder: Path, capsys: pytest.CaptureFixture[str], change: Callable[[str], str]
) -> None:
    graph = folder / "graph.yaml"
    graph.write_bytes(change(QUICKSTART.read_text()).encode())
    assert render(capsys, graph)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "place", "cause", "fix"),
    [
        (["--kubeconfig", "{}/none"], "none: ", "the kubeconfig does not exist", "--kubeconfig"),
        (["--kubeconfig", "{}/empty"], "empty: ", "file is empty", "Set KUBECONFIG"),
        (["--kubeconfig", "{}/kc", "--context", "bad"], "context bad: ", "has: good", "--context"),
        (["--kubeconfig", "{}/kc"], "https://127.0.0.1:9: ", "does not respond", "cluster-info"),
    ],
)
def test_a_cluster_that_cannot_be_reached_is_reported_with_place_cause_and_fix(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    place: str,
    cause: str,
    fix: str,
) -> None:
    (folder / "empty").touch()
    (folder / "kc").write_text(
        "{apiVersion: v1, kind: Config, current-context: good, users: [{name: u, user: {}}],\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:9'}}],\n"
        "contexts: [{name: good, context: {cluster: c, user: u}}]}\n"
    )
    assert main(["history", str(QUICKSTART), *(a.format(folder) for a in arguments)]) == 15
    message, _, remedy = capsys.readouterr().err.partition(". Fix: ")
    assert place in message
    assert cause in message
    assert fix in remedy
