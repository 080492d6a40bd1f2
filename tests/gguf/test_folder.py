"""Model folders made from GGUF files: small ones that the test writes, and the packaged one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from gguf import GGUFWriter
from penstock.environments import environments_root
from penstock.environments.packaged_models import SMOLLM2, packaged_model
from penstock.errors import InputError
from penstock.gguf import folder_of, write_folder
from penstock.gguf.folder import PRE_TOKENIZERS
from penstock.llamacpp.token_text import byte_alphabet
from penstock.models import read_model

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
LETTERS = sorted(byte_alphabet(), key=byte_alphabet().__getitem__)  # token id = byte
WORDS = ["he", "hel", "lo"]
SPECIAL = ["<|start|>", "<|end|>", "<|tool|>"]
START, END = 259, 260
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def write_gguf(
    file: Path,
    *,
    kind: str = "gpt2",
    pre: str = "gpt-2",
    heads_kv: int | list[int] = 2,
    more: Callable[[GGUFWriter], Any] = bool,
) -> Path:
    writer = GGUFWriter(file, "gpt-oss")
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_block_count(3)
    writer.add_head_count(4)
    writer.add_head_count_kv(heads_kv)
    writer.add_key_length(32)
    writer.add_expert_count(8)
    writer.add_sliding_window(128)
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    tokens = [*LETTERS, *WORDS, *SPECIAL]
    types = [NORMAL] * 259 + [CONTROL, CONTROL, USER_DEFINED]
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(["h e", "he l", "l o"])
    writer.add_bos_token_id(START)
    writer.add_eos_token_id(END)
    writer.add_chat_template(TEMPLATE)
    more(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf")


def read(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / name).read_text("utf-8"))
    return content


def test_the_folder_has_the_models_sizes_and_its_template(file: Path, tmp_path: Path) -> None:
    folder = folder_of(file, tmp_path / "cache")
    config = read(folder, "config.json")
    assert config["model_type"] == "gpt_oss"
    assert (config["hidden_size"], config["head_dim"], config["vocab_size"]) == (64, 32, 262)
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (4, 2)
    assert (config["num_local_experts"], config["sliding_window"]) == (8, 128)
    assert "num_experts_per_tok" not in config, "the file does not say"
    assert read(folder, "generation_config.json") == {"bos_token_id": START, "eos_token_id": [END]}
    named = read(folder, "tokenizer_config.json")
    assert (named["bos_token"], named["eos_token"]) == ("<|start|>", "<|end|>")
    assert (named["chat_template"], named["model_max_length"]) == (TEMPLATE, 512)
    shape = read_model(folder)
    assert shape is not None
    assert shape.kv_bytes_per_token() == 3 * 2 * 2 * 32 * 2  # layers, K and V, heads, size, f16


def test_the_tokenizer_merges_and_keeps_special_tokens_whole(file: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder_of(file, tmp_path / "cache") / "tokenizer.json"))
    text = "hello<|end|><|tool|>hé"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert ids == [257, 258, END, 261, ord("h"), *"é".encode()]
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert tokenizer.decode(ids) == "hello<|tool|>hé", "a user-defined token is not special"


def test_all_end_tokens_end_the_output_and_the_first_layer_counts(tmp_path: Path) -> None:
    def more(writer: GGUFWriter) -> None:
        writer.add_eot_token_id(START)
        writer.add_eom_token_id(END)

    file = write_gguf(tmp_path / "a.gguf", heads_kv=[1, 2, 2], more=more)
    folder = folder_of(file, tmp_path / "cache")
    assert read(folder, "generation_config.json")["eos_token_id"] == [END, START]
    assert read(folder, "config.json")["num_key_value_heads"] == 1


@pytest.mark.parametrize(("kind", "pre"), [("llama", "default"), ("gpt2", "deepseek-r1")])
def test_an_unsupported_tokenizer_is_refused_with_a_remedy(
    tmp_path: Path, kind: str, pre: str
) -> None:
    model = write_gguf(tmp_path / "a.gguf", kind=kind, pre=pre)
    with pytest.raises(InputError) as caught:
        folder_of(model, tmp_path / "cache")
    (problem,) = caught.value.problems
    assert problem.file == str(model)
    assert f"({kind}, {pre})" in problem.message
    assert "tokenizer.json from Hugging Face" in problem.fix
    assert not list((tmp_path / "cache").glob("*")), "nothing is left behind"


def test_the_models_own_tokenizer_file_is_used_instead(tmp_path: Path, file: Path) -> None:
    packaged = folder_of(file, tmp_path / "cache") / "tokenizer.json"
    (tmp_path / "other").mkdir()
    model = write_gguf(tmp_path / "other" / "a.gguf", kind="llama")
    model.with_name("tokenizer.json").write_bytes(packaged.read_bytes())
    folder = folder_of(model, tmp_path / "cache")
    assert (folder / "tokenizer.json").read_bytes() == packaged.read_bytes()


@pytest.mark.parametrize("kept", [0, 5, 24, 60, 2000])
def test_a_damaged_or_foreign_file_is_refused(file: Path, tmp_path: Path, kept: int) -> None:
    file.write_bytes(file.read_bytes()[:kept] or b"PK\x03\x04 not a model")
    message = "is a damaged GGUF file" if kept else "is not a GGUF file"
    with pytest.raises(InputError, match=message):
        folder_of(file, tmp_path / "cache")


def test_a_folder_is_written_once_and_again_when_the_file_changes(
    file: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    first = folder_of(file, cache)
    before = (first / "tokenizer.json").stat().st_mtime_ns
    assert folder_of(file, cache) == first
    assert (first / "tokenizer.json").stat().st_mtime_ns == before
    os.utime(file, ns=(1, 1))
    assert folder_of(file, cache) != first


def test_an_interrupted_write_leaves_no_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"

    def interrupted(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            folder_of(file, cache)
    assert list(cache.iterdir()) == []
    folder = folder_of(file, cache)
    write_folder(file, folder)  # a second writer
    assert [path.name for path in cache.iterdir()] == [folder.name]


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_every_pre_tokenizer_loses_no_character(name: str) -> None:
    splitter = PRE_TOKENIZERS[name]()
    alphabet = byte_alphabet()
    for text in (TEXTS[0], TEXTS[3], " \n\t x  y'll 1234"):
        parts = "".join(part for part, _ in splitter.pre_tokenize_str(text))
        assert bytes(alphabet[c] for c in parts).decode() == text


# None of these was used when the tokenizers were written.
TEXTS = [
    "Zażółć gęślą jaźń; 3.14159e-10 ≠ 2²",
    "def f(x: int) -> str:\n\treturn f'{x!r}'  # comment\r\n\r\n",
    "  leading and trailing   ",
    "東京タワーは333メートル。서울 날씨 맑음",
    "مرحبا بالعالم ١٢٣ שלום",
    "🇩🇪🇫🇷👍🏽 it's we'll I'D THEY'RE",
    "a\u0301e\u0308 \u200b\u00a0\u3000x",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "0000001234567890 1,000,000 v2.0-rc1",
    "\n\n\n   \n\t\t\n",
    "ÀÉÎÕÜ ǅǈ ʰʷ ⅷ ½ ①",
    "",
]
TOKENIZE = """
import json, sys, urllib.request, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel, params.warmup = sys.argv[1], 64, 1, False
params.hostnames, params.port = ["127.0.0.1"], 0
server = xllamacpp.Server(params)
for text in json.load(sys.stdin):
    body = json.dumps({"content": text, "parse_special": True, "add_special": False}).encode()
    request = urllib.request.Request(f"{server.listening_address}/tokenize", body)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    print(json.dumps(json.load(opener.open(request))["tokens"]), flush=True)
"""


@pytest.mark.needs("llamacpp")
def test_the_packaged_models_tokens_equal_those_of_llama_cpp(tmp_path: Path) -> None:
    file = packaged_model(SMOLLM2, "gguf")
    assert file is not None
    tokenizer = Tokenizer.from_file(str(folder_of(file, tmp_path) / "tokenizer.json"))
    site = next((environments_root() / "llamacpp").glob("lib/python*/site-packages"))
    done = subprocess.run(
        [sys.executable, "-c", TOKENIZE, str(file)],
        input=json.dumps(TEXTS),
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    expected = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(expected) == len(TEXTS)
    got = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    assert dict(zip(TEXTS, got, strict=True)) == dict(zip(TEXTS, expected, strict=True))
