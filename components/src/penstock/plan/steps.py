"""Tables of step times for the estimate, from one process in the environment `sim`.

Each layout is rendered once in each role, as for a replay, so that times and capacity are those
of a replay.
"""

from __future__ import annotations

import json
import subprocess
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

from penstock.errors import SimulationError
from penstock.manifests.deployment import Role
from penstock.plan.space import STEPS
from penstock.plan.traffic import Traffic
from penstock.simulate.calibration import Factors
from penstock.simulate.model import PoolReplay
from penstock.simulate.replay import late, require_environment

CHILD = Path(__file__).parent / "steps_child.py"
GRID = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # decoding requests of one rank


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Times in milliseconds, of one rank while all ranks do the same.

    Mappings are by the tokens of a step.
    """

    prompt: Mapping[int, float]  # prefill of a mean input alone
    share: Mapping[int, float]  # part of a mean input in steps that are full of inputs
    long_prompt: Mapping[int, float]  # prefill of the 95th percentile of inputs
    decode: tuple[float, ...]  # a step in which GRID[i] requests get a token
    mixed: Mapping[int, tuple[float, ...]]  # the same, in a step that is full of inputs too
    capacity: int  # tokens of the KV cache of one rank

    def decode_ms(self, running: float) -> float:
        return _between(self.decode, running)

    def corrected(self, factors: Factors) -> Steps:
        """The times corrected by the factors of a calibration. A mixed step takes the time of its
        prefill plus that of its decode."""
        speed, slower = factors.prefill_speed, factors.step_time

        def prefill(times: Mapping[int, float]) -> dict[int, float]:
            return {tokens: ms / speed for tokens, ms in times.items()}

        mixed = {
            tokens: tuple(
                (both - alone) / speed + alone * slower
                for both, alone in zip(times, self.decode, strict=True)
            )
            for tokens, times in self.mixed.items()
        }
        return replace(
            self,
            prompt=prefill(self.prompt),
            share=prefill(self.share),
            long_prompt=prefill(self.long_prompt),
            decode=tuple(ms * slower for ms in self.decode),
            mixed=mixed,
        )

    def mixed_ms(self, step: int, running: float) -> float:
        return _between(self.mixed[step], running)


def _between(times: Sequence[float], running: float) -> float:
    """Linear interpolation on the grid, and extrapolation beyond it."""
    if running <= GRID[0]:
        return times[0]
    high = min(bisect_left(GRID, running), len(GRID) - 1)
    low = high - 1
    share = (running - GRID[low]) / (GRID[high] - GRID[low])
    return times[low] + (times[high] - times[low]) * share


def steps_of(
    pools: Sequence[PoolReplay], traffic: Traffic, limit_s: float = inf
) -> list[Steps | str]:
    """The table of each pool, in order; a text if there are no measurements for it. SimulationError
    of the kind LATE after ``limit_s``."""
    queries = [_Query(pool, traffic) for pool in pools]
    inputs = [{"config": query.config, "steps": query.steps()} for query in queries]
    return [
        answer["error"] if isinstance(answer, dict) else query.read(answer)
        for query, answer in zip(queries, _times(inputs, limit_s), strict=True)
    ]


def _times(inputs: Sequence[Mapping[str, Any]], limit_s: float) -> list[Any]:
    try:
        done = subprocess.run(
            [str(require_environment()), "-I", str(CHILD)],
            input=json.dumps(inputs),
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,  # Ctrl-C is for this process
            timeout=None if limit_s == inf else limit_s,
        )
    except subprocess.TimeoutExpired:
        raise late() from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise SimulationError(f"reading the step times failed: {last}")
    return list(json.loads(done.stdout))


class _Query:
    """The steps of a pool whose times are needed, and the table of these times."""

    def __init__(self, pool: PoolReplay, traffic: Traffic) -> None:
        engine = pool.engine["engine"]
        self.config = engine["timing_model"]["config"]
        self._capacity = engine["num_gpu_blocks"] * engine["block_size"]
        self._traffic = traffic
        prefills = STEPS if pool.role is not Role.DECODE else ()
        decodes = GRID if pool.role is not Role.PREFILL else ()
        # By the field of the table, and the tokens of a step.
        self._steps: dict[str, dict[int, list[dict[str, int]]]] = {
            "prompt": {step: self._chunks(traffic.fresh, step) for step in prefills},
            "long_prompt": {step: self._chunks(traffic.long_fresh, step) for step in prefills},
            "share": {step: [self._full_prefill(step)] for step in prefills},
            "decode": {0: [self._decode(running) for running in decodes]},
            "mixed": {
                step: [{**self._full_prefill(step), **self._decode(n)} for n in decodes]
                for step in prefills
                if decodes
            },
        }

    def steps(self) -> list[dict[str, int]]:
        groups = (group for by_tokens in self._steps.values() for group in by_tokens.values())
        return [step for group in groups for step in group]

    def _chunks(self, fresh: int, step: int) -> list[dict[str, int]]:
        """An input whose first tokens are cached, in steps of at most ``step`` tokens."""
        past = self._traffic.cached
        return [_prefill(min(step, fresh - done), past + done) for done in range(0, fresh, step)]

    def _decode(self, running: int) -> dict[str, int]:
        tokens = running * self._traffic.context
        return {"num_decode_requests": running, "sum_decode_kv_tokens": tokens}

    def _full_prefill(self, step: int) -> dict[str, int]:
        """A prefill step with as many inputs as fit, or with the middle chunk of a longer input."""
        fresh, prompts = self._traffic.fresh, prompts_per_step(self._traffic.fresh, step)
        past = self._traffic.cached + max(0, fresh - step) // 2
        return _prefill(min(step, fresh), past, prompts)

    def read(self, times: Sequence[float]) -> Steps:
        """``times``: milliseconds of each of the steps, in order."""
        left = iter(times)
        ms = {
            field: {tokens: tuple(islice(left, len(group))) for tokens, group in groups.items()}
            for field, groups in self._steps.items()
        }
        prompt = {step: sum(chunks) for step, chunks in ms["prompt"].items()}
        return Steps(
            prompt=prompt,
            long_prompt={step: sum(chunks) for step, chunks in ms["long_prompt"].items()},
            share={step: self._share(prompt, step, full) for step, (full,) in ms["share"].items()},
            decode=ms["decode"][0],
            mixed=ms["mixed"],
            capacity=self._capacity,
        )

    def _share(self, prompt: Mapping[int, float], step: int, full: float) -> float:
        count = prompts_per_step(self._traffic.fresh, step)
        return full / count if count > 1 else prompt[step]


def prompts_per_step(fresh: int, step: int) -> int:
    """Inputs that fit in one step, at least one."""
    return max(1, step // fresh)


def _prefill(tokens: int, past: int, prompts: int = 1) -> dict[str, int]:
    return {
        "num_prefill_requests": prompts,
        "sum_prefill_tokens": prompts * tokens,
        "sum_prefill_kv_tokens": prompts * past,
    }
