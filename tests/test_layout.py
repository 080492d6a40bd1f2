"""Style rules that a test can check: sizes, strictness, links of the README."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.graph import model  # noqa: F401  (its classes are Spec's subclasses)
from penstock.strict_yaml.base import Spec
from tests.support.code_size import module_size
from tests.support.repository import tracked

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "components" / "src" / "penstock"
TESTS = ROOT / "tests"
LONGEST_FILE, LONGEST_FUNCTION = 600, 60
# Files outside tests/e2e that may sleep, and why.
MAY_SLEEP = {
    "support/waiting.py": "other processes do not tell when a condition is met",
    "support/emulated_cluster/endpoint.py": "requests last, so that a fault happens during one",
    "support/completions_server.py": "AIPerf, another process, measures when it sends tokens",
}
TOP_LEVEL = {
    ".ci",
    ".gitignore",
    ".pre-commit-config.yaml",
    ".pre-commit-hooks.yaml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "benchmarks",
    "components",
    "docs",
    "dynamo_graphs",
    "helm",
    "k8s",
    "mkdocs.yml",
    "pyproject.toml",
    "tests",
    "tools",
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.program
def test_the_top_level_is_the_projects() -> None:
    assert {name.split("/")[0] for name in tracked()} <= TOP_LEVEL


def test_no_file_is_longer_than_a_reader_holds_in_the_head() -> None:
    assert [p for p in modules() if module_size(p).lines > LONGEST_FILE] == []


@pytest.mark.slow
def test_no_function_is_longer_than_a_screen() -> None:
    lines = {(p.name, f): n for p in modules() for f, n in module_size(p).functions.items()}
    assert {name: n for name, n in lines.items() if n > LONGEST_FUNCTION} == {}


@pytest.mark.slow
def test_every_module_says_what_it_is_in_at_most_six_lines() -> None:
    for path in modules():
        words = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert words or not path.read_text(), path
        limit = 20 if path.name == "errors.py" else 6  # the tree of errors is its docstring
        assert len(words.splitlines()) <= limit, path


def sleeps(path: Path) -> bool:
    """Whether it calls a `sleep` with anything but 0, which only yields. A clock's may be
    virtual."""
    text = path.read_text()
    if "sleep" not in text:
        return False
    nodes = list(ast.walk(ast.parse(text)))
    imported = [name for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names]
    names = {name.asname or name.name for name in imported if name.name == "sleep"}
    return any(
        isinstance(node, ast.Call)
        and (ast.unparse(node.func) in names or ast.unparse(node.func).endswith(".sleep"))
        and not ast.unparse(node.func).endswith("clock.sleep")
        and [ast.unparse(argument) for argument in node.args] != ["0"]
        for node in nodes
    )


def test_tests_wait_for_conditions_and_never_for_a_time() -> None:
    files = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("*.py")}
    sleeping = {
        name for name, path in files.items() if not name.startswith("e2e/") and sleeps(path)
    }
    assert sleeping == MAY_SLEEP.keys()


def test_every_part_of_the_graph_is_strict_and_frozen() -> None:
    def subclasses(cls: type[Spec]) -> Iterator[type[Spec]]:
        for sub in cls.__subclasses__():
            yield sub
            yield from subclasses(sub)

    specs = list(subclasses(Spec))
    assert len(specs) > 10
    for part in specs:
        config = part.model_config
        assert (config["extra"], config["strict"], config["frozen"]) == ("forbid", True, True)
        for name, field in part.model_fields.items():
            assert field.description, f"{part.__name__}.{name}"


@pytest.mark.program
def test_no_registry_host_and_no_path_of_a_machine_is_committed() -> None:
    forbidden = re.compile(
        "|".join(("python" + "hosted", "npm" + r"js\.", "/wo" + "rk/", "/ro" + "ot/"))
    )
    for name in tracked():
        path = ROOT / name
        if path.suffix in (".py", ".md", ".yaml", ".toml", ".json", ".txt", "") and path.is_file():
            assert not forbidden.search(path.read_text(errors="replace")), name


def test_the_readmes_two_commands_come_within_its_first_twenty_lines() -> None:
    first = "\n".join((ROOT / "README.md").read_text().splitlines()[:20])
    assert "pip install uv && uv run penstock up dynamo_graphs/quickstart.yaml" in first
    assert "`uv run pytest`" in (ROOT / "README.md").read_text()
