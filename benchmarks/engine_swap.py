"""Replaces an engine by another one with the same model under load, and a model by another one.

    python benchmarks/engine_swap.py [--short | --table] [CASE…]

SmolLM2-135M-Instruct on llama.cpp and on vLLM on the CPU; gpt-oss on mockers. With copies of the
requests first, and without. The requests share three prefixes of about 200 tokens. Writes
results/engine_swap.json: the 90th percentile of the clients' TTFT in the first minute after all
requests went to the new release, and in the minute after that.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from report import read_cases, write_cases
from shifts import PROMOTED, Load, Releases, Response, behind_gateway, shift

NAME = "engine_swap"
PER_S, PREFIXES, PREFIX_WORDS, TOKENS = 0.5, 3, 150, 8
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
WORDS = ["river", "bridge", "stone", "water", "north", "light", "garden", "winter", "paper"]
SMOLLM2 = f"model: {{id: {MODEL}, context_length: 2048}}\nworker: {{replicas: 1}}\n"
GPT_OSS = "worker: {replicas: 2}\nmodel: {served_name: openai/gpt-oss-20b, context_length: 2048, "
RELEASES = {
    "llama.cpp": SMOLLM2 + "engine: {kind: llamacpp, config: {n_parallel: 4}}\n",
    "vLLM": SMOLLM2
    + "engine: {kind: vllm, device: cpu, image: vllm-cpu:1.6.1, config: {dtype: float32, "
    "block-size: 32, max-num-seqs: 8, enforce-eager: true, kv-cache-memory-bytes: 805306368}}\n",
    "20b": GPT_OSS + "id: openai/gpt-oss-20b}\nengine: {kind: mocker}\n",
    "120b": GPT_OSS + "id: openai/gpt-oss-120b}\n"
    "engine: {kind: mocker, config: {engine: {speedup_ratio: 0.5}}}\n",
}
MINUTE_S = 60.0
CASES = {
    f"{old} to {new}, {copies}": (old, new, percent)
    for old, new in (("llama.cpp", "vLLM"), ("vLLM", "llama.cpp"), ("20b", "120b"))
    for copies, percent in (("copies first", 100), ("no copies", 0))
}


def prefix(number: int) -> str:
    words = random.Random(number).choices(WORDS, k=PREFIX_WORDS)
    return " ".join(words)


def request(model: str) -> dict[str, Any]:
    system = {"role": "system", "content": prefix(random.randrange(PREFIXES))}
    user = {"role": "user", "content": f"Which word is at place {random.randrange(10_000)}?"}
    return {"model": model, "max_tokens": TOKENS, "stream": True, "messages": [system, user]}


def measure(case: str, minute_s: float) -> dict[str, Any]:
    old, new, percent = CASES[case]
    with tempfile.TemporaryDirectory(prefix="swap-") as folder:
        texts = {"old": RELEASES[old], "new": RELEASES[new]}
        model = MODEL if MODEL in texts["old"] else "openai/gpt-oss-20b"
        with behind_gateway(Path(folder), texts) as releases:
            return swap(releases, partial(request, model), percent, minute_s)


def swap(
    releases: Releases, body: Callable[[], dict[str, Any]], percent: int, minute_s: float
) -> dict[str, Any]:
    load = Load(releases.gateway.url, body, PER_S)
    moved: list[float] = []

    def watch() -> None:
        log = releases.gateway.log
        while not moved:
            if "applied: old 0%, new 100%\n" in log.read_text():
                moved.append(time.monotonic())
            time.sleep(0.1)

    threading.Thread(target=watch, daemon=True).start()
    # The new engine may be slower: here, only the losses and its own TTFT count.
    options = ["--steps", "100", "--step-s", str(2 * minute_s), "--step-requests", "20"]
    options += ["--copies", str(percent), "--slower", "100"]
    figures = shift(releases, PROMOTED, options, load)
    if not moved or not figures["is_correct"]:
        raise RuntimeError(f"the new release was not promoted: {figures}")
    (moved_s,) = moved
    first = _between(load.responses, moved_s, moved_s + minute_s)
    steady = _between(load.responses, moved_s + minute_s, moved_s + 2 * minute_s)
    return figures | {
        "first_minute_ttft_p90_s": p90(first),
        "steady_ttft_p90_s": p90(steady),
        "ratio": round(p90(first) / p90(steady), 2),
        "requests_of_both_minutes": [len(first), len(steady)],
    }


def _between(responses: Sequence[Response], start_s: float, end_s: float) -> list[float]:
    return [r.ttft_s for r in responses if start_s <= r.began_s < end_s]


def p90(seconds: Sequence[float]) -> float:
    return round(float(np.quantile(seconds, 0.9)), 4)


def table(cases: dict[str, Any]) -> str:
    return "\n".join(
        f"| {name} | {sum(case['clients'].values())} | "
        f"{sum(n for status, n in case['clients'].items() if status != '200')} | "
        f"{case['first_minute_ttft_p90_s']:.2f} s | {case['steady_ttft_p90_s']:.2f} s | "
        f"{case['ratio']:.2f} |"
        for name, case in cases.items()
    )


def main() -> None:
    options, saved = read_cases(
        NAME, "swap engines under load", short="steps of 15 s, not saved", page="docs/gateway.md"
    )
    if options.table:
        print(table(saved))
        return
    for name in options.cases or CASES:
        if options.short:
            print(name, json.dumps(measure(name, 15.0), indent=1), flush=True)
        elif name not in saved:
            saved[name] = measure(name, MINUTE_S)
            write_cases(NAME, saved)
            print(name, json.dumps(saved[name]), flush=True)


if __name__ == "__main__":
    main()
