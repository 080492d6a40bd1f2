"""Write the reference of the rules of `penstock check`: an index, and a page for each rule.

The build of the site calls `rule_pages`; `python docs/rule_pages.py FOLDER` writes the pages into
a folder. The texts come from the rules, the examples from their test cases.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path

DOCS = Path(__file__).resolve().parent
for folder in (DOCS, DOCS.parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from outputs import WIDTH, wrapped  # noqa: E402

from penstock.checks.registry import RULES, TOPICS  # noqa: E402
from penstock.checks.report import one_line  # noqa: E402
from penstock.checks.rows.expressions import TYPES, attributes  # noqa: E402
from penstock.checks.rows.logic import BUILTINS  # noqa: E402
from penstock.checks.rule import Rule  # noqa: E402
from penstock.checks.suppress import ALWAYS  # noqa: E402
from tests.checks.examples import Example, example_cases, example_of  # noqa: E402
from tests.checks.excerpt import Excerpt, excerpts  # noqa: E402
from tests.checks.support import DRY_RUN, is_graph  # noqa: E402

ABOUT = """\
# Rules of `penstock check`

Each rule has a page with what it finds, why it matters, an example and its repair. How to run
`check`, what the levels mean and how to suppress a finding: [Check a configuration](../check.md).

In the source of a rule, `dynamo#4327` is issue or pull request 4327 of the repository
ai-dynamo/dynamo. Paths of Python files refer to ai-dynamo 1.6.1, vLLM 0.31.0 and SGLang 0.5.21,
unless the rule states another version.
"""
ABOUT_FACTS = """\
# Facts for rules

Expressions in [rules of your own](../check.md#rules-of-your-own) and in penstock's own rules can
use these attributes and functions. `None` means that the value is not known or not set."""
TITLES = {
    "trtllm": "TensorRT-LLM",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp",
}
SHORTENED = (
    "This is an excerpt of a longer file: `# …` marks omitted lines, "
    "and line numbers in the output refer to the whole file."
)
# Most lines of output that a page shows.
MOST_LINES = 3


def rule_pages() -> dict[str, str]:
    """Path of the site → Markdown."""
    cases = example_cases()
    pages = {f"rules/{rule.id}.md": rule_page(rule, example_of(cases[rule.id])) for rule in RULES}
    groups = {rule.group: rule.group_title for rule in RULES if rule.group}
    pages |= {f"rules/{group}.md": group_page(group, title) for group, title in groups.items()}
    return {"rules/index.md": rule_index(), "rules/facts.md": facts_page(), **pages}


def group_page(group: str, title: str) -> str:
    """The rules of a group."""
    rules = [rule for rule in RULES if rule.group == group]
    about = f"A group of rules. `{group}` selects, ignores and suppresses all of them."
    return f"# {group}: {title}\n\n{about}\n\n{_rows(rules)}"


def facts_page() -> str:
    """What expressions of rows can use."""
    parts = [ABOUT_FACTS]
    for owner in dict.fromkeys(TYPES.values()):
        names = " or ".join(f"`{name}`" for name, kind in TYPES.items() if kind is owner)
        lines = [f"| `{name}` | {_cell(text)} |" for name, text in _facts_of(owner)]
        parts.append("\n".join([f"## {names}\n", "| fact | |", "|---|---|", *lines]))
    functions = ", ".join(f"`{name}`" for name in sorted(BUILTINS))
    parts.append(f"## Functions\n\n{functions}, `is_set(NAME, worker)`, `key_of(NAME, worker)`")
    return "\n\n".join(parts) + "\n"


def _facts_of(owner: type) -> Iterator[tuple[str, str]]:
    """Each public attribute with the first paragraph of its docstring, or the type of a field."""
    types = {field.name: str(field.type) for field in fields(owner)}
    for name in sorted(attributes(owner)):
        member = inspect.getattr_static(owner, name, None)
        about = inspect.getdoc(member.func if isinstance(member, cached_property) else member)
        arguments = ""
        if inspect.isfunction(member):
            arguments = f"({', '.join([*inspect.signature(member).parameters][1:])})"
        text = types.get(name) or " ".join((about or "").partition("\n\n")[0].split())
        yield f"{name}{arguments}", text


def rule_index() -> str:
    """All rules by family."""
    tables = "\n".join(_table(family, rules) for family, rules in TOPICS.items())
    return f"{ABOUT}\n{tables}"


def _table(family: str, rules: Iterable[Rule]) -> str:
    return f"### {family}\n\n{_rows(rules)}"


def _rows(rules: Iterable[Rule]) -> str:
    rows = [
        f"| [{rule.id}]({rule.id}.md) | {_cell(rule.title)} | {_levels(rule)} | {_engines(rule)} |"
        for rule in sorted(rules, key=lambda rule: rule.id)
    ]
    head = ["| Rule | Finds | Level | Engines |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def rule_page(rule: Rule, example: Example) -> str:
    bad, fixed = excerpts(example.bad, example.fixed, example.findings, example.shows)
    parts = [
        f"# {rule.id}: {rule.title}",
        _facts(rule),
        f"## What it finds\n\n{_paragraphs(rule.cause)}",
        f"## Why it matters\n\n{_paragraphs(_why(rule))}",
        f"## Example\n\n{_failing(example, bad)}",
        f"## Use instead\n\n{_paragraphs(rule.remedy)}\n\n{_code(fixed, _file_name(example))}",
    ]
    if rule.exceptions:
        parts.append(f"## Exceptions\n\n{_paragraphs(rule.exceptions)}")
    source = _paragraphs(rule.source)
    parts += [f"## Suppress it\n\n{_suppression(rule)}", f"## Source\n\n{source}"]
    return "\n\n".join(parts) + "\n"


def _facts(rule: Rule) -> str:
    family = next(name for name, rules in TOPICS.items() if rule in rules)
    rows = (
        ("Level", _levels(rule)),
        ("Versions", rule.versions.text()),
        ("Engines", _engines(rule)),
        ("Family", f"[{family}](index.md#{family.lower().replace(' ', '-')})"),
    )
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {_cell(v)} |" for name, v in rows)])


def _levels(rule: Rule) -> str:
    return " or ".join(dict.fromkeys(str(level) for level in (rule.level, *rule.other_levels)))


def _engines(rule: Rule) -> str:
    return ", ".join(TITLES[engine] for engine in rule.applies_to) or "all"


def _paragraphs(text: str) -> str:
    """The text of a rule as Markdown, in lines that fit a page."""
    return "\n\n".join(
        textwrap.fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False)
        for paragraph in _prose(text).split("\n\n")
    )


def _prose(text: str) -> str:
    """The text of a rule as Markdown: what is not code has no emphasis and no tags."""
    parts = text.split("`")
    return "`".join(
        part.replace("*", "\\*").replace("<", "&lt;") if index % 2 == 0 else part
        for index, part in enumerate(parts)
    )


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|")


def _why(rule: Rule) -> str:
    return f"{rule.effect}\n\nFor example: {rule.example}" if rule.example else rule.effect


def _failing(example: Example, excerpt: Excerpt) -> str:
    name = _file_name(example)
    gpu = f" --gpu {example.gpu}" if example.gpu else ""
    lines = list(_output(example, name))
    shown = lines[:MOST_LINES] + ["…"] * (len(lines) > MOST_LINES)
    option = " --engine-dry-run" if example.rule in DRY_RUN else ""
    output = "\n".join([f"$ penstock check{option}{gpu} {name}", *map(wrapped, shown)])
    text = f"{SHORTENED}\n\n{_code(excerpt, name)}\n\n```text\n{output}\n```"
    if example.also:
        rules = ", ".join(f"[{rule}]({rule}.md)" for rule in example.also)
        text += f"\n\nThe file also violates {rules}, and the repair below solves that, too."
    return text


def _output(example: Example, name: str) -> Iterator[str]:
    for finding in example.findings:
        yield one_line(replace(finding, file=name))


def _file_name(example: Example) -> str:
    return "graph.yaml" if is_graph(example.fixed) else "manifest.yaml"


def _code(excerpt: Excerpt, name: str) -> str:
    marked = " ".join(map(str, excerpt.marked))
    options = f' hl_lines="{marked}"' if marked else ""
    text = excerpt.text.encode("utf-8", errors="replace").decode("utf-8")
    return f'```yaml title="{name}"{options}\n{text}```'


def _suppression(rule: Rule) -> str:
    if rule.id in ALWAYS:
        return "It cannot be suppressed: nothing can be deployed from such a file."
    return (
        "Give the reason in a comment on the line of the finding, or above it:\n\n"
        f"```yaml\n# penstock: ignore {rule.id} REASON\n```\n\n"
        "In a graph, `checks.suppress` applies to the whole file:\n\n"
        f"```yaml\nchecks:\n  suppress:\n    {rule.id}: REASON\n```"
    )


def write(folder: Path) -> int:
    """Write all pages into ``folder``; returns their number."""
    pages = rule_pages()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return len(pages)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/rule_pages.py FOLDER")
    print(f"wrote {write(Path(sys.argv[1]))} pages to {sys.argv[1]}")
