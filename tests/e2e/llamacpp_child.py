"""Greedy tokens of llama.cpp itself; runs with the packages of the environment llamacpp.

`python llamacpp_child.py FILE.gguf < {"prompts": [[id, …], …], "tokens": N, "float32": bool}`
prints the tokens of each prompt as JSON. With ``float32`` attention is computed in float32, as
transformers does; llama.cpp's default is 16 bits.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from urllib.request import Request, urlopen

import xllamacpp

CONTEXT = 2048


def started(model: str, float32: bool) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_parallel, params.n_ctx = 1, CONTEXT
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib = 0
    params.swa_full = True
    params.warmup = False
    if float32:
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        disabled = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.flash_attn_type = disabled
    return xllamacpp.Server(params)


def completion(url: str, prompt: list[int], tokens: int) -> list[int]:
    body = {
        "prompt": prompt,
        "n_predict": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_tokens": True,
        "cache_prompt": False,
    }
    request = Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urlopen(request, timeout=120) as response:
        return list(json.load(response)["tokens"])


def main() -> None:
    asked = json.load(sys.stdin)
    server = started(sys.argv[1], asked["float32"])
    url = server.listening_address
    json.dump([completion(url, prompt, asked["tokens"]) for prompt in asked["prompts"]], sys.stdout)


if __name__ == "__main__":
    main()
