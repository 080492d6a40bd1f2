"""The step of `penstock tools env install clients` after its packages: openai-node with npm."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.environments.post_install import NODE_FOLDER, NODE_PACKAGE, install_node_client
from penstock.errors import MissingToolError


def _programs(folder: Path, npm: str) -> str:
    """A PATH with a `node`, and an `npm` that is the given shell script."""
    folder = folder / "bin"
    folder.mkdir()
    for name, script in (("npm", npm), ("node", "exit 0")):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


@pytest.mark.program
def test_npm_installs_the_pinned_package_into_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", _programs(tmp_path, 'echo "$@" > arguments'))
    install_node_client(tmp_path)
    arguments = (tmp_path / NODE_FOLDER / "arguments").read_text().split()
    assert arguments[0] == "install"
    assert arguments[-1] == NODE_PACKAGE
    assert "--ignore-scripts" in arguments
    assert str(tmp_path / NODE_FOLDER) in arguments


@pytest.mark.program
def test_a_failure_of_npm_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", _programs(tmp_path, "exit 3"))
    with pytest.raises(MissingToolError, match="exit code 3"):
        install_node_client(tmp_path)


def test_without_node_the_client_is_left_out_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    install_node_client(tmp_path)
    assert "openai-node is left out" in capsys.readouterr().err
    assert not (tmp_path / NODE_FOLDER).exists()
