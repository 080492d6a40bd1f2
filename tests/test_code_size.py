"""Budgets: the code of each package may grow only by a decision, with its reason in the commit."""

from __future__ import annotations

import pytest

from tests.support.code_size import (
    GENERIC_NAMES,
    ROOT,
    SOURCE,
    FolderSize,
    folder_size,
    module_size,
    sizes_by_folder,
    small_modules_of_one_importer,
)

PACKAGE = ROOT / SOURCE / "penstock"
# Lines of code: 10 % more than when they were measured with `python -m tests.support.code_size`.
BUDGETS = {
    ".": 340,
    "bench": 6880,
    "capture": 1420,
    "checks": 7990,
    "cli": 6250,
    "cluster": 5200,
    "drill": 2580,
    "engines": 4070,
    "environments": 690,
    "gateway": 980,
    "gguf": 190,
    "graph": 4080,
    "hardware": 110,
    "live": 2280,
    "llamacpp": 1740,
    "local": 7780,
    "manifests": 5210,
    "memory": 340,
    "models": 680,
    "output_schemas": 50,
    "plan": 4000,
    "reports": 880,
    "serving": 1140,
    "simulate": 3590,
    "strict_yaml": 1470,
    "text": 250,
    "tiny_model": 360,
    "tokenizer": 10,
    "tracing": 1090,
    "tune": 610,
    "twin": 290,
    "upgrade": 630,
    "verify": 1420,
    "workload": 800,
}
FILES, TEST_LINES, SMALL_MODULES = 620, 84500, 25
MOST_VAGUE, MOST_GENERIC, COMMENTS_PER_100 = 0.005, 0.015, 3.0


@pytest.fixture(scope="module")
def package() -> FolderSize:
    return folder_size([module_size(path) for path in PACKAGE.rglob("*.py")])


def test_each_package_keeps_its_budget_of_code() -> None:
    sizes = {name: size.code for name, size in sizes_by_folder(PACKAGE).items()}
    assert {name: code for name, code in sizes.items() if code > BUDGETS.get(name, 0)} == {}
    assert BUDGETS.keys() == sizes.keys()


def test_the_package_and_the_tests_keep_their_budgets(package: FolderSize) -> None:
    assert package.files <= FILES
    lines = [len(path.read_text("utf-8").splitlines()) for path in (ROOT / "tests").rglob("*.py")]
    assert sum(lines) <= TEST_LINES


def test_names_say_what_the_value_is(package: FolderSize) -> None:
    assert package.vague <= MOST_VAGUE
    total = package.names.total()
    shares = {name: package.names[name] / total for name in GENERIC_NAMES}
    assert {name: share for name, share in shares.items() if share > MOST_GENERIC} == {}


def test_comments_say_why_where_a_reader_asks(package: FolderSize) -> None:
    assert package.comments_per_100 >= COMMENTS_PER_100


def test_a_small_module_with_one_importer_belongs_into_it() -> None:
    small = small_modules_of_one_importer(ROOT / SOURCE)
    assert len(small) <= SMALL_MODULES, small
