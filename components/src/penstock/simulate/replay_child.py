"""Runs replays one after another, in the environment `sim`: a job a line in, an answer a line out.

Imports nothing of penstock, which that environment does not have. Jobs and answers: `replay.py`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from inspect import signature
from resource import RUSAGE_SELF, getrusage
from threading import Event, Thread
from typing import Any, TextIO

PER_REQUEST = ("arrival_time_ms", "first_admit_ms", "first_token_ms", "last_token_ms")
COUNTS = ("input_length", "output_length", "reused_input_tokens")
KEPT = (
    *("num_requests", "completed_requests", "p99_itl_ms", "duration_ms"),
    *("prefill_worker_seconds", "decode_worker_seconds"),
)
ONE_REQUEST = '{"timestamp": 0, "input_length": 1, "output_length": 2, "hash_ids": [1]}'
ROUTER_LOG = "error"  # at info the router writes a line a request


def main() -> None:
    """Until the standard input ends; libraries that print do so on the standard error."""
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    os.environ["DYN_LOG"] = ROUTER_LOG
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _say(answers, _versions())
    for line in sys.stdin:
        try:
            answer = _replay(json.loads(line))
        except Exception as error:  # noqa: BLE001  whatever it is, whoever asked says it
            answer = {"error": f"{type(error).__name__}: {error}"}
        _say(answers, answer)


def _end_with(parent: int) -> None:
    """A parent that was killed cannot end what it began, and a replay may take long."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


def _versions() -> dict[str, Any]:
    from importlib.metadata import version

    try:
        import aisimulate_core  # type: ignore[import-not-found]

        schema = aisimulate_core.engine_spec_schema_version()
    except Exception as error:  # noqa: BLE001
        return {"error": f"{type(error).__name__}: {error}"}
    names = ("aisimulate", "ai-dynamo", "ai-dynamo-runtime")
    return {"schema": schema, "versions": {name: version(name) for name in names}}


def _replay(job: dict[str, Any]) -> dict[str, Any]:
    """As asked; where nobody measured experts that are cut, with whole ones spread over the GPUs,
    which on B200, where both were measured, takes as long within some percent."""
    try:
        return _run(job)
    except Exception as error:
        if "MoE data missing" not in str(error) or not spread_experts(job["engines"]):
            raise
        return _run(job) | {"whole_experts": True}


def spread_experts(engines: dict[str, Any]) -> bool:
    """Expert parallelism in place of tensor parallelism; False where there is none."""
    timings = [e["engine"]["timing_model"]["config"] for e in engines.values()]
    cut = [timing for timing in timings if timing.get("moe_tp_size", 1) > 1]
    for timing in cut:
        timing["moe_ep_size"] *= timing["moe_tp_size"]
        timing["moe_tp_size"] = 1
    return bool(cut)


class _Measurements:
    """Keeps what a replay has loaded: the measurements of a GPU go with the last replay that reads
    them, and loading them takes a second, five times as long as many a replay.

    A replay of one request, on a thread of its own, that stands still in its first sample does it.
    """

    def __init__(self) -> None:
        self._held: set[tuple[str, str]] = set()

    def hold(self, engines: dict[str, Any], options: dict[str, Any]) -> None:
        timings = [engine["engine"]["timing_model"]["config"] for engine in engines.values()]
        names = {(timing["system"], timing["backend"]) for timing in timings}
        if names <= self._held:
            return
        self._held |= names
        begun = Event()
        Thread(target=self._stand, args=(engines, options, begun), daemon=True).start()
        begun.wait()

    def _stand(self, engines: dict[str, Any], options: dict[str, Any], begun: Event) -> None:
        from dynamo.replay import TelemetryOptions, run_trace_replay

        def stand(_: dict[str, Any]) -> None:
            begun.set()
            Event().wait()

        run: Any = run_trace_replay
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
            print(ONE_REQUEST, file=trace, flush=True)
            try:
                telemetry = TelemetryOptions(callback=stand, capture_in_memory=False)
                run(trace.name, **engines, **options, telemetry_options=telemetry)
            except Exception:  # noqa: BLE001  the job itself meets it too, and says it
                pass
            finally:
                begun.set()


MEASUREMENTS = _Measurements()


def _run(job: dict[str, Any]) -> dict[str, Any]:
    from dynamo.llm import KvRouterConfig
    from dynamo.mocker.config import normalize_mocker_config
    from dynamo.replay import TelemetryOptions, run_trace_replay

    run: Any = run_trace_replay  # its overloads know no options that are made up here
    engines = {name: normalize_mocker_config(engine) for name, engine in job["engines"].items()}
    options = dict(job["options"])
    MEASUREMENTS.hold(engines, options)
    if job["router"] is not None:
        known = signature(KvRouterConfig).parameters
        settings = {key: value for key, value in job["router"].items() if key in known}
        options |= {"router_mode": "kv_router", "router_config": KvRouterConfig(**settings)}
    if job["planner"] is not None:
        options |= {"planner_config": job["planner"], "capture_planner_details": True}
    done = run(
        job["trace"],
        **engines,
        **options,
        trace_block_size=job["block_tokens"],
        capture_per_request=True,
        telemetry_options=TelemetryOptions(sample_interval_ms=job["sample_ms"]),
    )
    summary = {key: done.summary.get(key) for key in KEPT}
    summary["peak_bytes"] = getrusage(RUSAGE_SELF).ru_maxrss * 1024
    rows = sorted(done.per_request, key=_order)
    columns = {key: [row[key] for row in rows] for key in (*PER_REQUEST, *COUNTS)}
    columns["prefill_queue_ms"] = [_prefill_queue_ms(row) for row in rows]
    columns["decode_queue_ms"] = [_decode_queue_ms(row) for row in rows]
    samples = [_sampled(sample) for sample in done.telemetry.samples]
    answer = {"summary": summary, "requests": columns, "samples": samples}
    return answer if done.planner is None else answer | {"scaling": _scaling(done.planner)}


def _scaling(planner: Any) -> dict[str, Any]:
    """Decisions, and after each change of a pool how many of its workers are in which state."""
    names = ("at_s", "component", "from_count", "to_count")
    events = [{name: getattr(event, name) for name in names} for event in planner.scaling_events]
    changes = [
        {
            "at_ms": change["at_ms"],
            "pool": change["pool"],
            **{state: len(ids) for state, ids in change["state_after_batch"].items()},
        }
        for change in planner.lifecycle_operations
    ]
    return {"events": events, "changes": changes}


def _order(row: dict[str, Any]) -> tuple[float, ...]:
    """Rows come in any order, and their ids are given out in any."""
    return tuple(row[key] or 0.0 for key in (*PER_REQUEST, *COUNTS))


def _prefill_queue_ms(row: dict[str, Any]) -> float | None:
    """In queues, from arrival to the first engine's first step."""
    if row["first_admit_ms"] is None:
        return None
    return float(row["first_admit_ms"]) - float(row["arrival_time_ms"])


def _decode_queue_ms(row: dict[str, Any]) -> float | None:
    """Of a prompt that is read, for room in a decode worker's cache and then for a place in its
    steps; what moves its KV in between is none. None without a decode pool."""
    times = [
        row.get(key)
        for key in (
            "source_held_ms",
            "destination_reserved_ms",
            "destination_activated_ms",
            "decode_admit_ms",
        )
    ]
    if any(time is None for time in times):
        return None
    held, reserved, moved, admitted = (float(time) for time in times if time is not None)
    return max(0.0, reserved - held) + max(0.0, admitted - moved)


def _sampled(sample: dict[str, Any]) -> dict[str, Any]:
    """Sums and means over a pool's ranks: with a thousand workers nobody wants each."""
    pools = {}
    for pool in ("prefill", "decode"):
        ranks = sample[f"{pool}_scheduler_metrics"]
        pools[pool] = {
            "workers": len(sample[f"active_{pool}_ids"]),
            "running": sum(rank["running_requests"] for rank in ranks),
            "waiting": sum(rank["waiting_requests"] for rank in ranks),
            "cache": sum(rank["active_cache_usage"] for rank in ranks) / max(1, len(ranks)),
        }
    return {"at_ms": sample["sampled_at_ms"], **pools}


if __name__ == "__main__":
    main()
