"""A Dynamo worker that replays scripted token sequences, to test Dynamo's parsers.

A request gets the script whose NAME is in its prompt, else the first one. The prompt also sets the
chunks: `cut=K` sends K tokens and then the rest, `every=N` sends N tokens per chunk, otherwise one
chunk. It serves until SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import uvloop
import yaml
from dynamo.common.utils.namespace import get_worker_namespace
from dynamo.llm import ModelInput, ModelRuntimeConfig, ModelType, WorkerType, register_model
from dynamo.runtime import DistributedRuntime, dynamo_worker
from tokenizers import Tokenizer

BLOCK_SIZE = 32
_CUT = re.compile(r"\bcut=(\d+)")
_EVERY = re.compile(r"\bevery=(\d+)")


def chunks(tokens: list[int], cut: int | None, every: int | None) -> list[list[int]]:
    """``tokens`` in pieces, none of them empty."""
    if cut is not None:
        pieces = [tokens[:cut], tokens[cut:]]
    else:
        size = every or max(1, len(tokens))
        pieces = [tokens[at : at + size] for at in range(0, len(tokens), size)]
    return [piece for piece in pieces if piece]


class Replay:
    """``scripts``: NAME → text; special tokens in the text are encoded as such."""

    def __init__(self, tokenizer: Tokenizer, scripts: Mapping[str, str]) -> None:
        self._tokenizer = tokenizer
        self._tokens = {name: tokenizer.encode(text).ids for name, text in scripts.items()}

    async def generate(self, request: Mapping[str, Any], context: Any) -> AsyncIterator[Any]:
        prompt = self._tokenizer.decode(list(request["token_ids"]), skip_special_tokens=False)
        names = [*(name for name in self._tokens if name in prompt), *self._tokens]
        cut, every = (_number(pattern, prompt) for pattern in (_CUT, _EVERY))
        pieces = chunks(self._tokens[names[0]], cut, every)
        for piece in pieces[:-1]:
            yield {"token_ids": piece}
            await asyncio.sleep(0)  # each piece becomes a separate event
        yield {"token_ids": pieces[-1], "finish_reason": "stop"}


def _number(pattern: re.Pattern[str], prompt: str) -> int | None:
    found = pattern.findall(prompt)
    return int(found[-1]) if found else None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-path", required=True, help="folder with config and tokenizer")
    parser.add_argument("--model-name", required=True)
    parser.add_argument("--script", required=True, type=Path, help="YAML: NAME: text")
    parser.add_argument("--context-length", type=int, default=4096)
    parser.add_argument("--dyn-reasoning-parser")
    parser.add_argument("--dyn-tool-call-parser")
    return parser.parse_args()


@dynamo_worker()  # type: ignore[untyped-decorator]
async def serve(runtime: DistributedRuntime) -> None:
    asked = arguments()
    endpoint = runtime.endpoint(f"{get_worker_namespace()}.backend.generate")
    config = ModelRuntimeConfig()
    config.context_length = asked.context_length
    config.reasoning_parser = asked.dyn_reasoning_parser
    config.tool_call_parser = asked.dyn_tool_call_parser
    scripts = yaml.safe_load(asked.script.read_text())
    replay = Replay(Tokenizer.from_file(f"{asked.model_path}/tokenizer.json"), scripts)
    await register_model(
        ModelInput.Tokens,
        ModelType.Chat | ModelType.Completions,
        endpoint,
        asked.model_path,
        asked.model_name,
        worker_type=WorkerType.Aggregated,
        kv_cache_block_size=BLOCK_SIZE,
        runtime_config=config,
    )
    await endpoint.serve_endpoint(replay.generate)


if __name__ == "__main__":
    uvloop.run(serve())
