"""Runs replays in the environment `sim`: reads one job per line, writes one result per line.

Imports nothing of penstock, which that environment does not have. `replay.py` starts it.
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
POLICY_FILE = "router_policy_config"
EAGLE3, ANY_EAGLE3 = "eagle3", "eagle3_of_any_model"
ROUTER_LOG = "error"  # at info level the router logs every request


def main() -> None:
    """Runs until the standard input ends. What libraries print goes to the standard error."""
    Thread(target=_exit_with, args=(os.getppid(),), daemon=True).start()
    os.environ["DYN_LOG"] = ROUTER_LOG
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _write(results, _versions())
    for line in sys.stdin:
        try:
            result = _replay(json.loads(line))
        except Exception as error:  # noqa: BLE001  the parent process reports it
            result = {"error": f"{type(error).__name__}: {error}"}
        _write(results, result)


def _exit_with(parent: int) -> None:
    """A parent that was killed cannot end this process, and a replay may take long."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _write(results: TextIO, result: dict[str, Any]) -> None:
    print(json.dumps(result), file=results, flush=True)


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
    """Replays with expert parallelism if tensor-parallel experts were not measured. On B200, where
    both were measured, they take as long within some percent."""
    DRAFTS.take(job["engines"])
    try:
        return _run(job)
    except Exception as error:
        if "MoE data missing" not in str(error) or not spread_experts(job["engines"]):
            raise
        return _run(job) | {"whole_experts": True}


def spread_experts(engines: dict[str, Any]) -> bool:
    """Replaces tensor parallelism of experts with expert parallelism; False if there is none."""
    timings = [e["engine"]["timing_model"]["config"] for e in engines.values()]
    split = [timing for timing in timings if timing.get("moe_tp_size", 1) > 1]
    for timing in split:
        timing["moe_ep_size"] *= timing["moe_tp_size"]
        timing["moe_tp_size"] = 1
    return bool(split)


class _Measurements:
    """Keeps the measurements of a GPU in memory, which are freed with the last replay that uses
    them. Loading them takes a second, five times as long as many replays.

    A replay of one request, which blocks at its first sample in a thread of its own, holds them.
    """

    def __init__(self) -> None:
        self._loaded: set[tuple[str, str]] = set()

    def keep(self, engines: dict[str, Any], options: dict[str, Any]) -> None:
        timings = [engine["engine"]["timing_model"]["config"] for engine in engines.values()]
        names = {(timing["system"], timing["backend"]) for timing in timings}
        if names <= self._loaded:
            return
        self._loaded |= names
        begun = Event()
        Thread(target=self._block, args=(engines, options, begun), daemon=True).start()
        begun.wait()

    def _block(self, engines: dict[str, Any], options: dict[str, Any], begun: Event) -> None:
        from dynamo.replay import TelemetryOptions, run_trace_replay

        def block(_: dict[str, Any]) -> None:
            begun.set()
            Event().wait()

        run: Any = run_trace_replay
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
            print(ONE_REQUEST, file=trace, flush=True)
            try:
                telemetry = TelemetryOptions(callback=block, capture_in_memory=False)
                run(trace.name, **engines, **options, telemetry_options=telemetry)
            except Exception:  # noqa: BLE001  the job itself fails with it too, and reports it
                pass
            finally:
                begun.set()


MEASUREMENTS = _Measurements()


class _Drafts:
    """Makes AISimulate compute the times of draft models.

    Its cost models take any model and engine, but Dynamo's replay passes on only the number of
    draft tokens, for which AISimulate computes MTP layers. So the cost model of a job replaces this
    number where AISimulate builds the engine.
    """

    def __init__(self) -> None:
        self._costs: dict[str, Any] = {}  # of the job, by type of worker
        self._is_installed = False

    def take(self, engines: dict[str, Any]) -> None:
        """Takes the cost models out of the engines, as the replay does not know them."""
        timings = [engine["engine"]["timing_model"]["config"] for engine in engines.values()]
        costs = {timing["worker_type"]: timing.pop("speculation", None) for timing in timings}
        self._costs = {worker_type: cost for worker_type, cost in costs.items() if cost}
        if self._costs and not self._is_installed:
            self._install()
            self._is_installed = True

    def _install(self) -> None:
        from aisimulate_core.sdk import engine, speculation  # type: ignore[import-not-found]

        eagle3 = speculation.get_spec_scheme_cls(EAGLE3)

        @speculation.register_spec_scheme(ANY_EAGLE3)
        class AnyEagle3(eagle3):  # type: ignore[misc,valid-type]
            """Without the limit to Llama models on vLLM and SGLang, which has no technical cause:
            the layer's times come from the same tables for every model and engine."""

            kind = ANY_EAGLE3

            def validate(self, model: Any, backend_name: str) -> None:
                pass

        compile_engine = engine.compile_engine

        def compile_with_draft(*arguments: Any, **options: Any) -> Any:
            cost = self._costs.get(options.get("worker_type") or "")
            if cost and options.get("nextn"):
                kind = ANY_EAGLE3 if cost["kind"] == EAGLE3 else cost["kind"]
                options |= {"nextn": 0, "speculation": {**cost, "kind": kind}}
            return compile_engine(*arguments, **options)

        engine.compile_engine = compile_with_draft


DRAFTS = _Drafts()


def _run(job: dict[str, Any]) -> dict[str, Any]:
    from dynamo.llm import KvRouterConfig
    from dynamo.mocker.config import normalize_mocker_config
    from dynamo.replay import TelemetryOptions, run_trace_replay

    run: Any = run_trace_replay  # its overloads do not know options that are built here
    engines = {name: normalize_mocker_config(engine) for name, engine in job["engines"].items()}
    options = dict(job["options"])
    MEASUREMENTS.keep(engines, options)
    if job["router"] is not None:
        known = signature(KvRouterConfig).parameters
        settings = {key: value for key, value in job["router"].items() if key in known}
        if settings.get(POLICY_FILE):
            settings[POLICY_FILE] = _written(settings[POLICY_FILE])
        options |= {"router_mode": "kv_router", "router_config": KvRouterConfig(**settings)}
    if job["planner"] is not None:
        options |= {"planner_config": job["planner"], "capture_planner_details": True}
    report = run(
        job["trace"],
        **engines,
        **options,
        trace_block_size=job["block_tokens"],
        trace_format=job["trace_format"],
        capture_per_request=True,
        telemetry_options=TelemetryOptions(sample_interval_ms=job["sample_ms"]),
    )
    summary = {key: report.summary.get(key) for key in KEPT}
    summary["peak_bytes"] = getrusage(RUSAGE_SELF).ru_maxrss * 1024
    rows = sorted(report.per_request, key=_order)
    columns = {key: [row[key] for row in rows] for key in (*PER_REQUEST, *COUNTS)}
    columns["prefill_queue_ms"] = [_prefill_queue_ms(row) for row in rows]
    columns["decode_queue_ms"] = [_decode_queue_ms(row) for row in rows]
    samples = [_pool_sample(sample) for sample in report.telemetry.samples]
    result = {"summary": summary, "requests": columns, "samples": samples}
    return result if report.planner is None else result | {"scaling": _scaling(report.planner)}


def _written(policy: str) -> str:
    """The path of a file with the router's policy, in the folder that the parent removes."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
        file.write(policy)
    return file.name


def _scaling(planner: Any) -> dict[str, Any]:
    """The planner's decisions, and after each change of a pool the number of its workers in each
    state."""
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
    """Rows and their ids come in random order."""
    return tuple(row[key] or 0.0 for key in (*PER_REQUEST, *COUNTS))


def _prefill_queue_ms(row: dict[str, Any]) -> float | None:
    """From arrival to the first engine's first step."""
    if row["first_admit_ms"] is None:
        return None
    return float(row["first_admit_ms"]) - float(row["arrival_time_ms"])


def _decode_queue_ms(row: dict[str, Any]) -> float | None:
    """After prefill: the wait for space in a decode worker's cache, and then for its first decode
    step. The KV transfer in between is not counted. None without a decode pool."""
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
    prefilled, reserved, moved, admitted = (float(time) for time in times if time is not None)
    return max(0.0, reserved - prefilled) + max(0.0, admitted - moved)


def _pool_sample(sample: dict[str, Any]) -> dict[str, Any]:
    """Sums and means over a pool's ranks, of which there may be thousands."""
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
