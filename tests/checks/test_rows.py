"""Rows of rules: three-valued logic, errors in a row, and the rules of a user."""

from __future__ import annotations

import inspect
import itertools
import re
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from penstock.checks.registry import FOLDER, all_rules
from penstock.checks.rows import logic
from penstock.checks.rows.expressions import (
    TYPES,
    ExpressionError,
    attributes,
    compiled,
    compiled_template,
)
from penstock.checks.rows.load import packaged_rules
from penstock.checks.rows.rule_rows import python_of
from penstock.cli import main as cli
from penstock.errors import InputError
from tests.checks.support import trtllm_agg

ROOT = Path(__file__).parents[2]
THREE = (True, False, None)
GOOD = """\
rules:
  - id: ACME101
    title: image from outside our registry
    level: error
    effect: The cluster's policy rejects the pod.
    for: name, pod in deployment.pods.items()
    when: not pod.image.startswith('registry.acme.example/')
    at: Location(name, 'field', ('main', 'image'))
    message: '{name} uses {pod.image}'
    fix: Use the copy in registry.acme.example.
"""


def value_of(expression: str, **facts: Any) -> Any:
    source = compiled(expression, {*facts, *logic.BUILTINS})
    return eval(source, {**vars(logic), **logic.BUILTINS, **facts})


@pytest.mark.parametrize(("left", "right"), [*itertools.product(THREE, THREE)])
def test_logic_is_that_of_kleene(left: bool | None, right: bool | None) -> None:
    """As true and false would decide whatever the fact that is not known turns out to be."""
    for expression in ("a and b", "a or b", "not a"):
        possible = {
            eval(expression, {"a": a, "b": b})
            for a in ((True, False) if left is None else (left,))
            for b in ((True, False) if right is None else (right,))
        }
        expected = possible.pop() if len(possible) == 1 else None
        assert value_of(expression, a=left, b=right) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a < 2", None),
        ("a == 2", None),
        ("a is None", True),
        ("a.attribute.other", None),
        ("a['key']", None),
        ("a + 1 > 0", None),
        ("len(a)", None),
        ("-a", None),
        ("a or 'default'", "default"),
        ("b['missing']", None),
        ("b[b]", None),
        ("b.get('key').lower()", "text"),
        ("b.get('other').lower()", None),
        ("1 < 2 < 3", True),
        ("1 < 2 < a", None),
        ("3 < 2 < a", False),
        ("1 // 0", None),
        ("1 < 'text'", None),
        ("[n for n in a]", []),
        ("any(n > 1 for n in (0, 2))", True),
        ("any(n > 1 for n in (0, a))", None),
        ("all(n > 1 for n in (0, a))", False),
        ("{n: n + 1 for n in (1, 2) if n > 1}", {2: 3}),
        ("'yes' if a else 'no'", "no"),
        ("(1, 2, 3)[1:]", (2, 3)),
        ("isinstance(1, (int, float))", True),
        ("isinstance('1', int)", False),
        ("int('8') + float('1')", 9),
        ("max([])", None),
        ("int('eight')", None),
    ],
)
def test_what_depends_on_an_unknown_fact_is_unknown(expression: str, expected: Any) -> None:
    assert value_of(expression, a=None, b={"key": "Text"}) == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("worker.tpp > 1", "there is no worker.tpp; did you mean worker.tp?"),
        ("wrker.tp > 1", "there is no fact 'wrker'; did you mean worker?"),
        ("worker._secret", "'_secret' is not public"),
        ("'{0.x}'.format(worker)", "'format' is not public"),
        ("(n for n in (1,)).gi_frame.f_builtins", "'f_builtins' is not public"),
        ("2 ** 3", "has an operator that no row may have"),
        ("lambda: 1", "has Lambda, which no row may have"),
        ("(x := 1)", "has NamedExpr, which no row may have"),
        ("worker.tp >", "is not an expression: invalid syntax"),
        ("__import__('os').system('true')", "there is no fact '__import__'"),
        ("open('file')", "there is no fact 'open'"),
    ],
)
def test_an_expression_that_no_row_may_have_is_an_error(expression: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message.replace("?", r"\?")):
        compiled(expression, {"worker", *logic.BUILTINS})


def test_a_template_with_an_open_brace_is_an_error() -> None:
    with pytest.raises(ExpressionError, match="expected '}' before end of string"):
        compiled_template("{worker.name", {"worker"})


def run(tmp_path: Path, rows: str, *args: str) -> int:
    (tmp_path / "rules").mkdir(exist_ok=True)
    (tmp_path / "rules" / "acme.yaml").write_text(rows)
    path = tmp_path / "graph.yaml"
    path.write_text(trtllm_agg())
    return cli.main(["check", "--rules", str(tmp_path / "rules"), str(path), *args])


def test_a_rule_of_a_user_is_reported_selected_suppressed_and_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, GOOD, "--full") == 14
    printed = capsys.readouterr().out
    assert "ACME101 error" in printed
    assert "why: The cluster's policy rejects the pod." in printed
    assert run(tmp_path, GOOD, "--ignore", "ACME") == 0
    assert run(tmp_path, GOOD, "--select", "PS") == 0
    path = tmp_path / "graph.yaml"
    path.write_text("# penstock: ignore-file ACME101 images are copied\n" + path.read_text())
    folder = str(tmp_path / "rules")
    assert cli.main(["check", "--rules", folder, str(path)]) == 0
    capsys.readouterr()
    assert cli.main(["check", "--rules", folder, "--explain", "ACME101"]) == 0
    assert "image from outside our registry" in capsys.readouterr().out
    assert not any(rule.id == "ACME101" for rule in all_rules()), "the rules are of one run"


def test_rules_of_several_folders_are_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "rules.yaml").write_text(GOOD.replace("ACME101", "ACME202"))
    assert run(tmp_path, GOOD, "--full", "--rules", str(other), "--rules", str(other)) == 14
    printed = capsys.readouterr().out
    assert "ACME101 error" in printed
    assert "ACME202 error" in printed


def test_an_id_in_two_folders_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "rules.yaml").write_text(GOOD)
    assert run(tmp_path, GOOD, "--rules", str(other)) == InputError.exit_code
    assert "the id is also that of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "    when:",
            "    wen:",
            "acme.yaml:7 ACME101: unknown key 'wen'. Fix: Did you mean when?",
        ),
        ("pod.image.starts", "pod.img.starts", "acme.yaml:7 ACME101: there is no pod.img"),
        ("{pod.image}", "{port}", "acme.yaml:9 ACME101: there is no fact 'port'"),
        ("ACME101", "PS101", "acme.yaml:2 PS101: ids that begin with PS are penstock's"),
        ("ACME101", "acme", "acme.yaml:2 acme: id is 'acme'"),
        ("error", "fatal", "acme.yaml:4 ACME101: level is 'fatal'. Fix: Use error, warning, note"),
        ("    fix: Use the copy in registry.acme.example.\n", "", "ACME101 has no fix"),
        ("rules:", "rule:", "acme.yaml:1: the file has no list `rules`"),
        ("name, pod in", "name, pod of", "acme.yaml:6 ACME101"),
        (
            "    at:",
            '    let: {"x = 1; y": 1}\n    at:',
            "yaml:8 ACME101: 'x = 1; y' is not a name",
        ),
        ("    at:", "    let: {__builtins__: 1}\n    at:", "'__builtins__' is not a name"),
        ("    at:", "    cases: 5\n    at:", "acme.yaml:8 ACME101: cases is 5. Fix: Use a list."),
        ("    at:", "    cases: [5]\n    at:", "acme.yaml:2 ACME101: the row cannot be read"),
        ("    at:", "    once: 5\n    at:", "once is 5. Fix: Use a boolean."),
        ("    at:", "    engines: [VLLM]\n    at:", "cannot be made: 'VLLM' is not a valid Engine"),
        ("    at:", "    level_if: {fatal: 1 < 2}\n    at:", "cannot be made: 'fatal' is not"),
        ("    at:", "    versions: {nope: '>=1'}\n    at:", "a rule cannot be made"),
        (
            "    at:",
            "    let: {x: !!python/none 1}\n    at:",
            "acme.yaml:8: not valid YAML: could not",
        ),
        ("name, pod in", "name, deployment.pods in", "is not a name"),
        ("rules:", "constants: 5\nrules:", "constants must be a mapping"),
        ("rules:", "nope: 5\nrules:", "unknown key 'nope'"),
        (
            "error",
            "error\n    let: &l {x: *l}",
            "acme.yaml:2: invalid value: found unconstructable recursive node",
        ),
        ("title: image", "title: [image", "acme.yaml:4: not valid YAML"),
        (
            "    fix: Use the copy in registry.acme.example.\n",
            "    fix: Use the copy.\n    fix: Use the copy.\n",
            "acme.yaml:11 ACME101: fix occurs twice",
        ),
        ("    effect:", "    check: run_anything\n    effect:", "unknown key 'check'"),
        ("rules:", "constants: {a b: 1}\nrules:", "acme.yaml: the constant a b needs another name"),
        ("rules:", "constants: {len: 1}\nrules:", "the constant len needs another name"),
        ("rules:", "constants: {A: 2026-11-29}\nrules:", "the constant A needs plain values"),
    ],
)
def test_an_error_in_a_row_of_a_user_names_file_and_line(
    old: str, new: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, GOOD.replace(old, new)) == 3
    assert message in capsys.readouterr().err


def test_the_expressions_of_a_file_use_its_constants(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = GOOD.replace("'registry.acme.example/'", "REGISTRY['ours']")
    assert run(tmp_path, "constants: {REGISTRY: {ours: nvcr.io/}}\n" + rows) == 0
    assert run(tmp_path, "constants: {REGISTRY: {ours: registry.acme/}}\n" + rows) == 14
    assert "ACME101 error" in capsys.readouterr().out


def test_a_rule_that_raises_is_a_finding_beside_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = GOOD.replace("ACME101", "ACME102").replace("pod.image.starts", "1 + pod.nodes.starts")
    assert run(tmp_path, GOOD + broken.partition("rules:\n")[2]) == 14
    printed = capsys.readouterr().out
    assert "ACME101 error" in printed
    assert "ACME102 error the rule cannot be evaluated: AttributeError: " in printed
    assert run(tmp_path, broken, "--ignore", "ACME102") == 0


def test_two_rules_with_one_id_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "other.yml").write_text(GOOD)
    assert run(tmp_path, GOOD) == 3
    assert "other.yml:2 ACME101: the id is also that of " in capsys.readouterr().err


def test_the_members_of_a_group_have_its_texts_and_their_own_ids() -> None:
    row, members = GOOD.partition("    when:")[0], "    when:" + GOOD.partition("    when:")[2]
    nested = "".join(f"    {line}\n" for line in members.splitlines())
    group = f"{row}    rows:\n" + "".join(
        nested.replace(
            "        when:",
            f"      - id: ACME1010{number}\n        title: of {number}\n        when:",
        )
        for number in (1, 2)
    )
    namespace: dict[str, Any] = {}
    exec(python_of(group, "acme.yaml", facts=()), namespace)
    rules = namespace["RULES"]
    assert [(rule.id, rule.title, rule.group) for rule in rules] == [
        ("ACME10101", "of 1", "ACME101"),
        ("ACME10102", "of 2", "ACME101"),
    ]
    assert {rule.effect for rule in rules} == {"The cluster's policy rejects the pod."}


def block(page: str, begins: str) -> str:
    """The YAML of a page that begins with a text."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    return next(text for text in blocks if text.startswith(begins))


def test_the_example_of_the_documents_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, block("docs/check.md", "rules:"), "--select", "ACME") == 14
    assert "ACME101 error" in capsys.readouterr().out


def test_the_ten_lines_of_the_guide_are_those_of_the_rule() -> None:
    lines = block("docs/contributing/rules.md", "  - id: PS124").splitlines()
    (rule,) = re.findall(
        r"  - id: PS124.*?\n\n", (FOLDER / "lengths/rules.yaml").read_text(), re.DOTALL
    )
    assert [line for line in lines if line not in rule.splitlines()] == []


def test_the_bytecode_of_packaged_rows_is_cached(tmp_path: Path) -> None:
    folder = tmp_path / "acme"
    folder.mkdir()
    file = folder / "rules.yaml"
    file.write_text("facts: []\n" + GOOD)
    (rule,) = packaged_rules(file)
    assert rule.id == "ACME101"
    file.write_text("facts: []\n" + GOOD.replace("ACME101", "ACME102").replace("error", "note"))
    (rule,) = packaged_rules(file)
    assert rule.id == "ACME102", "a changed file is compiled again"


@pytest.mark.parametrize("owner", [*dict.fromkeys(TYPES.values())])
def test_every_fact_of_the_documents_has_a_description(owner: type) -> None:
    described = {field.name for field in fields(owner)}
    for name in attributes(owner) - described:
        member = inspect.getattr_static(owner, name)
        about = member.func if isinstance(member, cached_property) else member
        assert inspect.getdoc(about), f"{owner.__name__}.{name}"


def test_no_module_shares_the_name_of_the_bytecode_of_rows() -> None:
    assert not list(FOLDER.glob("*/rules.py"))
