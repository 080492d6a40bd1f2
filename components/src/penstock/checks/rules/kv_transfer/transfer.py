"""Rules about KV transfer: backend, buffer, timeout and scheduler of each worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.command_line.connector_flag import names_connector
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine, Role
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

TRANSCEIVER = "cache_transceiver_config"
# Of max_seq_len, which counts the response too.
MOST_PROMPT = 0.9
# Earlier vLLM workers use NixlConnector unless --connector names another one.
NO_DEFAULT_CONNECTOR = Versions(dynamo=">=1.0")
# Earlier versions have no timeout unless it is set.
DEFAULT_TIMEOUT = Versions(trtllm=">=1.3.0rc22")
LONG_PROMPT = 32768  # tokens; for longer prompts the default timeout of 60 s was too short


def kv_transfer_workers(deployment: ServingDeployment) -> Iterator[Worker]:
    """Prefill and decode workers of a disaggregated deployment whose engine files are known."""
    if deployment.is_disaggregated:
        for worker in deployment.pool(Role.PREFILL, Role.DECODE):
            if worker.settings.is_complete:
                yield worker


def kv_role(worker: Worker, connector: str) -> str:
    """The role to set; vLLM 0.31 deprecates kv_both with NIXL (nixl/connector.py)."""
    roles = {Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer"}
    return roles.get(worker.role, "kv_both") if connector.startswith("Nixl") else "kv_both"


def no_backend(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_workers(deployment):
        if lacks_transceiver(worker):
            yield RuleResult(
                location=worker.config_location(f"{TRANSCEIVER}.backend"),
                message=f"{worker.name} sets no {TRANSCEIVER}.backend, which disables KV transfer",
                fix=Fix(
                    text=f"Set {TRANSCEIVER}.backend to NIXL on both pools.",
                    config={f"{TRANSCEIVER}.backend": "NIXL"},
                ),
            )
        elif worker.engine is Engine.VLLM and not has_connector(worker):
            yield RuleResult(
                location=worker.config_location("kv-transfer-config"),
                message=f"{worker.name} has no --kv-transfer-config",
                fix=Fix(
                    text="Set kv-transfer-config to a KV connector such as NixlConnector.",
                    config={
                        "kv-transfer-config": {
                            "kv_connector": "NixlConnector",
                            "kv_role": kv_role(worker, "NixlConnector"),
                        }
                    },
                ),
                why="A vLLM decode worker starts without one and computes every prompt again."
                if worker.role is Role.DECODE
                else "The worker raises ValueError at startup.",
                level=Level.WARNING if worker.role is Role.DECODE else None,
                versions=NO_DEFAULT_CONNECTOR,
            )
        elif worker.engine is Engine.SGLANG and not worker.get("disaggregation-transfer-backend"):
            yield RuleResult(
                location=worker.config_location("disaggregation-transfer-backend"),
                message=f"{worker.name} sets no --disaggregation-transfer-backend, so SGLang "
                "uses mooncake",
                fix=Fix(
                    text="Set --disaggregation-transfer-backend to nixl.",
                    config={"disaggregation-transfer-backend": "nixl"},
                ),
                why="KV transfers work if the image and the network support mooncake.",
                level=Level.NOTE,
            )


def lacks_transceiver(worker: Worker) -> bool:
    """Whether a TensorRT-LLM worker with known settings has no backend and transfers no KV."""
    is_known = worker.is_trtllm and worker.settings.is_complete
    return is_known and not worker.get(f"{TRANSCEIVER}.backend")


def has_connector(worker: Worker) -> bool:
    """Whether the section is set, or only `--kv-transfer-config.kv_connector`. PS144 and PS147
    report the settings of before 1.0, and what replaces them."""
    keys = ("kv-transfer-config", "kv-transfer-config.kv_connector")
    is_old = names_connector(worker.flag("--connector")) or worker.env("DYN_CONNECTOR") is not None
    return is_old or any(worker.get(key) is not None for key in keys)


def default_backend(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_workers(deployment):
        if worker.is_trtllm and worker.get(f"{TRANSCEIVER}.backend") == "DEFAULT":
            yield RuleResult(
                location=worker.config_location(f"{TRANSCEIVER}.backend"),
                message=f"{TRANSCEIVER}.backend is DEFAULT: the image, or a variable "
                "TRTLLM_USE_*_KVCACHE, selects the backend",
                fix=Fix(text="Set the backend to NIXL.", config={f"{TRANSCEIVER}.backend": "NIXL"}),
            )


def transceiver_runtime(worker: Worker) -> str:
    """PYTHON, CPP, or auto if the engine chooses. With a backend other than NIXL, it uses CPP."""
    runtime = worker.get(f"{TRANSCEIVER}.transceiver_runtime") or "auto"
    backend = worker.get(f"{TRANSCEIVER}.backend")
    return "CPP" if runtime == "auto" and backend in ("UCX", "MOONCAKE", "MPI") else str(runtime)


def small_buffer(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_workers(deployment):
        buffer = _buffer(worker)
        longest = _longest(deployment, worker)
        if not buffer or not longest or _copies_nothing(worker):
            continue
        if buffer >= longest * (1 if deployment.context_length else MOST_PROMPT):
            continue
        block = worker.count("block_size") or 1
        needed = -(-longest // block) * block
        yield RuleResult(
            location=worker.config_location(f"{TRANSCEIVER}.max_tokens_in_buffer"),
            message=f"the KV transfer buffer holds {buffer:,} tokens, but prompts may have up "
            f"to {longest:,}",
            fix=Fix(
                text=f"Raise the buffer to at least {needed} tokens.",
                config={f"{TRANSCEIVER}.max_tokens_in_buffer": needed},
            ),
            # The engine's limit counts the response as well, and all prompts may be shorter.
            level=None if deployment.context_length else Level.WARNING,
        )


def _copies_nothing(worker: Worker) -> bool:
    """Whether blocks are sent from the KV cache itself, where the models and pools allow it."""
    return worker.env("TRTLLM_TRY_ZCOPY_FOR_KVCACHE_TRANSFER") == "1"


def _buffer(worker: Worker) -> int | None:
    """Tokens of the C++ transceiver's buffer, if its size is set. The Python runtime has none."""
    if not worker.is_trtllm or transceiver_runtime(worker) == "PYTHON":
        return None
    return positive_int(worker.get(f"{TRANSCEIVER}.max_tokens_in_buffer"))


def _longest(deployment: ServingDeployment, worker: Worker) -> int | None:
    """Tokens of the longest prompt that can reach the worker, which prefill workers limit."""
    if worker.role is Role.PREFILL:
        return _accepted(deployment, worker)
    lengths = [_accepted(deployment, w) for w in deployment.pool(Role.PREFILL)]
    known = [length for length in lengths if length]
    return max(known) if known else deployment.longest_prompt(worker)


def _accepted(deployment: ServingDeployment, worker: Worker) -> int | None:
    """Without chunked prefill, TensorRT-LLM refuses prompts above the tokens per step."""
    longest = deployment.longest_prompt(worker)
    step = worker.count("max_batch_tokens")
    if longest and step and worker.get("enable_chunked_prefill") is not True:
        return min(longest, step)
    return longest


def unset_buffer(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_workers(deployment):
        section = worker.get(TRANSCEIVER)
        if worker.is_trtllm and isinstance(section, Mapping) and section.get("backend"):
            if (
                section.get("max_tokens_in_buffer") is None
                and transceiver_runtime(worker) != "PYTHON"
            ):
                known = _longest(deployment, worker)
                longest = known or 8192
                block = worker.count("block_size") or 1
                needed = -(-longest // block) * block
                yield RuleResult(
                    location=worker.config_location(f"{TRANSCEIVER}.max_tokens_in_buffer"),
                    message="max_tokens_in_buffer is unset, so the engine chooses the size of "
                    "the KV transfer buffer",
                    fix=Fix(
                        text="Set the buffer to the longest prompt, "
                        + (f"{needed} tokens." if known else f"such as {needed} tokens."),
                        config={f"{TRANSCEIVER}.max_tokens_in_buffer": needed},
                    ),
                )


def partial_block_buffer(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_workers(deployment):
        buffer = _buffer(worker)
        block = worker.count("block_size")
        if buffer and block and buffer % block:
            yield RuleResult(
                location=worker.config_location(f"{TRANSCEIVER}.max_tokens_in_buffer"),
                message=f"max_tokens_in_buffer {buffer} is not a multiple of tokens_per_block "
                f"{block}",
                fix=Fix(
                    text=f"Round max_tokens_in_buffer up to {-(-buffer // block) * block}.",
                    config={f"{TRANSCEIVER}.max_tokens_in_buffer": -(-buffer // block) * block},
                ),
            )


def short_timeout(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_workers(deployment):
        longest = _longest(deployment, worker) or 0
        key = f"{TRANSCEIVER}.kv_transfer_timeout_ms"
        setting = worker.settings.get(key)
        timeout = 60000 if setting is None else positive_int(setting.value)
        if worker.is_trtllm and setting is not None and setting.value is None:
            yield RuleResult(
                location=setting.location,
                message="kv_transfer_timeout_ms is null, so a lost KV transfer never times out",
                fix=Fix(text="Set kv_transfer_timeout_ms to 600000.", config={key: 600000}),
            )
        if worker.is_trtllm and longest > LONG_PROMPT and timeout and timeout <= 60000:
            yield RuleResult(
                location=worker.config_location(key),
                message=f"KV transfers time out after {timeout / 1000:g} s, but prompts may "
                f"have {longest:,} tokens",
                fix=Fix(
                    text="Raise kv_transfer_timeout_ms to 600000.",
                    config={key: 600000},
                    graph={"kv_transfer.timeout_ms": 600000},
                ),
                level=Level.NOTE if setting is None else None,
                versions=DEFAULT_TIMEOUT if setting is None else None,
            )


def prefill_overlap_scheduler(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.pool(Role.PREFILL):
        is_known = worker.is_trtllm and worker.settings.is_complete
        if is_known and not lacks_transceiver(worker):
            if worker.get("disable_overlap_scheduler") is not True:
                yield RuleResult(
                    location=worker.config_location("disable_overlap_scheduler"),
                    message=f"{worker.name} is a prefill worker and runs the overlap scheduler",
                    fix=Fix(
                        text="Set disable_overlap_scheduler to true.",
                        config={"disable_overlap_scheduler": True},
                    ),
                )


def decode_without_overlap_scheduler(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.pool(Role.DECODE, Role.WORKER):
        if worker.is_trtllm and worker.get("disable_overlap_scheduler") is True:
            # KV connectors such as KVBM require it.
            if worker.get("speculative_config") is None and not worker.get("kv_connector_config"):
                yield RuleResult(
                    location=worker.config_location("disable_overlap_scheduler"),
                    message=f"{worker.name} generates tokens without the overlap scheduler",
                    fix=Fix(
                        text="Set disable_overlap_scheduler to false.",
                        config={"disable_overlap_scheduler": False},
                    ),
                )
