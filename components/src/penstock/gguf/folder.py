"""Write config.json, generation_config.json and the tokenizer files of a GGUF file.

They contain no weights: Dynamo's frontend needs the tokenizer and the chat template, and
`penstock verify` the sizes. `PRE_TOKENIZERS` has the expressions of each model family's own
tokenizer.json; the worker compares the result with llama.cpp's tokenizer before it serves.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from penstock.errors import InputError
from penstock.files import write_file

MAGIC = b"GGUF"
FORMAT = 2  # of the folder; another number makes folders in a cache outdated
CONTROL, USER_DEFINED = 3, 4  # token types of llama.cpp
END_TOKENS = ("eos_token_id", "eot_token_id", "eom_token_id")
# A GGUF file of gpt-oss names one end token; its generation_config.json and llama.cpp have three.
END_TEXTS = {"gpt-oss": ("<|return|>", "<|endoftext|>", "<|call|>")}
MODEL_TYPES = {"gpt-oss": "gpt_oss"}
TOKENIZER = "tokenizer.json"

Metadata = Mapping[str, Any]


def folder_of(file: Path, cache: Path) -> Path:
    """The model folder of a GGUF file, written below ``cache`` once per file.

    InputError when the file is not a GGUF file, or has a tokenizer that is not supported.
    """
    stat = file.stat()
    identity = f"{FORMAT}:{file.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"
    folder = cache / f"{file.stem}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    if not (folder / TOKENIZER).exists():
        write_folder(file, folder)
    return folder


def write_folder(file: Path, folder: Path) -> None:
    """Write the folder completely, or not at all; InputError as for `folder_of`."""
    metadata = read_metadata(file)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        draft = Path(temporary) / "model"
        draft.mkdir()
        beside = file.with_name(TOKENIZER)
        if beside.exists():
            shutil.copy(beside, draft / TOKENIZER)
        else:
            tokenizer(metadata, file).save(str(draft / TOKENIZER))
        for name, content in _files(metadata).items():
            write_file(draft / name, json.dumps(content, indent=1))
        _rename(draft, folder)


def _rename(draft: Path, folder: Path) -> None:
    try:
        draft.rename(folder)
    except OSError:
        if not (folder / TOKENIZER).exists():  # else another worker was faster
            raise


def read_metadata(file: Path) -> Metadata:
    """The key-value pairs of a GGUF file; InputError when it is not a GGUF file."""
    from gguf import GGUFReader

    with file.open("rb") as stream:
        if stream.read(4) != MAGIC:
            raise _problem(file, "is not a GGUF file", "Set `model.path` to a GGUF file.")
    try:
        reader = GGUFReader(file)
    except (ValueError, IndexError, KeyError) as error:
        raise _problem(
            file, f"is a damaged GGUF file ({error})", "Download or copy it again."
        ) from None
    return {name: field.contents() for name, field in reader.fields.items()}


def tokenizer(metadata: Metadata, file: Path) -> Tokenizer:
    """The tokenizer that the metadata describe."""
    kind = metadata.get("tokenizer.ggml.model")
    pre = metadata.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or pre not in PRE_TOKENIZERS:
        raise _problem(
            file,
            f"has a tokenizer that penstock cannot build ({kind}, {pre})",
            f"Copy the model's {TOKENIZER} from Hugging Face into the folder of the GGUF file.",
        )
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    types = metadata["tokenizer.ggml.token_type"]
    built = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    built.pre_tokenizer = PRE_TOKENIZERS[pre]()
    built.decoder = decoders.ByteLevel()
    built.add_tokens(
        [
            AddedToken(token, normalized=False, special=kind == CONTROL)
            for token, kind in zip(tokens, types, strict=True)
            if kind in (CONTROL, USER_DEFINED)
        ]
    )
    return built


def _files(metadata: Metadata) -> dict[str, Any]:
    tokens = metadata["tokenizer.ggml.tokens"]
    ids = {name: metadata.get(f"tokenizer.ggml.{name}") for name in END_TOKENS}
    end_texts = END_TEXTS.get(str(metadata["general.architecture"]), ())
    named = [tokens.index(text) for text in end_texts if text in tokens]
    ends = list(dict.fromkeys(i for i in (*ids.values(), *named) if i is not None))
    start = metadata.get("tokenizer.ggml.bos_token_id")
    names = {
        "bos_token": None if start is None else tokens[start],
        "eos_token": None if ids["eos_token_id"] is None else tokens[ids["eos_token_id"]],
        "chat_template": metadata.get("tokenizer.chat_template"),
    }
    return {
        "config.json": _config(metadata) | {"bos_token_id": start, "eos_token_id": ends},
        "generation_config.json": {"bos_token_id": start, "eos_token_id": ends},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_bos_token": bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
            "model_max_length": _size(metadata, "context_length"),
            **{name: text for name, text in names.items() if text is not None},
        },
    }


def _config(metadata: Metadata) -> dict[str, Any]:
    """The shape of the model; llama.cpp keeps KV in 16 bits per value."""
    architecture = str(metadata["general.architecture"])
    heads = _size(metadata, "attention.head_count")
    hidden = _size(metadata, "embedding_length")
    config = {
        "model_type": MODEL_TYPES.get(architecture, architecture.replace("-", "_")),
        "architectures": [architecture],
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "hidden_size": hidden,
        "intermediate_size": _size(metadata, "feed_forward_length"),
        "num_hidden_layers": _size(metadata, "block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": _size(metadata, "attention.head_count_kv") or heads,
        "head_dim": _size(metadata, "attention.key_length") or (hidden // heads if heads else None),
        "max_position_embeddings": _size(metadata, "context_length"),
        "num_local_experts": _size(metadata, "expert_count") or None,
        "num_experts_per_tok": _size(metadata, "expert_used_count") or None,
        "sliding_window": _size(metadata, "attention.sliding_window") or None,
        "dtype": "float16",
    }
    return {key: value for key, value in config.items() if value is not None}


def _size(metadata: Metadata, name: str) -> int:
    """A number of the architecture; of a list with one number per layer, the first."""
    value = metadata.get(f"{metadata['general.architecture']}.{name}", 0)
    return int(value[0] if isinstance(value, list) else value)


def _problem(file: Path, message: str, fix: str) -> InputError:
    return InputError(message, file=str(file), fix=fix)


SUFFIXES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
START = r"[^\r\n\p{L}\p{N}]?"
O200K = "|".join(
    [
        f"{START}{UPPER}*{LOWER}+{SUFFIXES}?",
        f"{START}{UPPER}+{LOWER}*{SUFFIXES}?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        REST,
    ]
)
WORDS = rf"{SUFFIXES}|{START}\p{{L}}+|%s| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{REST}"


def _gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _smollm() -> Any:
    # The model's own file says `Digits`, which Dynamo's fastokens does not read.
    digits = pre_tokenizers.Split(Regex(r"\p{N}"), behavior="isolated")
    return pre_tokenizers.Sequence([digits, _gpt2()])


def _split(expression: str) -> Callable[[], Any]:
    def make() -> Any:
        split = pre_tokenizers.Split(Regex(expression), behavior="isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([split, level])

    return make


# By GGUF's `tokenizer.ggml.pre`: how a vocabulary of byte-level BPE splits text.
PRE_TOKENIZERS: dict[str, Callable[[], Any]] = {
    "default": _gpt2,
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "gpt-4o": _split(O200K),
    "gpt-oss": _split(O200K),
    "llama-bpe": _split(WORDS % r"\p{N}{1,3}"),
    "llama3": _split(WORDS % r"\p{N}{1,3}"),
    "qwen2": _split(WORDS % r"\p{N}"),
}
