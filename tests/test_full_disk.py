"""A full disk: the error names the file that could not be written."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import InputError, StartError
from penstock.files import naming, write_atomically, write_file
from penstock.local.detach import _failed
from tests.support.command_line import ROOT, penstock

PACKAGE = ROOT / "components" / "src" / "penstock"
BARE = re.compile(r"\.write_(text|bytes)\(")
# Generators, which run from a checkout, and a child that another Python runs.
EXEMPT = {
    "environments/convert_child.py",
    "graph/generate.py",
    "llamacpp/options.py",
    "output_schemas/generate.py",
}


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_write_without_a_file_name_gets_one(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match=r"No space left on device: 'report\.html'"),
        naming(Path("report.html")),
    ):
        full()
    with pytest.raises(FileNotFoundError, match="none"):  # its own name stays
        write_file(tmp_path / "none" / "file", "")


@pytest.mark.parametrize("write", [write_file, write_atomically])
def test_dev_full_is_named(write: object) -> None:
    with pytest.raises(OSError, match="/dev/full"):
        write(Path("/dev/full"), "text")  # type: ignore[operator]


def test_a_full_state_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("penstock.local.state.os.getpid", full)  # what the lock file gets
    done = penstock("up", "dynamo_graphs/quickstart-simulated.yaml", "--port", "0")
    assert done.returncode == InputError.exit_code
    assert re.search(r"/state/quick\S+/lock cannot be written: No space left", done.stderr)


def test_a_detached_graph_that_could_not_write_its_log_says_so(tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    log.touch()
    with pytest.raises(StartError, match="ended with exit code 3 and an empty log"):
        _failed(3, tmp_path / "g.yaml", log)


def bare_writes() -> Iterator[str]:
    for file in PACKAGE.rglob("*.py"):
        name = file.relative_to(PACKAGE).as_posix()
        if name not in EXEMPT and name != "files.py" and BARE.search(file.read_text()):
            yield name


def test_the_package_writes_files_only_with_functions_that_name_them() -> None:
    assert list(bare_writes()) == []
