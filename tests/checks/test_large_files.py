"""Files that a check could take forever for: nested aliases, and more of anything than a file of
its kind has."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from penstock.checks.finding import Finding, Level
from penstock.checks.run import check_file
from penstock.serving.understand import Hints
from penstock.strict_yaml.loader import load

HEAD = "model: {id: Qwen/Qwen3-0.6B}\nworker: {replicas: 1}\n"
DGD = "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nmetadata: {name: x}\n"
POD = "{spec: {containers: [{name: main, image: x:1, command: [sleep]}]}}"
IMAGE = "nvcr.io/nvidia/ai-dynamo/dynamo-frontend:1.6.1"
SECONDS = 5  # of processor time


def bomb(key: str = "") -> str:
    """Nine lines that stand for 9^9 values; ``key``: with another one that refers to the last."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for above, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{above}'] * 9)}]")
    return "\n".join([*lines, f"{key}: *i"] if key else lines) + "\n"


def indented(text: str, spaces: int = 2) -> str:
    return "".join(f"{' ' * spaces}{line}\n" for line in text.splitlines())


def errors_of(folder: Path, text: str) -> list[Finding]:
    """The errors of a file, which a check finds in time."""
    path = folder / "graph.yaml"
    path.write_text(text)
    begin = time.process_time()
    findings = check_file(path, Hints())
    assert time.process_time() - begin < SECONDS
    return [finding for finding in findings if finding.level is Level.ERROR]


@pytest.mark.parametrize(
    "text",
    [
        bomb(),
        HEAD + "engine:\n  kind: vllm\n  config:\n" + indented(bomb(), 4),
        HEAD + "engine: {kind: vllm}\npod:\n" + indented(bomb("tolerations")),
    ],
    ids=("the whole file", "engine.config", "pod"),
)
def test_nested_aliases_of_a_graph_are_problems_with_their_lines(tmp_path: Path, text: str) -> None:
    errors = [error for error in errors_of(tmp_path, text) if "*a: aliases" in error.message]
    line = text.splitlines()[errors[0].line - 1] if errors[0].line else ""
    assert line.strip().startswith("b: &b [*a")
    assert errors[0].fix.startswith("Write the value out.")


def test_the_rest_of_a_graph_with_an_alias_is_checked_with_its_scalars(tmp_path: Path) -> None:
    text = HEAD.replace("1", "&n 0") + "engine: {kind: vllm}\nfrontend: {replicas: *n, gpuz: 1}\n"
    messages = [error.message for error in errors_of(tmp_path, text)]
    assert "unknown key `gpuz`" in messages
    assert not any("nothing" in message for message in messages)


@pytest.mark.parametrize(
    "text",
    [
        DGD + "spec:\n" + indented(bomb("components")),
        DGD + "spec: {components: []}\n" + bomb("x"),
        bomb("items") + "apiVersion: v1\nkind: List\n",
        "apiVersion: v1\nkind: ConfigMap\n" + bomb("data"),
    ],
)
def test_nested_aliases_of_a_manifest_are_refused_at_the_alias(tmp_path: Path, text: str) -> None:
    (error,) = errors_of(tmp_path, text)
    line = text.splitlines()[(error.line or 0) - 1]
    assert line.strip().startswith("e: &e [*d")
    assert error.message == "*d: the aliases of the file stand for more than 20,000 values"
    assert error.fix == "Write the values out instead of referring to aliases of aliases."


def test_shared_values_of_a_manifest_are_read(tmp_path: Path) -> None:
    shared = "x-env: &env [{name: A, value: b}]\n"
    containers = "containers: [{name: main, image: x:1, command: [sleep], env: *env}]"
    text = DGD + shared + "spec:\n  components:\n"
    for name in "abc":
        text += f"  - {{name: {name}, type: worker, podTemplate: {{spec: {{{containers}}}}}}}\n"
    assert not [e for e in errors_of(tmp_path, text) if "alias" in e.message]


def test_the_loader_of_files_of_engines_refuses_nested_aliases() -> None:
    with pytest.raises(Exception, match="aliases of the file stand for more than 20,000 values"):
        load(bomb())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (HEAD + "".join(f"key{n}: 1\n" for n in range(100_000)), 999, "more than 1000 keys"),
        (HEAD + "x: [" + "1, " * 100_000 + "]\n", 3, "more than 5000 items of lists"),
        ("a: " + "[" * 10_000 + "]" * 10_000, 1, "nested more than 50 levels deep"),
        ("a: 1\n---\n" * 10_000, 2, "a second document starts here"),
        (
            "".join(f"a{n}: 0x10\n" for n in range(200)),
            100,
            "more than 100 problems; the rest of the file is not read",
        ),
        (f"{DGD}---\n" * 10_000, 401, "has 10000 DynamoGraphDeployments; the limit is 100"),
        ('{"apiVersion": "v1", "kind": ' + "{" * 50_000, 1, "nested more than 50 levels deep"),
        (DGD + "x: " + "[" * 10_000 + "]" * 10_000, 4, "nested more than 50 levels deep"),
    ],
)
def test_a_file_with_too_much_of_something_is_refused_at_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    errors = [error for error in errors_of(tmp_path, text) if message in error.message]
    assert [error.line for error in errors] == [line]
    assert errors[0].fix


def test_of_many_wrong_values_the_first_are_listed(tmp_path: Path) -> None:
    names = "".join(f"    KEY{n}: {n}\n" for n in range(900))
    errors = errors_of(tmp_path, HEAD + "engine:\n  kind: vllm\n  env:\n" + names)
    assert len(errors) == 101
    assert errors[-1].message == "the file has 900 such problems; the rest is not listed"
    assert errors[-1].line == 106


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 5000, "0b" + "1" * 5000])
def test_a_number_of_thousands_of_digits_is_a_string(tmp_path: Path, number: str) -> None:
    component = f"{{name: a, type: worker, replicas: {number}, podTemplate: {POD}}}"
    errors = errors_of(tmp_path, f"{DGD}spec: {{components: [{component}]}}\n")
    error = next(error for error in errors if error.place.endswith("replicas"))
    assert error.message.startswith(f"must be an integer, got '{number[:9]}")
    assert error.fix == "Write an integer."


def seconds_of(folder: Path, arguments: list[str]) -> float:
    """Processor time of a check of a frontend with these arguments; the shortest of three."""
    main = {"name": "main", "image": IMAGE, "command": ["python3", "-m", "dynamo.frontend"]}
    pod = {"spec": {"containers": [{**main, "args": arguments}]}}
    component = {"name": "frontend", "type": "frontend", "podTemplate": pod}
    path = folder / "dgd.yaml"
    path.write_text(DGD + yaml.safe_dump({"spec": {"components": [component]}}))
    times = []
    for _ in range(3):
        begin = time.process_time()
        assert check_file(path, Hints())
        times.append(time.process_time() - begin)
    return min(times)


@pytest.mark.slow
def test_the_time_of_a_check_is_linear_in_the_arguments(tmp_path: Path) -> None:
    def seconds(count: int) -> float:
        return seconds_of(tmp_path, [*["--http-port=8000"] * count, "--no-such-flag"])

    seconds(1)  # imports the rules and reads the tables
    assert seconds(6000) < 8 * seconds(1500)  # quadratic: 16


def test_a_flag_among_many_is_found_at_its_first_word(tmp_path: Path) -> None:
    arguments = [*["--http-port=8000"] * 50, "--no-such=1", "--http-port=8000", "--no-such=2"]
    main = f"name: main, image: {IMAGE}, command: [python3, -m, dynamo.frontend]"
    containers = f"{{containers: [{{{main}, args: {arguments}}}]}}"
    component = f"{{name: a, type: frontend, podTemplate: {{spec: {containers}}}}}"
    errors = errors_of(tmp_path, f"{DGD}spec: {{components: [{component}]}}\n")
    error = next(error for error in errors if "--no-such" in error.message)
    assert error.place.endswith("containers[0].args[50]")
