"""The site builds strictly and offline: every link leads to a page, and no asset is elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from penstock.checks.registry import RULES
from penstock.cli.main import COMMANDS
from tests.support.documents import ROOT

pytestmark = [pytest.mark.nightly, pytest.mark.needs("docs")]
# Nothing listens there, so a request to another host fails.
NOWHERE = "http://127.0.0.1:9"


class Page(HTMLParser):
    """The ids, links and assets of an HTML page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.assets: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.assets.append(values["href"])
        elif "src" in values:
            self.assets.append(values["src"])


@pytest.fixture(scope="module", name="site")
def fixture_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)],
        cwd=ROOT,
        env={
            **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
            "HTTPS_PROXY": NOWHERE,
            "HTTP_PROXY": NOWHERE,
            "NO_MKDOCS_2_WARNING": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.fixture(scope="module", name="pages")
def fixture_pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text("utf-8")) for path in site.rglob("*.html")}


def local(links: list[str]) -> Iterator[tuple[str, str]]:
    """Path and anchor of the links inside the site."""
    for link in links:
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = unquote(link).partition("#")
            yield path, anchor


def test_a_page_outside_the_navigation_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    from mkdocs.config import load_config
    from mkdocs.structure.files import File, Files, set_exclusions
    from mkdocs.structure.nav import get_navigation

    config = load_config(str(ROOT / "mkdocs.yml"))
    assert config.strict  # a warning fails the build
    pages = ("contributing/orphan.md", "decisions/0001-use.md", "rules/PS101.md")
    files = Files([File(page, "docs", "site", use_directory_urls=False) for page in pages])
    set_exclusions(files, config)
    get_navigation(files, config)
    (warning,) = (r for r in caplog.records if 'not included in the "nav"' in r.message)
    assert warning.levelname == "WARNING"
    assert [page for page in pages if page in warning.message] == ["contributing/orphan.md"]


def test_every_rule_and_every_command_has_its_place(site: Path, pages: dict[Path, Page]) -> None:
    assert [rule.id for rule in RULES if site / "rules" / f"{rule.id}.html" not in pages] == []
    commands = pages[site / "commands.html"].ids
    assert [verb for verb in COMMANDS if f"penstock-{verb}" not in commands] == []


def test_the_list_of_commands_that_are_not_run_is_a_page(site: Path) -> None:
    text = (site / "contributing" / "commands.html").read_text("utf-8")
    assert "needs a cluster" in text
    assert "make environments" in text


def test_no_python_code_and_no_source_of_a_picture_is_part_of_the_site(site: Path) -> None:
    names = [path.relative_to(site).as_posix() for path in site.rglob("*")]
    pages = [name for name in names if not name.startswith("files/")]
    assert "pictures/reports/drill-1280.webp" in pages
    assert [name for name in pages if re.search(r"__pycache__|\.(?:pyc?|dot)$", name)] == []


def test_every_link_leads_to_a_page_and_a_section(pages: dict[Path, Page]) -> None:
    broken = []
    for page, content in pages.items():
        if page.name == "404.html":  # its links begin at the root of a server
            continue
        for path, anchor in local(content.links):
            target = (page.parent / path).resolve() if path else page
            known = pages.get(target)
            if not target.exists() or (known and anchor and anchor not in known.ids):
                broken.append((page.name, path, anchor))
    assert broken == []


def test_every_asset_is_part_of_the_site(site: Path, pages: dict[Path, Page]) -> None:
    for page, content in pages.items():
        assert [asset for asset in content.assets if re.match(r"https?:|//", asset)] == [], page
    sheets = list(site.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        assert not re.search(r"url\([\"']?(?:https?:)?//", sheet.read_text("utf-8")), sheet
