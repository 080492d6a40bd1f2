"""Packaged models by id, installations that fail, and which Python an environment gets."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.environments import folder
from penstock.environments.install import find_environment, install, list_environments, remove
from penstock.environments.interpreter import (
    OWN_PYTHON,
    base_python,
    missing_python_fix,
    require_python,
)
from penstock.environments.packaged_models import (
    PACKAGED_MODELS,
    SMOLLM2,
    packaged_model,
    packaged_model_fix,
)
from penstock.environments.paths import STAMP
from penstock.environments.post_install import NEEDS, POST_INSTALL
from penstock.errors import MissingToolError
from penstock.local.machine import model_folder
from tests.support.command_line import penstock

OWN = "3.11"  # penstock's version


def test_the_list_is_json_too(root: Path) -> None:
    documents = json.loads(penstock("tools", "env", "list", "--json").stdout)
    assert [document["name"] for document in documents] == [one.name for one in list_environments()]
    assert {document["state"] for document in documents} == {"not installed"}
    assert documents[0]["path"] == str(root / documents[0]["name"])
    done = penstock("tools", "env", "remove", "sim", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "remove has no --json. Fix: Remove --json, or run `penstock tools env list --json`" in (
        done.stderr
    )
    done = penstock("tools", "env", "list", "sim")
    assert (done.returncode, done.stdout) == (2, "")
    assert "unexpected argument 'sim'. Fix: Run `penstock tools env` without it." in done.stderr


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of environments, and an empty Hugging Face cache."""
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path / "environments"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "environments"


def _write_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}")
    return folder


def test_a_packaged_model_is_found_only_in_a_complete_environment(root: Path) -> None:
    folder = _write_model(root / "smollm2" / "model")
    assert packaged_model(SMOLLM2, "safetensors") is None
    (root / "smollm2" / STAMP).touch()
    assert packaged_model(SMOLLM2, "safetensors") == folder
    assert packaged_model(SMOLLM2, "gguf") is None
    assert packaged_model("acme/model", "safetensors") is None


def test_the_fix_names_the_environment_of_the_form() -> None:
    assert packaged_model_fix(SMOLLM2, "safetensors") == "Run `penstock tools env install smollm2`."
    assert packaged_model_fix(SMOLLM2, "gguf") == "Run `penstock tools env install llamacpp`."
    assert packaged_model_fix("acme/model", "gguf") is None


def test_a_folder_of_the_user_comes_before_the_packaged_model_and_this_before_the_cache(
    root: Path, tmp_path: Path
) -> None:
    snapshots = tmp_path / "hub" / f"models--{SMOLLM2.replace('/', '--')}" / "snapshots"
    cached = _write_model(snapshots / "1")
    assert model_folder(SMOLLM2) == cached
    packaged = _write_model(root / "smollm2" / "model")
    (root / "smollm2" / STAMP).touch()
    assert model_folder(SMOLLM2) == packaged
    folder = _write_model(tmp_path / SMOLLM2)
    assert model_folder(SMOLLM2) == folder


def test_the_tables_name_known_environments() -> None:
    names = {environment.name for environment in list_environments()}
    assert {*POST_INSTALL, *NEEDS, *NEEDS.values()} <= names
    assert {m.environment for m in PACKAGED_MODELS if m.form == "safetensors"} <= names


@pytest.mark.program
def test_an_installation_whose_last_step_fails_leaves_nothing(root: Path, tmp_path: Path) -> None:
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    (root / "vllm-cpu").mkdir(parents=True)
    (root / "vllm-cpu" / STAMP).touch()
    without_packages = tmp_path / "smollm2.txt"
    without_packages.write_text("# No package, so that there is nothing to convert.\n")
    environment = replace(find_environment("smollm2"), requirements=without_packages)
    with pytest.raises(MissingToolError, match=r"cannot be converted to safetensors: .*gguf"):
        install(environment, quiet=True)
    assert [folder.name for folder in root.iterdir()] == ["vllm-cpu"]


# Makes the folder of an environment and installs nothing.
MAKES_FOLDER = """if [ "$1" = venv ]; then
    for path; do :; done
    mkdir -p "$path/lib/python3/site-packages" && touch "$path/pyvenv.cfg"
fi
"""


def fake_uv(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program `uv` before any other in PATH."""
    uv = folder / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f"#!/bin/sh\n{script}\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(uv.parent), prepend=":")


@pytest.mark.program
def test_an_environment_that_is_needed_is_installed_first_and_announced(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_uv(tmp_path, monkeypatch, MAKES_FOLDER)
    with pytest.raises(MissingToolError, match="cannot be converted"):  # there is no package
        install(find_environment("smollm2"))
    assert "smollm2 needs vllm-cpu: installing it first" in capsys.readouterr().err
    assert [folder.name for folder in root.iterdir() if (folder / STAMP).exists()] == ["vllm-cpu"]
    with pytest.raises(MissingToolError, match="cannot be converted"):
        install(find_environment("smollm2"))
    error = capsys.readouterr().err
    assert "needs vllm-cpu" not in error  # it is there now
    assert "removing the unfinished environment smollm2…" in error


@pytest.mark.program
def test_sglang_check_gets_the_modules_that_let_torchvision_load_on_a_cpu(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_uv(tmp_path, monkeypatch, MAKES_FOLDER)
    install(find_environment("sglang-check"), quiet=True)
    site = root / "sglang-check" / "lib" / "python3" / "site-packages"
    assert {"penstock.pth", "penstock_torchvision.py"} <= {file.name for file in site.iterdir()}


def test_a_folder_with_something_else_stays_unchanged(root: Path) -> None:
    (root / "vllm-cpu").mkdir(parents=True)
    (root / "vllm-cpu" / STAMP).touch()
    (root / "smollm2").mkdir()
    (root / "smollm2" / "mine.txt").touch()
    with pytest.raises(MissingToolError, match="was left unchanged"):
        install(find_environment("smollm2"), quiet=True)
    assert (root / "smollm2" / "mine.txt").exists()


def test_an_environment_that_only_an_older_version_knows_can_be_removed(root: Path) -> None:
    folder = root / "llamacpp-nixl"
    folder.mkdir(parents=True)
    (folder / "pyvenv.cfg").touch()
    done = penstock("tools", "env", "remove", "llamacpp-nixl")
    assert (done.returncode, "no environment is called" in done.stderr) == (8, True)
    (folder / STAMP).touch()
    assert penstock("tools", "env", "remove", "llamacpp-nixl").stdout == "removed llamacpp-nixl\n"
    assert not folder.exists()


def test_what_an_interrupted_installation_left_is_removed_and_installed_over(root: Path) -> None:
    environment = find_environment("sim")
    folder.begin(environment.path)
    (environment.path / "bin").mkdir()  # killed before pyvenv.cfg
    assert remove(environment) == "removed sim"
    assert list(root.iterdir()) == []


def test_what_an_interrupted_removal_left_is_removed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = find_environment("sim")
    folder.begin(environment.path)
    (environment.path / "pyvenv.cfg").touch()

    def interrupted(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            remove(environment)
    assert not environment.path.exists()  # renamed, so that `install` can begin at once
    assert remove(environment) == "removed sim"
    assert list(root.iterdir()) == []
    assert remove(environment) == "sim was not installed"


def test_a_folder_that_replaced_an_unfinished_environment_stays_unchanged(root: Path) -> None:
    environment = find_environment("sim")
    folder.begin(environment.path)
    environment.path.rename(root / "aside")
    (environment.path / "bin").mkdir(parents=True)
    with pytest.raises(MissingToolError, match="was left unchanged"):
        remove(environment)
    assert (environment.path / "bin").exists()


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


@pytest.mark.parametrize("name", ["agentperf", "trtllm"])
def test_without_uv_penstocks_python_must_fit(name: str) -> None:
    require_python(name, "3.12")
    text = rf"{name}: it needs Python 3\.12, and penstock runs on 3\.11\."
    with pytest.raises(MissingToolError, match=text):
        require_python(name, "3.11")


@pytest.mark.program
@pytest.mark.skipif(OWN_PYTHON == "3.12", reason="agentperf gets penstock's own Python")
def test_if_uv_finds_no_python_the_fix_installs_one(
    pyenv: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_uv(tmp_path, monkeypatch, "exit 2")
    (root / "harmony").mkdir(parents=True)  # which agentperf needs
    (root / "harmony" / "installed.txt").write_text("")
    with pytest.raises(MissingToolError, match=r"uv venv failed .* Fix: Install Python 3\.12"):
        install(find_environment("agentperf"), quiet=True)
    assert not (root / "agentperf").exists()
