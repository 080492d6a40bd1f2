"""Which Python an environment gets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.environments.install import find_environment, install
from penstock.environments.interpreter import (
    OWN_PYTHON,
    base_python,
    missing_python_fix,
    require_python,
)
from penstock.errors import MissingToolError

OWN = "3.11"  # penstock's version


@pytest.fixture
def pyenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path / "pyenv" / "versions"


def test_an_environment_without_needs_gets_penstocks_python(pyenv: Path) -> None:
    assert base_python("harmony") == sys.executable
    assert missing_python_fix("harmony") == ""


def test_uv_finds_or_downloads_another_version(pyenv: Path) -> None:
    assert base_python("agentperf", OWN) == "3.12"
    assert "`uv python install 3.12`" in missing_python_fix("agentperf", OWN)


def test_a_version_of_pyenv_is_found_although_it_is_not_active(pyenv: Path) -> None:
    python = pyenv / "3.12.1" / "bin" / "python3.12"
    python.parent.mkdir(parents=True)
    python.write_text("")
    assert base_python("agentperf", OWN) == str(python)


def test_without_uv_penstocks_python_must_fit() -> None:
    require_python("agentperf", "3.12")
    with pytest.raises(MissingToolError, match=r"agentperf: it needs Python 3\.12, and penstock"):
        require_python("agentperf", "3.11")


@pytest.mark.program
@pytest.mark.skipif(OWN_PYTHON == "3.12", reason="agentperf gets penstock's own Python")
def test_if_uv_finds_no_python_the_fix_installs_one(
    pyenv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text("#!/bin/sh\nexit 2\n")
    uv.chmod(0o755)
    root = tmp_path / "environments"
    monkeypatch.setenv("PATH", str(uv.parent), prepend=":")
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(root))
    (root / "harmony").mkdir(parents=True)  # which agentperf needs
    (root / "harmony" / "installed.txt").write_text("")
    with pytest.raises(MissingToolError, match=r"uv venv failed .* Fix: Install Python 3\.12"):
        install(find_environment("agentperf"), quiet=True)
    assert not (root / "agentperf").exists()
