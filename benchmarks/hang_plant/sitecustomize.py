"""Lets single requests of a vLLM worker hang, for `hangs.py`, which adds this folder to PYTHONPATH.

A request that finds the file `PID-first` or `PID-later` in the folder `HANG_PLANTS` deletes it, and
hangs before its first or after its third part of the response.
"""

from __future__ import annotations

import asyncio
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

HANDLERS = "dynamo.vllm.handlers"
CLASSES = ("PrefillWorkerHandler", "DecodeWorkerHandler")
LATER = 3  # parts of the response
Generate = Callable[[Any, Any, Any], AsyncIterator[Any]]


async def hang_if_planted(stage: str) -> None:
    plant = Path(os.environ["HANG_PLANTS"]) / f"{os.getpid()}-{stage}"
    try:
        plant.unlink()
    except FileNotFoundError:
        return
    await asyncio.Event().wait()


def with_hangs(generate: Generate) -> Generate:
    async def generate_or_hang(self: Any, request: Any, context: Any) -> AsyncIterator[Any]:
        await hang_if_planted("first")
        parts = 0
        async for part in generate(self, request, context):
            yield part
            parts += 1
            if parts == LATER:
                await hang_if_planted("later")

    return generate_or_hang


class Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for name in CLASSES:
            handler = getattr(module, name)
            handler.generate = with_hangs(handler.generate)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != HANDLERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.loader is not None
        spec.loader = Loader(spec.loader)
        return spec


sys.meta_path.insert(0, Finder())
