"""penstock speaks the field's language: no banned word stands in code, messages or documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.language import BANS, Ban, Context, Use, banned, uses
from tests.support.repository import tracked

ROOT = Path(__file__).parents[1]
FOLDERS = (
    ".ci",
    "benchmarks",
    "components",
    "docs",
    "dynamo_graphs",
    "helm",
    "k8s",
    "tests",
    "tools",
)
PAGES = ("CONTRIBUTING.md", "README.md", "SECURITY.md", "mkdocs.yml")
# Files that must name what is banned, or that hold the text of others.
EXEMPT = {
    "tests/language.py": "the list itself",
    "components/src/penstock/graph/renamed_keys.py": "the old keys, read for one release",
    "helm/penstock/files/renamed-keys.yaml": "generated from renamed_keys.py",
    "tests/graph/test_renamed_keys.py": "the old keys",
    "tests/kubernetes/cluster/test_rejections.py": "the names of recorded requests",
    "tests/kubernetes/helm/test_chart_renamed_keys.py": "the old keys",
}
EXEMPT_FOLDERS = (
    "benchmarks/results/",  # measured output
    "tests/golden/",  # rendered by the chart
    "k8s/rendered/",
    "tests/corpus/bad/",  # published configurations
)


def files() -> list[str]:
    return [
        name
        for name in tracked()
        if (ROOT / name).is_file()
        and (name.startswith(FOLDERS) or name in PAGES)
        and name not in EXEMPT
        and not name.startswith(EXEMPT_FOLDERS)
    ]


@pytest.mark.parametrize("ban", BANS, ids=lambda ban: ban.example)
def test_a_ban_finds_its_example_and_not_the_ordinary_use(ban: Ban) -> None:
    context = next(c for c in Context if c in ban.contexts)
    assert list(banned([Use("f", 1, context, ban.example)]))
    assert ban not in [word for word, _ in banned([Use("f", 1, context, ban.ordinary)])]


@pytest.mark.program
def test_no_banned_word_is_used() -> None:
    uses_of_banned = [
        f"{use.file}:{use.line}: {' '.join(use.text.split())[:80]!r}: write {ban.instead}"
        for name in files()
        for ban, use in banned(uses(ROOT / name, name))
    ]
    assert uses_of_banned == []
