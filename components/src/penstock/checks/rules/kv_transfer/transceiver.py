"""Rules about the runtime and backend of TensorRT-LLM's cache transceiver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.kv_transfer.transfer import (
    TRANSCEIVER,
    kv_transfer_workers,
    transceiver_runtime,
)
from penstock.checks.version_range import Versions
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment

# Before this version, an unset transceiver_runtime means CPP.
SINCE_AUTO = Versions(trtllm=">=1.3.0rc27")


def runtimes_may_differ(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        if not prefill.is_trtllm or not (
            prefill.settings.is_complete and decode.settings.is_complete
        ):
            continue
        key = f"{TRANSCEIVER}.transceiver_runtime"
        first, second = transceiver_runtime(prefill), transceiver_runtime(decode)
        if first != second:
            target, other = (decode, first) if first != "auto" else (prefill, second)
            yield RuleResult(
                location=target.config_location(key),
                message=f"transceiver_runtime is {second} on {decode.name} but {first} on "
                f"{prefill.name}",
                fix=Fix(
                    text=f"Set transceiver_runtime to {other} on both pools.", config={key: other}
                ),
                level=Level.ERROR if "auto" not in (first, second) else None,
            )
        elif first == "auto":
            yield RuleResult(
                location=decode.config_location(key),
                message="transceiver_runtime is auto, so each server selects its own runtime",
                fix=Fix(
                    text="Set transceiver_runtime to PYTHON on both pools.",
                    config={key: "PYTHON"},
                    graph={f"engine.config.{key}": "PYTHON"},
                ),
                level=Level.NOTE,  # servers of the same settings select the same runtime
                versions=SINCE_AUTO,
            )


def python_runtime(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_workers(deployment):
        section = worker.get(TRANSCEIVER)
        if not worker.is_trtllm or not isinstance(section, Mapping):
            continue
        if section.get("transceiver_runtime") != "PYTHON":
            continue
        if section.get("backend") not in (None, "NIXL", "DEFAULT"):
            yield RuleResult(
                location=worker.config_location(f"{TRANSCEIVER}.backend"),
                message=f"transceiver_runtime PYTHON does not support backend {section['backend']}",
                fix=Fix(text="Set the backend to NIXL.", config={f"{TRANSCEIVER}.backend": "NIXL"}),
            )
        if "kv_transfer_timeout_ms" in section and section["kv_transfer_timeout_ms"] is None:
            yield RuleResult(
                location=worker.config_location(f"{TRANSCEIVER}.kv_transfer_timeout_ms"),
                message="transceiver_runtime PYTHON requires a finite kv_transfer_timeout_ms, "
                "got null",
                fix=Fix(
                    text="Set kv_transfer_timeout_ms to 600000.",
                    config={f"{TRANSCEIVER}.kv_transfer_timeout_ms": 600000},
                ),
            )


def pipelined_transfer(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_workers(deployment):
        section = worker.get(TRANSCEIVER)
        if not isinstance(section, Mapping) or not section.get("enable_pipelined_transfer"):
            continue
        missing = [
            requirement
            for requirement, is_met in {
                "transceiver_runtime PYTHON": section.get("transceiver_runtime") == "PYTHON",
                "backend NIXL": section.get("backend") == "NIXL",
                "enable_chunked_prefill": worker.get("enable_chunked_prefill") is True,
                "PP and CP of 1": worker.pp == worker.cp == 1,
                "beam width 1": (positive_int(worker.get("max_beam_width")) or 1) == 1,
            }.items()
            if not is_met
        ]
        if missing:
            yield RuleResult(
                location=worker.config_location(f"{TRANSCEIVER}.enable_pipelined_transfer"),
                message=f"enable_pipelined_transfer requires {', '.join(missing)}",
                fix=Fix(
                    text="Set enable_pipelined_transfer to false, or add what it requires.",
                    config={f"{TRANSCEIVER}.enable_pipelined_transfer": False},
                ),
            )


def several_backends(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_workers(deployment):
        names = [
            name
            for name in sorted(worker.launch.env)
            if name.startswith("TRTLLM_USE_")
            and name.endswith("_KVCACHE")
            and worker.launch.env[name] not in ("", "0")
        ]
        backend = worker.get(f"{TRANSCEIVER}.backend")
        if names == [f"TRTLLM_USE_{backend}_KVCACHE"]:
            continue  # both select the same one
        if worker.is_trtllm and names and (len(names) > 1 or backend not in (None, "DEFAULT")):
            named_backend = f" and backend {backend}" if backend not in (None, "DEFAULT") else ""
            yield RuleResult(
                location=worker.location("env", names[0]),
                message=f"{' and '.join(names)}{named_backend} all select the KV transfer backend",
                fix=Fix(text="Remove the variables and set cache_transceiver_config.backend."),
            )
