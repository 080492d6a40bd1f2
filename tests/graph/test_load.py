"""Loading a graph: what a loaded graph has, and every kind of problem."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import GraphError, InputError
from penstock.graph import image_reference, model_id
from penstock.graph.load import load_graph, parse_graph
from penstock.graph.model import Graph
from penstock.strict_yaml.problems import PATTERNS
from tests.graph.texts import HEAD, SMALL, problems_of, the_problem


def test_a_graph_loads_with_its_name_text_and_values() -> None:
    loaded = parse_graph(SMALL, "dynamo_graphs/gpt-oss-20b.yaml")
    assert loaded.name == "gpt-oss-20b"
    assert loaded.text == SMALL
    assert loaded.source == "dynamo_graphs/gpt-oss-20b.yaml"
    assert loaded.values == {
        "model": {"id": "openai/gpt-oss-20b"},
        "engine": {"kind": "trtllm"},
        "worker": {},
    }
    assert loaded.graph.worker is not None
    assert loaded.graph.worker.nodes == 1


def test_the_graph_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    assert load_graph(tmp_path / "small.yaml", ["worker.replicas=2"]).values["worker"] == {
        "replicas": 2
    }


def test_a_value_has_its_line_and_a_missing_one_that_of_its_section() -> None:
    text = HEAD + "worker:\n  config:\n    kv_cache_config: {dtype: fp8}\n  args:\n  - a\n  - b\n"
    text += "pod:\n  nodeSelector:\n    nvidia.com/gpu.product: H100\n"
    places = parse_graph(text, "graph.yaml").places
    lines = {
        "model.id": 1,
        "worker.config.kv_cache_config.dtype": 5,
        "worker.config.kv_cache_config.other": 5,
        "worker.args[1]": 8,
        "worker.replicas": 3,
        "router.mode": None,
        # Keys with dots
        "pod.nodeSelector.nvidia.com/gpu.product": 11,
        "pod.nodeSelector.nvidia.com/gpu.count": 10,
    }
    assert {place: places.line_of(place) for place in lines} == lines


def test_a_missing_file_suggests_the_graph_of_the_same_name_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quick.yaml").touch()
    with pytest.raises(InputError, match="Fix: `penstock init --example quickstart` writes"):
        load_graph(Path("quickstart.yaml"))
    Path("dynamo_graphs").mkdir()
    Path("dynamo_graphs/quickstart.yaml").touch()
    with pytest.raises(InputError, match=r"Did you mean `dynamo_graphs/quickstart.yaml`\?"):
        load_graph(Path("quickstart.yaml"))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gpt-oss-120.yaml", r"no such file. Fix: Did you mean `.*/gpt-oss-120b.yaml`\?"),
        ("no/graph.yaml", "no such file"),
        (".", "is a directory"),
        ("gpt-oss-120b.yaml/graph.yaml", "cannot be read: Not a directory"),
        ("latin-1.yaml", r"latin-1.yaml:2: not UTF-8: byte 0xff at offset 8"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_input_error(
    path: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "gpt-oss-120b.yaml").write_text(SMALL)
    (tmp_path / "latin-1.yaml").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(InputError, match=message):
        load_graph(tmp_path / path)


@pytest.mark.skipif(os.geteuid() == 0, reason="this user is root, who reads every file")
def test_a_file_without_permission_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(SMALL)
    path.chmod(0)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        load_graph(path)


@pytest.mark.parametrize(
    ("version", "kind", "fix"),
    [
        ("apps/v1", "Deployment", "Name the graph YAML."),
        (
            "nvidia.com/v1beta1",
            "DynamoGraphDeployment",
            "Name the graph YAML; `penstock check`, `explain` and `up` also read a manifest.",
        ),
    ],
)
def test_a_manifest_is_refused_where_a_graph_is_needed(version: str, kind: str, fix: str) -> None:
    problem = the_problem(f"apiVersion: {version}\nkind: {kind}\n")
    assert problem.message == f"is a Kubernetes manifest ({kind}), and this command needs a graph"
    assert problem.fix == fix


def test_a_deployment_after_other_objects_is_named_with_its_line() -> None:
    other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n"
    deployment = "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nspec: {}\n"
    with pytest.raises(GraphError) as error:
        parse_graph(other + deployment, "a.yaml")
    (problem,) = error.value.problems
    assert "is a Kubernetes manifest (DynamoGraphDeployment)" in problem.message
    assert problem.line == 6
    assert "`penstock check`, `explain` and `up` also read a manifest" in problem.fix


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("model:\n\tid: x\n", 2, "indented with a tab"),
        ("model: id: x\n", 1, "at column 10 of `model: id: x`: mapping values are not allowed"),
        ("model: [a\n", 2, "while parsing a flow sequence"),
        ("model: 'x\n", 1, "the quote that opens at column 8 is not closed"),
        ('a:\n  b: "x\n  c:\n    D: "1"\n', 2, "the quote that opens at column 6 is not closed"),
        ("model: @x\n", 1, "Quote the value."),
        ("a: 1\n  b: 2\n", 2, "indented by 2 spaces, but line 1 of the same section by 0"),
        ("model: {{ .Values.model }}\n", 1, "the key is a mapping or list"),
        ("a: '\x07'\n", 1, r"character '\x07' is not allowed"),
        ("a: \x00\n", 1, r"character '\x00' is not allowed"),
        ("a: *x\n", 1, "aliases are not supported"),
        ("a: " + "[" * 60 + "]" * 60, 1, "nested more than 50 levels deep"),
        ("a: " + "{a: " * 60 + "}" * 60, 1, "nested more than 50 levels deep"),
    ],
)
def test_broken_yaml_is_refused_with_its_line(text: str, line: int, part: str) -> None:
    problems = [p for p in problems_of(text) if part in str(p)]
    assert problems
    assert problems[0].line == line


POOLS = HEAD + "prefill: {}\ndecode: {}\n"
CACHE = "model: {id: a/b, cache: {%s}}\nengine: {kind: vllm}\nworker: {}\n"


# A text with one problem → parts of the problem.
@pytest.mark.parametrize(
    ("text", "parts"),
    [
        # No mapping of sections
        ("", ["the file is empty"]),
        ("# nothing\n", ["the file is empty"]),
        ("---\n", ["the document is empty"]),
        ("null\n", ["the document is empty"]),
        ("[1, 2]\n", ["a graph is a mapping of sections, but this is a list"]),
        ("hello\n", ["a graph is a mapping of sections, but this is a single value"]),
        ("a: 1\n---\nb: 1\n", ["a second document starts here"]),
        ("a: 1\n---\n", ["a second document starts here"]),
        ("a: \ud800\n", ["not a Unicode text"]),
        # What YAML libraries read differently
        (SMALL + "worker: {replicas: 2}\n", [":4 worker: ", "first on line 3"]),
        (HEAD + "worker:\n  config:\n    a: {b: 1, b: 1}\n", [":5 worker.config.a.b: "]),
        ("%YAML 1.1\n---\n" + SMALL, ["directives"]),
        (
            HEAD + 'worker: {image: "a\\/b"}\n',
            ["Helm cannot read the file: yaml: line 3: found unk"],
        ),
        (HEAD + "worker: {replicas: 12:30}\n", ["PyYAML as"]),
        # Keys and choices
        (
            HEAD + "worker: {replica: 2}\n",
            [":3 worker.replica: unknown key `replica`. Fix: Did you "],
        ),
        (SMALL + "router: {migration_limit: 3}\n", ["Fix: Move it to `frontend`."]),
        (
            SMALL + "hardware: {xyz: 1}\n",
            ["Fix: Remove it. Keys of this section: gpu, product_labels, gpus_per_node, nodes, "],
        ),
        (SMALL.replace("id: openai/gpt-oss-20b", ""), [":1 model.id: ", "Hugging Face ID"]),
        ("engine: {kind: trtllm}\nworker: {}\n", [" model: "]),
        (
            "model: {id: x}\nengine: {kind: trtlm}\nworker: {}\n",
            ['must be one of trtllm, vllm, sglang, llamacpp, mocker, got "trtlm". Fix: Did'],
        ),
        (SMALL + "frontend: {overload_status: 500}\n", ["one of 429, 503, 529, got 500"]),
        (
            SMALL + "router: {kv_events: 'true'}\n",
            ['must be true or false, got the string "true". Fix: Write it without quotes.'],
        ),
        (CACHE % "pvc: My Models", ['of a Kubernetes object, got "My Models". Fix: Use lower']),
        (CACHE % "pvc: m, mount_path: x", ['absolute path of a folder, got "x". Fix: Begin']),
        # Fields that contradict each other
        (HEAD, [" worker: "]),
        (HEAD + "prefill: {}\n", [" decode: "]),
        (HEAD + "decode: {}\n", [" prefill: "]),
        (POOLS + "worker: {}\n", [" worker: "]),
        (SMALL + "kv_transfer: {backend: nixl}\n", [" kv_transfer: "]),
        (SMALL + "speculation: {method: eagle3}\n", [" speculation.draft_model: "]),
        (SMALL + "router: {mode: random, ttl_s: 3}\n", [" router.ttl_s: "]),
        (SMALL + "pod: {containers: []}\n", [" pod.containers: "]),
    ],
)
def test_a_problem_has_its_place_cause_and_fix(text: str, parts: list[str]) -> None:
    problem = str(the_problem(text))
    assert all(part in problem for part in parts), problem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("&e {A: x}", "&e: anchors are not supported"),
        ("{<<: {A: x}}", "merge keys (`<<:`) are not supported"),
        ("{A: !!str 1}", "the tag !!str is not supported"),
        ("{A: ! 1}", "the tag ! is not supported"),
        ("{A: !secret x}", "the tag !secret is not supported"),
        ("!!map {A: x}", "the tag !!map is not supported"),
        *(
            (f"{{{key}: x}}", f"the key {key} is not read as a str")
            for key in ("1", "yes", "~", "1.5")
        ),
    ],
)
def test_yaml_that_dialects_treat_differently_is_refused(text: str, message: str) -> None:
    assert any(message in p.message for p in problems_of(f"{SMALL}env: {text}\n"))


def test_the_line_of_a_secret_is_not_quoted_in_a_syntax_error() -> None:
    assert "hf_abc" not in str(the_problem("HF_TOKEN: hf_abc: x\n"))


@pytest.mark.parametrize(
    ("worker", "text"),
    [
        ("replicas: -1", "worker.replicas: must be at least 0, got -1"),
        ("nodes: 0", "worker.nodes: must be at least 1, got 0"),
        ('replicas: "2"', 'must be an integer, got the string "2". Fix: Write it without'),
        ("replicas: 2.0", "must be an integer, got the number 2.0. Fix: Write 2."),
        ("replicas: true", "must be an integer, got the boolean true"),
        ("nodes:", "must be an integer, got nothing (null). Fix: Give it a value, or rem"),
        ("replicas: [1]", "must be an integer, got a list"),
        ("env: {A: 1}", 'worker.env.A: must be a string, got the number 1. Fix: Quote it: "1"'),
        ("env: {A: true}", 'must be a string, got the boolean true. Fix: Quote it: "true"'),
        ("env: {A: 1.10}", 'must be a string, got the number 1.1. Fix: Quote it: "1.10"'),
        ("env: {A: TRUE}", 'must be a string, got the boolean true. Fix: Quote it: "TRUE"'),
        ("env: {A: }", "worker.env.A: must be a string, got nothing (null)"),
        ("env: {A B: x}", 'worker.env.A B: "A B" is not a valid name of an environment variable'),
        ("env: [A]", "worker.env: must be a mapping of `key: value` lines, got a list"),
        ("args: [a, 1]", 'worker.args[1]: must be a string, got the number 1. Fix: Quote it: "1"'),
        ("args: --x", 'must be a list, got the string "--x". Fix: Write a list: ["--x"]'),
        ("image: ''", "worker.image: must not be empty"),
        ("resources: {memory: 8GB}", 'must be a Kubernetes quantity, got "8GB"'),
        ("resources: 3", "must be a section of `key: value` lines, got the number 3"),
        ("pod: {containers: []}", "worker.pod.containers: is set by the chart"),
        (
            "pod: {terminationGracePeriodSeconds: 1}",
            "Fix: Set `drain_timeout_s` of the graph instead.",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_the_fix(worker: str, text: str) -> None:
    problem = the_problem(HEAD + f"worker:\n  {worker}\n")
    assert text in str(problem)
    assert problem.line == 4


def test_every_pattern_has_a_message() -> None:
    def patterns(part: object) -> Iterator[str]:
        if isinstance(part, dict):
            if isinstance(part.get("pattern"), str):
                yield part["pattern"]
            for inner in part.values():
                yield from patterns(inner)
        elif isinstance(part, list):
            for inner in part:
                yield from patterns(inner)

    explained = {*PATTERNS, image_reference.PATTERN, model_id.PATTERN}
    assert set(patterns(Graph.model_json_schema())) == explained


def test_all_problems_are_reported_at_once_in_line_order() -> None:
    text = "model: {id: x, id: z}\nengine: {kind: vlm}\nworker:\n  replicas: 1e3\n  gpu: 1\nx: 1\n"
    assert [(p.line, p.place) for p in problems_of(text)] == [
        (1, "model.id"),
        (2, "engine.kind"),
        (4, "worker.replicas"),
        (5, "worker.gpu"),
        (6, "x"),
    ]


@pytest.mark.parametrize("value", ["hunter22", "12345678", "1e8", "[hunter22]"])
def test_the_value_of_a_secret_is_never_printed(value: str) -> None:
    text = HEAD + f"worker:\n  env: {{HF_TOKEN: {value}}}\n  api_key: {value}\n"
    printed = "\n".join(map(str, problems_of(text)))
    assert printed
    assert value.strip("[]") not in printed


@pytest.mark.parametrize(
    ("source", "suggestion"),
    [
        ("My_Graph.yaml", "my-graph.yaml"),
        ("x/gpt.oss.yml", "gpt-oss.yml"),
        ("-a-.yaml", "a.yaml"),
        ("a" * 54 + ".yaml", "a" * 53 + ".yaml"),
        ("ü.yaml", "graph.yaml"),
        ("a" * 52 + "_b.yaml", "a" * 52 + ".yaml"),
    ],
)
def test_a_file_whose_name_is_not_a_release_name_is_refused(source: str, suggestion: str) -> None:
    (problem,) = problems_of(SMALL, source=source)
    assert problem.fix == f"Rename the file, for example to `{suggestion}`."


NAMES = """\
model:
  id: {id}
  served_name: {served_name}
engine:
  kind: vllm
  image: {image}
worker:
  replicas: 1
"""
VALID = {
    "id": "Qwen/Qwen3-0.6B",
    "served_name": "my model",
    "image": "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1",
}


@pytest.mark.parametrize(
    "char", ["\u00a0", "\u3000", "\u200b", "\u2060", "\ufeff", "\u00ad", "\u202e"]
)
@pytest.mark.parametrize(
    ("key", "line"),
    [("id", "2 model.id"), ("served_name", "3 model.served_name"), ("image", "6 engine.image")],
)
def test_an_invisible_character_of_a_name_is_shown_and_removed(
    key: str, line: str, char: str
) -> None:
    assert parse_graph(NAMES.format(**VALID), "a.yaml")
    for name in (VALID[key] + char, char + VALID[key]):
        problem = the_problem(NAMES.format(**{**VALID, key: name}))
        assert f"{problem.line} {problem.place}" == line
        assert f"\\u{ord(char):04x}" in problem.message
        assert char not in problem.message
        assert re.search("contains (a space|an invisible character)$", problem.message)
        assert problem.fix == f"Write `{VALID[key]}`."


def test_a_served_name_of_spaces_is_refused() -> None:
    problem = the_problem(NAMES.format(**{**VALID, "served_name": "' x'"}))
    assert problem.message == '" x" begins or ends with a space'
    assert problem.fix == "Write `x`."
    problem = the_problem(NAMES.format(**{**VALID, "served_name": "'\u200b'"}))
    assert problem.fix == "Write a name, or remove the key: then it is the ID."
