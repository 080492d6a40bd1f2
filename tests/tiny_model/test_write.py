"""The tiny model is the same on every machine, and writing it overwrites nothing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from penstock.errors import InputError
from penstock.tiny_model import ARCHITECTURES, write

pytestmark = pytest.mark.slow

# What the reference tokens of the end-to-end tests were computed from.
SHA256 = {
    "gpt-oss": "330945abf5c59489e4658cd0d90590ddf70701aeec68b6b55f8b098fcd0fe1f2",
    "llama": "27f5fc4f1168af8fc9a28f1f13637f950fff61eaeb995c3b13b6abd65a4a8f56",
}


def _sha256(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_weights_are_the_same_on_every_machine(tmp_path: Path, architecture: str) -> None:
    assert write(tmp_path / "model", architecture)
    assert _sha256(tmp_path / "model") == SHA256[architecture]
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    assert set(tensors) == {tensor.name for tensor in ARCHITECTURES[architecture].tensors}
    vocabulary = json.loads((tmp_path / "model" / "tokenizer.json").read_text())["model"]["vocab"]
    assert config["vocab_size"] == len(vocabulary) == 4096


def test_weights_are_bfloat16_values_of_the_seed(tmp_path: Path) -> None:
    """So an engine has the same weights in float32 and bfloat16."""
    write(tmp_path / "model", seed=1)
    assert _sha256(tmp_path / "model") != SHA256["gpt-oss"]
    for name, tensor in load_file(tmp_path / "model" / "model.safetensors").items():
        assert (tensor.view("uint32") & 0xFFFF == 0).all(), name


def test_writing_again_does_nothing_and_another_model_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "model"
    assert write(folder)
    assert not write(folder)
    with pytest.raises(InputError, match="something else or an incomplete model is already there"):
        write(folder, seed=1)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="something else or an incomplete model is already there"):
        write(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    assert {p.name for p in tmp_path.iterdir()} == {"deep", "file"}
    (tmp_path / "empty").mkdir()
    assert write(tmp_path / "empty")


@pytest.mark.parametrize("damage", ["model.safetensors", "tokenizer.json", "config.json"])
def test_an_incomplete_model_is_an_error(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "model"
    write(folder)
    (folder / damage).unlink()
    with pytest.raises(InputError, match="incomplete model"):
        write(folder)
    write(tmp_path / "cut")
    with (tmp_path / "cut" / "model.safetensors").open("r+b") as weights:
        weights.truncate(100)
    with pytest.raises(InputError, match="incomplete model"):
        write(tmp_path / "cut")


def test_the_current_folder_and_a_linked_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert write(Path())
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert write(tmp_path / "link")
    with pytest.raises(InputError):
        write(Path("/"))
