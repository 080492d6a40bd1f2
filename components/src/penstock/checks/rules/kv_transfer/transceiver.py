"""Rules of TensorRT-LLM's transceiver: which runtime and backend it can be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.kv_transfer.transfer import TRANSCEIVER, moving_kv, runtime_of
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import positive_int


@rule(
    id="PS404",
    title="a transceiver runtime that each server chooses",
    level=Level.WARNING,
    cause="transceiver_runtime auto picks PYTHON or CPP for each server by its settings.",
    effect="Two pools with different runtimes cannot hand over; only a log line tells.",
    remedy="Name PYTHON (or CPP) on both pools.",
    source="CacheTransceiverConfig in TensorRT-LLM llm_args.py; TensorRT-LLM#17665",
)
def runtime_by_chance(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        if not prefill.is_trtllm or not (prefill.settings.is_whole and decode.settings.is_whole):
            continue
        key = f"{TRANSCEIVER}.transceiver_runtime"
        first, second = runtime_of(prefill), runtime_of(decode)
        if first != second:
            lacks, other = (decode, first) if first != "auto" else (prefill, second)
            yield RuleResult(
                location=lacks.config(key),
                message=f"{decode.name} has transceiver_runtime {second}, {prefill.name} {first}",
                fix=Fix(text="set both to the same", config={key: other}),
                level=Level.ERROR if "auto" not in (first, second) else None,
            )
        elif first == "auto":
            yield RuleResult(
                location=decode.config(key),
                message="transceiver_runtime is auto: each server chooses for itself and only "
                "logs it",
                fix=Fix(
                    text="name it on both pools",
                    config={key: "PYTHON"},
                    graph={f"engine.config.{key}": "PYTHON"},
                ),
            )


@rule(
    id="PS405",
    title="the Python transceiver without what it needs",
    level=Level.ERROR,
    cause="It knows NIXL alone and wants a finite time-out.",
    effect="The worker ends at its start.",
    remedy="backend NIXL, kv_transfer_timeout_ms set.",
    source="CacheTransceiverConfig in TensorRT-LLM llm_args.py",
)
def python_runtime(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in moving_kv(deployment):
        section = worker.get(TRANSCEIVER)
        if not worker.is_trtllm or not isinstance(section, Mapping):
            continue
        if section.get("transceiver_runtime") != "PYTHON":
            continue
        if section.get("backend") not in (None, "NIXL", "DEFAULT"):
            yield RuleResult(
                location=worker.config(f"{TRANSCEIVER}.backend"),
                message=f"transceiver_runtime PYTHON with backend {section['backend']}",
                fix=Fix(text="it knows NIXL alone", config={f"{TRANSCEIVER}.backend": "NIXL"}),
            )
        if "kv_transfer_timeout_ms" in section and section["kv_transfer_timeout_ms"] is None:
            yield RuleResult(
                location=worker.config(f"{TRANSCEIVER}.kv_transfer_timeout_ms"),
                message="transceiver_runtime PYTHON without a time-out",
                fix=Fix(text="set one", config={f"{TRANSCEIVER}.kv_transfer_timeout_ms": 600000}),
            )


@rule(
    id="PS406",
    title="pipelined transfer without its conditions",
    level=Level.ERROR,
    cause="It needs the Python runtime, NIXL, chunked prefill, no PP or CP, and no beams.",
    effect="The worker ends at its start.",
    remedy="Add them or switch it off.",
    source="TensorRT-LLM llm_args.py (validator)",
)
def pipelined(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in moving_kv(deployment):
        section = worker.get(TRANSCEIVER)
        if not isinstance(section, Mapping) or not section.get("enable_pipelined_transfer"):
            continue
        lacks = [
            text
            for text, there in {
                "transceiver_runtime PYTHON": section.get("transceiver_runtime") == "PYTHON",
                "backend NIXL": section.get("backend") == "NIXL",
                "enable_chunked_prefill": worker.get("enable_chunked_prefill") is True,
                "PP and CP of 1": worker.pp == worker.cp == 1,
                "beam width 1": (positive_int(worker.get("max_beam_width")) or 1) == 1,
            }.items()
            if not there
        ]
        if lacks:
            yield RuleResult(
                location=worker.config(f"{TRANSCEIVER}.enable_pipelined_transfer"),
                message=f"enable_pipelined_transfer needs {', '.join(lacks)}",
                fix=Fix(
                    text="add what it needs, or switch it off",
                    config={f"{TRANSCEIVER}.enable_pipelined_transfer": False},
                ),
            )


@rule(
    id="PS420",
    title="several choices of a transfer backend",
    level=Level.WARNING,
    cause="TRTLLM_USE_*_KVCACHE is set more than once, or beside a named backend.",
    effect="One of them is ignored.",
    remedy="Keep cache_transceiver_config.backend.",
    source="dynamo#13015; kv-cache-transfer.md@2f345512",
)
def several_env_backends(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in moving_kv(deployment):
        names = [
            name
            for name in sorted(worker.launch.env)
            if name.startswith("TRTLLM_USE_")
            and name.endswith("_KVCACHE")
            and worker.launch.env[name] not in ("", "0")
        ]
        backend = worker.get(f"{TRANSCEIVER}.backend")
        if worker.is_trtllm and names and (len(names) > 1 or backend not in (None, "DEFAULT")):
            beside = f" beside backend {backend}" if backend not in (None, "DEFAULT") else ""
            yield RuleResult(
                location=worker.location("env", names[0]),
                message=f"{' and '.join(names)}{beside}: only one can choose",
                fix=Fix(text="keep cache_transceiver_config.backend alone"),
            )
