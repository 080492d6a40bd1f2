"""The GGUF file of the tiny model is the same on every machine, and has all that is needed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from gguf import GGUFReader
from penstock.cli.main import main
from penstock.errors import InputError
from penstock.gguf import write_folder
from penstock.tiny_model import ARCHITECTURES, write_gguf
from penstock.tiny_model.write import random_weights
from penstock.tokenizer import FOLDER as TOKENIZER

pytestmark = pytest.mark.slow

# What the recorded tokens of the end-to-end tests belong to.
SHA256 = {
    "gpt-oss": "d7246b89756544d9ce1ea694cce7b19257c8e340bccb8ccb745c8b61c42f2215",
    "llama": "5867f1687fb06e6e1e6dd57b651b0746c3ba816949a12a052382521fb0c91cef",
}
TEXT = "Hello  World\n\n\tI'll pay 12,345.67 € — 漢字 😀! x_1=foo(Bar);<|end|><|start|>user"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_file_is_the_same_everywhere_and_has_every_weight(
    tmp_path: Path, architecture: str
) -> None:
    file = tmp_path / "model.gguf"
    assert write_gguf(file, architecture)
    assert hashlib.sha256(file.read_bytes()).hexdigest() == SHA256[architecture]
    stored = {t.name: np.array(t.data) for t in GGUFReader(file).tensors}
    weights = random_weights(ARCHITECTURES[architecture], 0)
    assert sum(a.size for a in stored.values()) == sum(a.size for a in weights.values())
    total = sum(float(a.sum(dtype=np.float64)) for a in weights.values())
    assert sum(float(a.sum(dtype=np.float64)) for a in stored.values()) == pytest.approx(total)
    np.testing.assert_array_equal(stored["output.weight"], weights["lm_head.weight"])
    if architecture == "gpt-oss":
        both = weights["model.layers.1.mlp.experts.gate_up_proj"]
        np.testing.assert_array_equal(stored["blk.1.ffn_up_exps.weight"][3, 7], both[3, :, 15])


def test_its_model_folder_has_the_packaged_tokenizer_and_the_shape(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf")
    write_folder(tmp_path / "model.gguf", tmp_path / "folder")
    written, packaged = (
        Tokenizer.from_file(str(folder / "tokenizer.json"))
        for folder in (tmp_path / "folder", TOKENIZER)
    )
    assert written.encode(TEXT).ids == packaged.encode(TEXT).ids
    assert written.decode(packaged.encode(TEXT).ids, skip_special_tokens=False) == TEXT
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    expected = ARCHITECTURES["gpt-oss"].config
    same = {key for key in config if config[key] == expected.get(key)}
    assert set(config) - same == {"architectures", "dtype", "eos_token_id"}
    assert config["eos_token_id"] == [1, 0, 7]  # <|return|>, <|endoftext|>, <|call|>
    names = json.loads((tmp_path / "folder" / "tokenizer_config.json").read_text())
    template = json.loads((TOKENIZER / "tokenizer_config.json").read_text())["chat_template"]
    assert names["chat_template"] == template


def test_writing_again_does_nothing_and_another_model_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "model.gguf"
    assert write_gguf(file)
    assert not write_gguf(file)
    with pytest.raises(InputError, match="something else or an incomplete model is already there"):
        write_gguf(file, seed=1)
    assert not write_gguf(file)
    with pytest.raises(InputError, match="cannot be written"):
        write_gguf(tmp_path / "deep")
    assert [path.name for path in file.parent.iterdir()] == ["model.gguf"]


def test_the_command_writes_either_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "model.gguf", tmp_path / "folder"
    assert main(["tools", "tiny-model", str(file), "--format", "gguf", "--arch", "llama"]) == 0
    assert main(["tools", "tiny-model", str(folder), "--arch", "llama"]) == 0
    assert main(["tools", "tiny-model", str(file), "--format", "gguf", "--arch", "llama"]) == 0
    assert file.read_bytes()[:4] == b"GGUF"
    assert (folder / "model.safetensors").is_file()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{file}: llama, seed 0"
    assert lines[2] == f"{file}: llama, seed 0 (already exists)"
