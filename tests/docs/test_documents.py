"""README.md and docs/: sizes, links, pictures, output of commands, and one place for caveats."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from packaging.version import Version

import penstock
from penstock.checks.registry import RULES
from penstock.graph.cluster import ModelCache
from tests.checks.examples import example_cases
from tests.checks.support import check
from tests.support.documents import OUTPUT, PAGES, ROOT, blocks, listing
from tests.support.kubernetes_schemas import crd
from tests.support.kubernetes_schemas.dgd import CRD
from tests.support.markdown import anchors, links, long_lines
from tests.support.repository import tracked

# Where it stands what ran on which hardware.
STATUS = {"docs/status.md"}
DONE = r"(?:run|rehearsed|tried|applied|tested|measured|verified)"
CAVEATS = re.compile(
    rf"\b(?:have|has|was|were)(?: not| never)(?: yet)?(?: been)? {DONE}\b"
    rf"|, (?:not|never) {DONE}\b|\bnot (?:yet )?(?:tested|verified|compared|seen)\b"
    r"|\buntested\b|\bunverified\b|\bcould not be (?:measured|tried|tested|verified)\b"
    rf"|\b{DONE}\b.{{0,30}}\bby us\b|\bwe could not\b"
    rf"|\b(?:nothing|none(?: of \w+)?) (?:has been|have been|was|were) {DONE}\b",
    re.IGNORECASE,
)
FOLDERS = ("benchmarks", "components", "docs", "helm", "k8s", "tests")


def module(path: Path) -> ModuleType:
    """A script of docs/, which is not a package."""
    spec = importlib.util.spec_from_file_location(f"documents_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def prose(text: str) -> str:
    """The text without code blocks and comments."""
    return re.sub(r"^ *```.*?^ *```$|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)


def caveats(text: str) -> list[str]:
    """The sentences that say that something was not run, tried or tested."""
    sentences = re.split(r"(?<=[.:;|])\s+", " ".join(prose(text).split()))
    return [sentence for sentence in sentences if CAVEATS.search(sentence)]


def test_the_readme_fits_in_120_lines() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 120


def test_no_line_of_a_document_is_longer_than_120_characters() -> None:
    documents = [*ROOT.glob("*.md"), *(p for f in FOLDERS for p in (ROOT / f).rglob("*.md"))]
    assert {ROOT / "CHANGELOG.md", ROOT / "k8s" / "README.md"} <= set(documents)
    long = {path: long_lines(path.read_text("utf-8")) for path in documents}
    assert {path: lines for path, lines in long.items() if lines} == {}


@pytest.mark.program
def test_the_readme_of_a_folder_is_short_and_links_to_docs() -> None:
    readmes = [ROOT / name for name in tracked("*/README.md")]
    assert len(readmes) >= 9
    for path in readmes:
        text = path.read_text("utf-8")
        assert len(text.splitlines()) <= 7, path
        targets = [(path.parent / target).resolve() for target, _ in links(text)]
        assert any(target.is_relative_to(ROOT / "docs") for target in targets), path
        assert [target for target in targets if not target.exists()] == [], path


def test_the_counts_of_the_engine_checks_are_those_of_its_rows() -> None:
    page = PAGES["docs/contributing/engine-checks.md"]
    tables = re.findall(r"^\|[ -]+\|.*\n((?:\| .+\n)+)", page, re.MULTILINE)
    last_cells = [row.rsplit("|", 2)[1] for table in tables for row in table.splitlines()]
    with_rule = [cell for cell in last_cells if "](../rules/PS" in cell]
    in_part = [cell for cell in with_rule if "in part" in cell]
    assert {cell.split()[0] for cell in last_cells if cell not in with_rule} == {"–"}
    counts = re.search(r"(\d+) of (\d+) rows have a rule, (\d+) of them", " ".join(page.split()))
    assert counts is not None
    assert counts.groups() == (f"{len(with_rule)}", f"{len(last_cells)}", f"{len(in_part)}")


@pytest.mark.parametrize(
    ("sentence", "is_caveat"),
    [
        ("We have not run any of this on a cluster.", True),
        ("These manifests were never applied to a cluster.", True),
        ("Python 3.14 was resolved, not run.", True),
        ("None of the rules was tried on a GPU by us.", True),
        ("None of it was run on a GPU.", True),
        ("Nothing was run on a GPU.", True),
        ("Its thresholds are unverified.", True),
        ("accepted by the pull request; not verified for rc29", True),
        ("older copies of the file; not compared with rc29", True),
        ("inferred from the code of model cards; not seen", True),
        ("Their effect could not be measured with mockers.", True),
        ("A block of commands is run by a test.", False),
        ("The prefill worker deletes files that were not read within 60 s.", False),
        ("It was measured on two cores.", False),
    ],
)
def test_a_caveat_is_recognized(sentence: str, is_caveat: bool) -> None:
    assert bool(caveats(sentence)) == is_caveat


@pytest.mark.parametrize("page", [page for page in PAGES if page not in STATUS])
def test_only_the_status_page_says_what_was_not_run(page: str) -> None:
    assert caveats(PAGES[page]) == []


def test_the_list_has_every_block_that_is_not_run_and_its_reason() -> None:
    rows = [row.split(" | ") for row in listing().splitlines() if row.startswith("| ")]
    listed = [(row[0].removeprefix("| "), row[-1].removesuffix(" |")) for row in rows]
    excepted = [block for block in blocks() if block.language == "bash" and block.reason]
    assert len(excepted) > 10
    assert [b for b in excepted if (b.page, b.reason) not in listed] == []


def test_a_block_of_text_is_output_of_a_command_or_says_what_it_is() -> None:
    texts = [block for block in blocks() if block.language == "text"]
    assert {block.part_of for block in texts} == {"", "simulate", "up"}
    assert [block for block in texts if not OUTPUT.fullmatch(block.mark)] == []


def test_links_lead_to_files_and_sections() -> None:
    broken = []
    for page, text in PAGES.items():
        for target, anchor in links(text):
            path = ((ROOT / page).parent / target).resolve() if target else ROOT / page
            # Generated when the site is built, where tests/docs/test_site.py checks the links.
            if "rules" in path.parts or path.name == "index.md":
                continue
            if not path.exists() or (anchor and anchor not in anchors(path.read_text("utf-8"))):
                broken.append((page, target, anchor))
    assert broken == []


def test_the_changelog_has_the_form_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    version = r"^## \[(?:Unreleased\]|\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d)$"
    assert len(re.findall(version, text, re.MULTILINE)) == len(
        re.findall(r"^## ", text, re.MULTILINE)
    )
    for release in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        headings = re.findall(r"^### (.+)$", release, re.MULTILINE)
        assert headings == [kind for kind in kinds if kind in headings]
    # A blank line would divide a list in two.
    assert re.findall(r"^(?:- |  ).*\n\n(- .*)$", text, re.MULTILINE) == []


def test_the_version_is_that_of_the_changelog() -> None:
    """The last release, or a development version after it if something is unreleased."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    version = Version(penstock.__version__)
    assert Version(project["version"]) == version
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = Version(re.findall(r"^## \[(\d+\.\d+\.\d+)\]", text, re.MULTILINE)[0])
    unreleased = text.partition("## [Unreleased]\n")[2].partition("\n## ")[0]
    if "\n- " in unreleased:
        assert version.is_devrelease
        assert version > released
    else:
        assert version.is_devrelease or version == released


def test_every_term_of_the_glossary_is_used() -> None:
    page = PAGES["docs/glossary.md"]
    glossary = page.partition("\n## Glossary\n")[2].partition("\n## ")[0]
    rules = (f"{rule.cause} {rule.effect} {rule.remedy}" for rule in RULES)
    texts = " ".join([*PAGES.values(), *rules]).replace(glossary, "")
    rows = re.findall(r"^\| ([^-].*?) \|", glossary, re.MULTILINE)
    terms = [term.strip("`") for row in rows[1:] for term in row.split(", ")]
    assert len(terms) >= 40
    assert [term for term in terms if not re.search(rf"\b{term}", texts, re.IGNORECASE)] == []


@pytest.mark.slow
def test_the_documents_and_the_rule_name_one_folder_for_the_vocabulary() -> None:
    (finding,) = (f for f in check(example_cases()["PS606"].bad) if f.rule == "PS606")
    folder = yaml.safe_load(finding.yaml)["model"]["harmony_vocabulary"]
    example = (ROOT / "docs" / "examples" / "graph.yaml").read_text("utf-8")
    for text in (PAGES["docs/verify.md"], example):
        assert re.findall(r"^ +harmony_vocabulary: (.+)$", text, re.MULTILINE) == [folder]
    # Frontends have the claim of the model cache here.
    assert folder.startswith(f"{ModelCache.model_fields['mount_path'].default}/")


def test_every_picture_is_rendered_from_its_source() -> None:
    render = module(ROOT / "docs" / "pictures" / "render.py")
    sources = sorted((ROOT / "docs" / "pictures").glob("*.dot"))
    assert len(sources) >= 3
    stale = [
        source.name
        for source in sources
        if render.source_mark(source) not in source.with_suffix(".svg").read_text("utf-8")
    ]
    assert stale == [], "run `make pictures`"


@pytest.mark.needs("graphviz")
def test_a_picture_has_the_texts_and_lines_that_graphviz_renders() -> None:
    """Without the coordinates, which differ between versions of Graphviz."""
    render = module(ROOT / "docs" / "pictures" / "render.py")
    for source in (ROOT / "docs" / "pictures").glob("*.dot"):
        drawn, committed = (
            re.findall(r"<title>(.*)</title>|<text [^>]*>(.*)</text>", svg)
            for svg in (render.rendered(source), source.with_suffix(".svg").read_text("utf-8"))
        )
        assert len(drawn) > 10
        assert drawn == committed, "run `make pictures`"


def test_the_output_in_the_documents_is_what_the_commands_print() -> None:
    outputs = module(ROOT / "docs" / "outputs.py")
    assert outputs.BLOCK.findall(PAGES["docs/check.md"])
    stale = [page for page, text in PAGES.items() if outputs.with_outputs(text) != text]
    assert stale == [], "run `make generate`"


def test_a_changed_output_is_stale() -> None:
    outputs = module(ROOT / "docs" / "outputs.py")
    text = PAGES["docs/check.md"]
    changed = text.replace("examples/graph.yaml:17:5 PS124 error", "examples/graph.yaml:9 PS124")
    assert changed != text
    assert outputs.with_outputs(changed) == text


@pytest.mark.needs("crds")
def test_the_schema_of_the_operator_accepts_the_manifest_with_mistakes() -> None:
    document = yaml.safe_load((ROOT / "docs" / "examples" / "dgd.yaml").read_text("utf-8"))
    assert crd.problems(CRD, document) == []
