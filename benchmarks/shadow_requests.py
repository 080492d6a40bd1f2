"""Prompts for response_comparison.py: documentation strings of Python's standard library.

The texts are not part of this project. `LAG` in run.py was added after a trial with such prompts.
"""

from __future__ import annotations

import importlib
import inspect
import json
import random
import sys
from pathlib import Path
from typing import Any

FEWEST_CHARACTERS, MOST_CHARACTERS = 60, 140
INSTRUCTIONS = (
    "Summarize this in one sentence:",
    "Explain this to a beginner:",
    "Which problem does this solve?",
    "Continue this text:",
    "Write a question about this:",
)
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look up a word",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}},
            "required": ["word"],
        },
    },
}


def texts() -> list[str]:
    """In alphabetical order, so that a seed chooses the same ones with the same Python."""
    found = set()
    for name in sorted(sys.stdlib_module_names):
        if name.startswith("_") or name in ("antigravity", "this", "idlelib", "test"):
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:  # not on this system
            continue
        for _, member in inspect.getmembers(module, callable):
            text = inspect.getdoc(member) or ""
            if len(text) >= FEWEST_CHARACTERS and text.isascii():
                found.add(text[:MOST_CHARACTERS])
    return sorted(found)


def chat_requests(count: int, seed: int, max_tokens: int = 8) -> list[dict[str, Any]]:
    chosen = random.Random(seed)
    return [
        {
            "messages": [
                {"role": "user", "content": f"{chosen.choice(INSTRUCTIONS)}\n\n{text}"},
            ],
            "max_tokens": max_tokens,
        }
        for text in chosen.sample(texts(), count)
    ]


def tool_requests(count: int, seed: int) -> list[dict[str, Any]]:
    """Few-shot: the small model continues the pattern of a call."""
    chosen = random.Random(seed)
    words = sorted({word for text in texts() for word in text.split() if word.isalpha()})

    def call(word: str) -> str:
        return f'[look_up(word="{word}")]'  # Dynamo's parser `pythonic`

    requests = []
    for _ in range(count):
        *examples, last = chosen.sample(words, 4)
        messages = [{"role": "system", "content": "Call look_up for the word of the user."}]
        for word in examples:
            messages += [
                {"role": "user", "content": word},
                {"role": "assistant", "content": call(word)},
            ]
        messages.append({"role": "user", "content": last})
        requests.append({"messages": messages, "tools": [TOOL], "max_tokens": 24})
    return requests


def write(path: Path, requests: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in requests))
    return path
