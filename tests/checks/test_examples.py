"""Each rule has a page, whose example violates that rule alone and whose repair solves it."""

from __future__ import annotations

import inspect
import re

import pytest
from docs.rule_pages import rule_index, rule_page

from penstock.checks.finding import Level
from penstock.checks.registry import RULES, by_id
from penstock.checks.rule import Rule
from penstock.checks.suppress import ALWAYS
from tests.checks.examples import Example, example_cases, example_of
from tests.checks.excerpt import Excerpt, excerpts
from tests.checks.shows import SHOWS
from tests.checks.support import by_rule, check, fired
from tests.support.markdown import long_lines

YAML = re.compile(r"^```yaml .*?^```$", re.DOTALL | re.MULTILINE)
SECTIONS = ("What it finds", "Why it matters", "Example", "Use instead", "Suppress it", "Source")


def problems(text: str, gpu: str | None) -> set[str]:
    """The rules with errors or warnings. Sound files have notes as well."""
    return {finding.rule for finding in check(text, gpu=gpu) if finding.level is not Level.NOTE}


def excerpts_of(example: Example) -> tuple[Excerpt, Excerpt]:
    return excerpts(example.bad, example.fixed, example.findings, example.shows)


def settings(excerpt: Excerpt) -> list[str]:
    """The lines that are not comments."""
    return [line for line in excerpt.text.splitlines() if not line.lstrip().startswith("#")]


@pytest.mark.parametrize("rule", by_rule(RULES))
def test_the_example_violates_the_rule_and_its_repair_solves_that_alone(rule: Rule) -> None:
    case = example_cases()[rule.id]
    example = example_of(case)
    assert case.rule in fired(example.bad, gpu=case.gpu)
    assert case.rule not in fired(example.fixed, gpu=case.gpu)
    before, after = problems(example.bad, case.gpu), problems(example.fixed, case.gpu)
    assert before - after - {case.rule} == set(case.also), "the repair solves other problems"
    assert after - before == set(), "the repair causes problems"
    problem = {f.level for f in example.findings if f.rule not in ALWAYS}
    assert problem <= {rule.level, *rule.other_levels}
    assert rule.id not in ALWAYS or rule.level in {f.level for f in example.findings}
    assert not rule.applies_to or any(engine.value in example.bad for engine in rule.applies_to)


@pytest.mark.parametrize("rule", by_rule(RULES))
def test_the_page_has_all_sections_and_shows_the_place_and_the_fix_once(rule: Rule) -> None:
    case = example_cases()[rule.id]
    example = example_of(case)
    bad, fixed = excerpts_of(example)
    lines = example.bad.splitlines()
    excerpt_lines = bad.text.splitlines()
    marked = [excerpt_lines[number - 1] for number in bad.marked]
    for finding in example.findings:
        for place in finding.places:
            if place.line is not None:
                assert lines[place.line - 1] in marked
    assert settings(bad) != settings(fixed)
    page = rule_page(by_id(case.rule), example)
    assert page.startswith(f"# {case.rule}: ")
    sections = dict(re.findall(r"^## (.+)\n\n(.+)$", page, flags=re.MULTILINE))
    assert [name for name in SECTIONS if name not in sections] == []
    assert f" {case.rule} " in page.partition("$ penstock check ")[2]
    assert long_lines(YAML.sub("", page)) == []
    for finding in check(case.bad, gpu=case.gpu):
        sentences = re.split(r"(?<=\.) ", finding.fix)
        about = [
            re.sub(r"[`.]|--|\b(the|to|in|launch|script)\b", "", sentence).split()[1:]
            for sentence in sentences
        ]
        steps = [tuple(words) for words in about if words]
        assert len(set(steps)) == len(steps), finding.fix


@pytest.mark.parametrize("rule", SHOWS)
def test_the_excerpt_shows_the_settings_on_which_the_finding_depends(rule: str) -> None:
    example = example_of(example_cases()[rule])
    bad, _ = excerpts_of(example)
    without, _ = excerpts(example.bad, example.fixed, example.findings)
    words = set(re.findall(r"[^\s:]+", bad.text))
    assert [s for s in SHOWS[rule] if not words & {s, s.rpartition("/")[2]}] == []
    assert set(settings(without)) <= set(settings(bad))


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        ("PS217", "  gpus: 8"),  # "tp-size 8 is not divisible"
        ("PS217", "    enable-dp-attention: true"),
        ("PS221", "  gpus: 4"),
        ("PS302", "      free_gpu_memory_fraction: 0.5"),
        ("PS419", "  id: openai/gpt-oss-120b"),  # "a model with sliding-window attention"
        ("PS445", """          - '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'"""),
        ("PS450", """          - '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}'"""),
        ("PS456", "          - decode"),
    ],
)
def test_both_excerpts_show_what_the_message_is_about(rule: str, cause: str) -> None:
    for excerpt in excerpts_of(example_of(example_cases()[rule])):
        assert cause in excerpt.text.splitlines()


def test_the_repair_of_a_decode_worker_changes_no_prefill_worker() -> None:
    example = example_of(example_cases()["PS456"])
    flag = "          - --enable-hierarchical-cache\n"
    assert example.bad.count(flag) == 1
    assert example.fixed == example.bad.replace(flag, "")


def test_a_rule_states_the_levels_that_its_function_gives() -> None:
    for rule in RULES:
        if inspect.getfile(rule.check).endswith(".yaml"):
            continue  # a row states its levels itself
        body = inspect.getsource(rule.check)
        levels = {Level[name] for name in re.findall(r"\bLevel\.(\w+)", body)}
        assert levels <= {rule.level, *rule.other_levels}, f"{rule.id}: add to other_levels"


def test_the_index_has_a_line_for_each_rule() -> None:
    index = rule_index()
    for rule in RULES:
        assert f"| [{rule.id}]({rule.id}.md) | {rule.title} |" in index
