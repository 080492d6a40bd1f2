"""The workers that transfer KV, and TensorRT-LLM's cache transceiver."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.checks.rules.command_line.absent_flags import names_connector
from penstock.manifests.deployment import Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker
from penstock.text.values import positive_int

TRANSCEIVER = "cache_transceiver_config"
# Of max_seq_len, which counts the response too: all prompts may be shorter.
MOST_PROMPT = 0.9
LONG_PROMPT = 32768  # tokens; for longer prompts the default timeout of 60 s was too short


def kv_transfer_workers(deployment: ServingDeployment) -> Iterator[Worker]:
    """Prefill and decode workers of a disaggregated deployment whose engine files are known."""
    if deployment.is_disaggregated:
        for worker in deployment.pool(Role.PREFILL, Role.DECODE):
            if worker.settings.is_complete:
                yield worker


def may_set(worker: Worker, variable: str) -> bool:
    """Whether the variable has a value, or may have one that the file does not state."""
    launch = worker.launch
    is_stated = variable in launch.env or variable in launch.unknown_variables
    return is_stated or launch.has_unread_variables


def is_on(worker: Worker, variable: str) -> bool:
    """Whether SGLang reads the variable as true."""
    return (worker.env(variable) or "").lower() in ("1", "true", "yes", "y")


def kv_role(worker: Worker, connector: str) -> str:
    """The role to set; vLLM 0.31 deprecates kv_both with NIXL (nixl/connector.py)."""
    roles = {Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer"}
    return roles.get(worker.role, "kv_both") if connector.startswith("Nixl") else "kv_both"


def nixl_config(worker: Worker) -> dict[str, str]:
    """The kv-transfer-config for NIXL. Its buffers are those of CUDA unless it says otherwise
    (vllm/config/kv_transfer.py 27 of 0.16.0)."""
    device = {"kv_buffer_device": "xpu"} if _is_xpu(worker) else {}
    return {"kv_connector": "NixlConnector", "kv_role": kv_role(worker, "NixlConnector"), **device}


def _is_xpu(worker: Worker) -> bool:
    image = worker.pod.image if worker.pod is not None else ""
    return worker.env("VLLM_TARGET_DEVICE") == "xpu" or "-xpu" in image


def has_connector(worker: Worker) -> bool:
    """Whether the section is set, or only `--kv-transfer-config.kv_connector`. PS144 and PS147
    report the settings of before 1.0, and what replaces them."""
    keys = ("kv-transfer-config", "kv-transfer-config.kv_connector")
    is_old = names_connector(worker.flag("--connector")) or worker.env("DYN_CONNECTOR") is not None
    return is_old or any(worker.get(key) is not None for key in keys)


def lacks_transceiver(worker: Worker) -> bool:
    """Whether a TensorRT-LLM worker with known settings has no backend and transfers no KV."""
    is_known = worker.is_trtllm and worker.settings.is_complete
    return is_known and not worker.get(f"{TRANSCEIVER}.backend")


def backend_variables(worker: Worker) -> list[str]:
    """The variables `TRTLLM_USE_*_KVCACHE` that are set and not 0."""
    return [
        name
        for name, text in sorted(worker.launch.env.items())
        if name.startswith("TRTLLM_USE_") and name.endswith("_KVCACHE") and text not in ("", "0")
    ]


def transceiver_runtime(worker: Worker) -> str:
    """PYTHON, CPP, or auto if the engine chooses. With a backend other than NIXL, it uses CPP."""
    runtime = worker.get(f"{TRANSCEIVER}.transceiver_runtime") or "auto"
    backend = worker.get(f"{TRANSCEIVER}.backend")
    return "CPP" if runtime == "auto" and backend in ("UCX", "MOONCAKE", "MPI") else str(runtime)


def transfer_buffer(worker: Worker) -> int | None:
    """Tokens of the C++ transceiver's buffer, if its size is set. The Python runtime has none."""
    if transceiver_runtime(worker) == "PYTHON":
        return None
    return positive_int(worker.get(f"{TRANSCEIVER}.max_tokens_in_buffer"))


def longest_transfer(deployment: ServingDeployment, worker: Worker) -> int | None:
    """Tokens of the longest prompt that can reach the worker, which prefill workers limit."""
    if worker.role is Role.PREFILL:
        return _accepted(deployment, worker)
    lengths = (_accepted(deployment, prefill) for prefill in deployment.pool(Role.PREFILL))
    return max(filter(None, lengths), default=deployment.longest_prompt(worker))


def _accepted(deployment: ServingDeployment, worker: Worker) -> int | None:
    """Without chunked prefill, TensorRT-LLM refuses prompts above the tokens per step."""
    longest = deployment.longest_prompt(worker)
    step = worker.count("max_batch_tokens")
    if longest and step and worker.get("enable_chunked_prefill") is not True:
        return min(longest, step)
    return longest
