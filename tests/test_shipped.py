"""Messages are correct for users who installed the wheel, which has no `docs/` and no `k8s/`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import penstock
from penstock.cli.main import main
from penstock.files import in_repository, page
from penstock.manifests.render import chart_path

PACKAGE = Path(__file__).parents[1] / "components" / "src" / "penstock"
NOT_IN_WHEEL = re.compile(r"(?<![\w/.-])(docs|dynamo_graphs|benchmarks|k8s)/[\w.-]*")
# Strings that are no messages: paths that are read or written, and where a rule's facts are from.
NO_MESSAGES = ("source", "in_repository", "shipped")
EXEMPT = {
    "cluster/rights.py": "its command is for a checkout, as its message says",
    "graph/generate.py": "writes the files of the repository",
    "output_schemas/generate.py": "writes the files of the repository",
    "local/request_adapter": "the adapter's rules name the page themselves",
}


def messages(tree: ast.AST) -> Iterator[str]:
    """The strings of a module without docstrings and without those of NO_MESSAGES."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.keyword) and node.arg in NO_MESSAGES:
            continue
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in NO_MESSAGES:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        yield from messages(node)


@pytest.mark.slow
def test_no_message_names_a_file_that_the_wheel_does_not_have() -> None:
    messages_found = [
        f"{name}: {text!r}"
        for file in sorted(PACKAGE.rglob("*.py"))
        if not (name := file.relative_to(PACKAGE).as_posix()).startswith(tuple(EXEMPT))
        for text in messages(ast.parse(file.read_text("utf-8")))
        if NOT_IN_WHEEL.search(text)
    ]
    assert messages_found == [], (
        f"use {page.__name__}() or {in_repository.__name__}() of penstock.files"
    )


def test_an_empty_graph_names_a_command_that_writes_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "g.yaml"
    file.write_text("# nothing\n")
    assert main(["up", str(file)]) == 4
    fix = "Start from the output of `penstock init`, or of `penstock init --example quickstart`."
    assert fix in " ".join(capsys.readouterr().err.split())
    copy = tmp_path / "copy.yaml"
    assert main(["init", str(copy), "--example", "quickstart"]) == 0
    assert "kind: llamacpp" in copy.read_text("utf-8")


def test_an_empty_workload_names_a_file_that_exists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("# nothing\n")
    graph = tmp_path / "g.yaml"
    assert main(["init", str(graph), "--example", "quickstart"]) == 0
    assert main(["simulate", str(graph), "--workload", str(file)]) == 4
    fix = re.search(r"Start from (\S+)\.$", capsys.readouterr().err.strip())
    assert fix
    assert Path(fix[1]).is_file()


def test_the_chart_has_the_version_of_penstock() -> None:
    """Otherwise the label `helm.sh/chart` is the same on objects of different charts."""
    chart = yaml.safe_load((chart_path() / "Chart.yaml").read_text())
    assert chart["version"] == penstock.__version__.replace(".dev", "-dev.")
