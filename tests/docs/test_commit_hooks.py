"""The hooks that CONTRIBUTING.md installs check the code and the title of a commit."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.documents import PAGES, ROOT, blocks
from tests.support.repository import Workplace

pytestmark = [pytest.mark.nightly, pytest.mark.program]
CONFIGURATION = (".pre-commit-config.yaml", ".ci/commit_title.py", "pyproject.toml")


class Repository(Workplace):
    """A repository with the project's hooks, which run in the environment of the tests."""

    def __init__(self, folder: Path) -> None:
        skipped = {"SKIP": "mypy"}  # it reads the whole package, which is not here
        own = {"UV_NO_SYNC": "1", "UV_PROJECT_ENVIRONMENT": sys.prefix}
        cache = {"PRE_COMMIT_HOME": str(folder / "pre-commit")}
        super().__init__(folder, "a contributor", "VIRTUAL_ENV", **skipped, **own, **cache)
        self.run("git", "init", "--quiet")
        for name in CONFIGURATION:
            copy = folder / name
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, copy)

    def commit(self, title: str, *, code: int = 0) -> str:
        return self.run("git", "commit", "--allow-empty", "-m", title, code=code)

    def titles(self) -> list[str]:
        return self.run("git", "log", "--all", "--format=%s").splitlines()


@pytest.fixture(scope="module", name="repository")
def fixture_repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    repository = Repository(tmp_path_factory.mktemp("repository"))
    (block,) = (b for b in blocks() if b.test_file == Path(__file__))
    (command,) = block.commands()
    assert command == "uv run pre-commit install"
    repository.run(*command.split())
    return repository


def test_the_example_of_the_guide_is_accepted(repository: Repository) -> None:
    title = "plan: rank candidates once per load"
    assert f'"{title}"' in " ".join(PAGES["CONTRIBUTING.md"].split())
    repository.commit(title)
    assert repository.titles()[0] == title


@pytest.mark.parametrize(
    ("title", "reason"),
    [
        (f"plan: {'x' * 67}", "it has 73 characters: shorten it to 72"),
        ("plan: rank candidates.", "it ends with a period: remove the period"),
        ("Rank candidates", "it does not begin with an area"),
        ("plan: ranked candidates", '"ranked" is not an imperative'),
    ],
)
def test_a_title_in_another_form_is_refused(
    repository: Repository, title: str, reason: str
) -> None:
    assert reason in repository.commit(title, code=1)
    assert title not in repository.titles()


@pytest.mark.parametrize(
    "title", [f"plan: {'x' * 66}", "up, status --watch: bring back the order", "Merge branch 'a'"]
)
def test_a_title_in_the_form_is_accepted(repository: Repository, title: str) -> None:
    repository.commit(title)
    assert repository.titles()[0] == title


def test_code_that_ruff_would_format_is_refused(repository: Repository) -> None:
    (repository.folder / "code.py").write_text("x = {  }\n")
    repository.run("git", "add", "code.py")
    output = repository.commit("plan: add code", code=1)
    assert re.search(r"^ruff format\.+Failed$", output, re.MULTILINE), output
    repository.run("git", "rm", "--quiet", "--force", "code.py")
