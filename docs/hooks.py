"""Hooks of the site (mkdocs.yml): pages that are generated, and links to files of the repository.

Rules, commands and the list of decisions are generated when the site is built. A link to a file
outside docs/ leads to a copy under `files/`, so the site is complete without the repository.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS))

from command_pages import COMMANDS_MARK, command_reference  # noqa: E402
from generated_pages import decision_index, root_page  # noqa: E402
from rule_pages import rule_pages  # noqa: E402

from tests.support.documents import listing  # noqa: E402

LINK = re.compile(r"(?<=\]\()([^)#\s]+)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
# Files of the repository's top level that are pages of the site too.
ROOT_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing/index.md",
    "SECURITY.md": "security.md",
}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated pages, and copies of the files that pages link to."""
    pages: dict[str, str] = {
        "contributing/commands.md": listing(),
        "decisions/index.md": decision_index(DOCS / "decisions"),
    }
    pages |= {page: root_page(ROOT / name, page, ROOT_PAGES) for name, page in ROOT_PAGES.items()}
    pages |= rule_pages()
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    texts = {f.src_uri: f.content_string for f in files.documentation_pages()}
    for name in sorted(linked_files(texts)):
        files.append(File.generated(config, f"files/{name}", abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Insert the reference of the commands, and point links out of docs/ at the copies."""
    if COMMANDS_MARK in markdown:  # on one page only, and the reference takes a while to write
        markdown = markdown.replace(COMMANDS_MARK, command_reference())
    # In the repository the folder is the list of decisions; the site generates a page of it.
    markdown = markdown.replace("](decisions)", "](decisions/index.md)")
    return with_copies(markdown, page.file.src_uri)


def linked_files(texts: Mapping[str, str]) -> set[str]:
    """The files outside docs/ that pages link to, as paths from the top level."""
    names = {name for page, text in texts.items() for _, name in _outside(text, page)}
    return names - set(ROOT_PAGES)


def with_copies(text: str, page: str) -> str:
    """``text`` with links to the copies; links in code stay."""
    for link, name in sorted(set(_outside(text, page))):
        copy = posixpath.relpath(ROOT_PAGES.get(name, f"files/{name}"), posixpath.dirname(page))
        text = re.sub(rf"(?<=\]\(){re.escape(link)}(?=[)#])", copy, text)
    return text


def _outside(text: str, page: str) -> Iterator[tuple[str, str]]:
    """Each link of a page that leads out of docs/, and the path from the top level."""
    for match in LINK.finditer(CODE.sub("", text)):
        link = match[1]
        if ":" in link:
            continue
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
        if not target.startswith("docs/") and (ROOT / target).is_file():
            yield link, target
