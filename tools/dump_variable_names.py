"""Write the names of the variables that Dynamo, the engines and huggingface_hub read, as JSON.

    uv run python tools/dump_variable_names.py FOLDER > variable_names.json

FOLDER has one folder per unpacked wheel: every ai-dynamo, ai-dynamo-runtime, vllm and sglang,
huggingface_hub and transformers. None of their code runs. value_history.json has the others.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.engines.flags import load

PREFIXES = ("DYN_", "HF_", "VLLM_", "SGLANG_", "TRTLLM_", "TLLM_")
NAME = re.compile(rf"\b(?:{'|'.join(PREFIXES)})[A-Z0-9_]*[A-Z0-9]\b")
# A binary has its texts one after the other.
IN_BINARY = re.compile(rb"DYN_(?:(?!DYN_|HF_|OTEL_|NATS_)[A-Z0-9_]){2,48}")
# The sources of TensorRT-LLM are not on PyPI: its documented ones (disagg-serving.md).
TENSORRT_LLM = (
    "TLLM_ALLOW_LONG_MAX_MODEL_LEN", "TLLM_LOG_LEVEL",
    "TRTLLM_DISABLE_KV_CACHE_TRANSFER_OVERLAP", "TRTLLM_ENABLE_KVCACHE_RECEIVE_PARALLEL",
    "TRTLLM_ENABLE_PDL", "TRTLLM_FORCE_XQA", "TRTLLM_KVCACHE_SEND_MAX_CONCURRENCY_NUM",
    "TRTLLM_KVCACHE_TIME_OUTPUT_PATH", "TRTLLM_KVCACHE_TRANSFER_BUFFER_SIZE",
    "TRTLLM_KVCACHE_TRANSFER_USE_ASYNC_BUFFER", "TRTLLM_NIXL_KVCACHE_BACKEND",
    "TRTLLM_PARALLEL_CACHE_SEND", "TRTLLM_SERVER_DISABLE_GC",
    "TRTLLM_REQUEST_KV_CACHE_CONCURRENT", "TRTLLM_TRY_ZCOPY_FOR_KVCACHE_TRANSFER",
    "TRTLLM_USE_MPI_KVCACHE", "TRTLLM_USE_NIXL_KVCACHE", "TRTLLM_USE_UCX_KVCACHE",
    "TRTLLM_WORKER_DISABLE_GC",
)  # fmt: skip


def main(folder: Path) -> None:
    written = {
        name
        for path in folder.glob("*/**/*.py")
        for name in NAME.findall(path.read_text("utf-8", errors="ignore"))
    }
    binary = {
        name.decode()
        for path in folder.glob("*/**/*.so")
        for name in IN_BINARY.findall(path.read_bytes())
    }
    names = {*written, *TENSORRT_LLM, *_complete(binary, {*written, *binary})}
    engines = (load("value_history.json")[engine] for engine in ("vllm", "sglang"))
    left = sorted(names - {name for table in engines for name in table["variables"]["named"]})
    rows = {prefix: [n for n in left if n.startswith(prefix)] for prefix in PREFIXES}
    rows = {"made_by": ["tools/dump_variable_names.py"], **rows}
    print(json.dumps(rows, separators=(",", ":")).replace('],"', '],\n"'))


def _complete(names: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    """Without those that end in the first letters of the text that follows in the binary."""
    shorter = set(known)
    for name in names:
        is_longer = any(name[:-cut] in shorter for cut in range(1, 3))
        if not is_longer and not name.endswith("_"):
            yield name


if __name__ == "__main__":
    main(Path(sys.argv[1]))
