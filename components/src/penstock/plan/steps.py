"""How long the steps of a layout take: tables that the estimate reads, from one process's answer.

A layout is rendered once in each role, as `replayable` would have it; so the tables and the
capacity are those that a replay begins with.
"""

from __future__ import annotations

import json
import subprocess
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import SimulationError
from penstock.manifests.deployment import Role
from penstock.plan.space import STEPS
from penstock.plan.traffic import Traffic
from penstock.simulate.model import PoolReplay
from penstock.simulate.replay import require_environment

CHILD = Path(__file__).parent / "steps_child.py"
GRID = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # requests of one rank that decode


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Milliseconds, of one rank's work while all ranks do the like. ``prompt``: a mean prompt read
    alone, by the tokens of a step; ``long_prompt``: one that 5 % exceed; ``share``: a mean prompt's
    part of steps that are as full of prompts as they get; ``decode``: a step in which GRID[i]
    requests get a token; ``mixed``: the same beside a step's prompts. ``capacity``: tokens of KV of
    one rank."""

    prompt: Mapping[int, float]
    share: Mapping[int, float]
    long_prompt: Mapping[int, float]
    decode: tuple[float, ...]
    mixed: Mapping[int, tuple[float, ...]]
    capacity: int

    def decode_ms(self, running: float) -> float:
        return _between(self.decode, running)

    def mixed_ms(self, step: int, running: float) -> float:
        return _between(self.mixed[step], running)


def _between(times: Sequence[float], running: float) -> float:
    """Linear between the grid's points, and beyond the last."""
    if running <= GRID[0]:
        return times[0]
    high = min(bisect_left(GRID, running), len(GRID) - 1)
    low = high - 1
    share = (running - GRID[low]) / (GRID[high] - GRID[low])
    return times[low] + (times[high] - times[low]) * share


def steps_of(pools: Sequence[PoolReplay], traffic: Traffic) -> list[Steps | str]:
    """One answer a pool, in order: its table, or why nobody measured it."""
    queries = [_Query(pool, traffic) for pool in pools]
    asked = [{"config": query.config, "steps": query.steps()} for query in queries]
    return [
        answer["error"] if isinstance(answer, dict) else query.read(answer)
        for query, answer in zip(queries, _ask(asked), strict=True)
    ]


def _ask(asked: Sequence[Mapping[str, Any]]) -> list[Any]:
    done = subprocess.run(
        [str(require_environment()), "-I", str(CHILD)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # Ctrl-C is ours
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise SimulationError(f"the step times could not be asked: {last}")
    return list(json.loads(done.stdout))


class _Query:
    """Which steps of a pool are asked, and what their times mean."""

    def __init__(self, pool: PoolReplay, traffic: Traffic) -> None:
        self.config = pool.engine["engine"]["timing_model"]["config"]
        self._capacity = (
            pool.engine["engine"]["num_gpu_blocks"] * pool.engine["engine"]["block_size"]
        )
        self._traffic = traffic
        self._decodes = pool.role is not Role.PREFILL
        self._reads = pool.role is not Role.DECODE

    def steps(self) -> list[dict[str, int]]:
        asked: list[dict[str, int]] = []
        if self._reads:
            for length in (self._traffic.fresh, self._traffic.long_fresh):
                asked += [chunk for step in STEPS for chunk in self._chunks(length, step)]
            asked += [self._full(step) for step in STEPS]
        if self._decodes:
            asked += [self._decode(running) for running in GRID]
        if self._reads and self._decodes:
            asked += [self._mixed(step, running) for step in STEPS for running in GRID]
        return asked

    def _chunks(self, fresh: int, step: int) -> list[dict[str, int]]:
        """A prompt whose first tokens are cached, in steps of at most ``step``."""
        past = self._traffic.cached
        return [_prefill(min(step, fresh - done), past + done) for done in range(0, fresh, step)]

    def _decode(self, running: int) -> dict[str, int]:
        held = running * self._traffic.context
        return {"num_decode_requests": running, "sum_decode_kv_tokens": held}

    def _mixed(self, step: int, running: int) -> dict[str, int]:
        return {**self._full(step), **self._decode(running)}

    def _full(self, step: int) -> dict[str, int]:
        """As many prompts as a step has room for, or the middle chunk of one."""
        fresh, prompts = self._traffic.fresh, prompts_per_step(self._traffic.fresh, step)
        past = self._traffic.cached + max(0, fresh - step) // 2
        return _prefill(min(step, fresh), past, prompts)

    def read(self, times: Sequence[float]) -> Steps:
        found = iter(times)

        def prompts(fresh: int) -> dict[int, float]:
            if not self._reads:
                return {}
            return {step: sum(next(found) for _ in self._chunks(fresh, step)) for step in STEPS}

        prompt, long_prompt = prompts(self._traffic.fresh), prompts(self._traffic.long_fresh)
        share = self._shares(prompt, [next(found) for _ in STEPS]) if self._reads else {}
        decode = tuple(next(found) for _ in GRID) if self._decodes else ()
        both = self._reads and self._decodes
        mixed = {step: tuple(next(found) for _ in GRID) for step in STEPS} if both else {}
        return Steps(
            prompt=prompt,
            long_prompt=long_prompt,
            share=share,
            decode=decode,
            mixed=mixed,
            capacity=self._capacity,
        )

    def _shares(self, alone: Mapping[int, float], full: Sequence[float]) -> dict[int, float]:
        counts = [prompts_per_step(self._traffic.fresh, step) for step in STEPS]
        some = zip(STEPS, full, counts, strict=True)
        return {step: ms / count if count > 1 else alone[step] for step, ms, count in some}


def prompts_per_step(fresh: int, step: int) -> int:
    """Prompts that one step reads, at least one."""
    return max(1, step // fresh)


def _prefill(tokens: int, past: int, prompts: int = 1) -> dict[str, int]:
    return {
        "num_prefill_requests": prompts,
        "sum_prefill_tokens": prompts * tokens,
        "sum_prefill_kv_tokens": prompts * past,
    }
