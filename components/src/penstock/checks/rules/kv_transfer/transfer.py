"""Rules about KV transfer: backend, buffer, timeout and scheduler of each worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.command_line.connector_flag import names_connector
from penstock.checks.version_range import DYNAMO, EVERY_TRTLLM, Versions
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


@rule(
    id="PS401",
    title="no KV transfer backend",
    level=Level.ERROR,
    cause="Dynamo adds no transfer configuration of its own. Without one, TensorRT-LLM disables "
    "KV transfer, a vLLM prefill worker raises ValueError, and SGLang uses mooncake.",
    effect="The first KV transfer fails, or the worker exits at startup.",
    remedy="Configure the same backend on both pools.",
    source="dynamo/trtllm/workers/llm_worker.py, dynamo/vllm/args.py 286-300 of 1.6.1; "
    "dynamo#2278, aiconfigurator#519, aiconfigurator#287",
    versions=DYNAMO,
    other_levels=(Level.WARNING, Level.NOTE),
)
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


@rule(
    id="PS403",
    title="the KV transfer backend is DEFAULT",
    level=Level.NOTE,
    cause="DEFAULT uses the backend that a variable TRTLLM_USE_*_KVCACHE selects, or NIXL if none "
    "is set. Images before Dynamo 0.8 set TRTLLM_USE_UCX_KVCACHE.",
    effect="The image or a variable selects the backend.",
    example="4 + 4 workers on one host failed because of this.",
    remedy="Set the backend to NIXL or UCX.",
    source="dynamo#5884; kv-cache-transfer.md@2f345512, and the same page of 0.7.0 (UCX)",
    versions=EVERY_TRTLLM,
    engines=(Engine.TRTLLM,),
)
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


@rule(
    id="PS407",
    title="the KV transfer buffer is smaller than the longest prompt",
    level=Level.ERROR,
    cause="max_tokens_in_buffer is less than the longest prompt that the worker accepts.",
    effect="A longer prompt never leaves the prefill worker. Workers hang under load with "
    "num_fitting_reqs=0 and do not recover.",
    remedy="Raise max_tokens_in_buffer to the longest prompt, rounded up to a multiple of the "
    "block size.",
    source="Dynamo TensorRT-LLM known issues; dynamo#4327",
    versions=EVERY_TRTLLM,
    engines=(Engine.TRTLLM,),
    other_levels=(Level.WARNING,),
    exceptions="Nothing is reported with `transceiver_runtime: PYTHON`, which sends blocks from "
    "the KV cache and has no such buffer, or with TRTLLM_TRY_ZCOPY_FOR_KVCACHE_TRANSFER=1. In a "
    "manifest it is a warning, because the engine's limit includes the output.",
)
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


@rule(
    id="PS408",
    title="the KV transfer buffer has no configured size",
    level=Level.NOTE,
    cause="max_tokens_in_buffer is unset, so the engine chooses the buffer size.",
    effect="The buffer may not fit into the GPU memory, and no memory setting limits it.",
    example="A published recipe requested 194.9 GiB.",
    remedy="Set max_tokens_in_buffer to the longest prompt.",
    source="dynamo#12276",
    versions=EVERY_TRTLLM,
    engines=(Engine.TRTLLM,),
)
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


@rule(
    id="PS409",
    title="the KV transfer buffer is not a multiple of the block size",
    level=Level.WARNING,
    cause="max_tokens_in_buffer is not a multiple of tokens_per_block.",
    effect="The worker may crash at a KV transfer.",
    remedy="Round max_tokens_in_buffer up to a multiple of tokens_per_block.",
    source="AISimulate generator rules, marked CRASH",
    versions=EVERY_TRTLLM,
    engines=(Engine.TRTLLM,),
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


@rule(
    id="PS410",
    title="the KV transfer timeout is too short for long prompts",
    level=Level.WARNING,
    cause="kv_transfer_timeout_ms is 60 s unless set. Long prompts may wait longer than that.",
    effect="KV transfers fail under load, and their requests fail with them.",
    remedy="Set kv_transfer_timeout_ms to 600000.",
    source="dynamo#10671; TensorRT-LLM#15152, #13868",
    versions=EVERY_TRTLLM,
    engines=(Engine.TRTLLM,),
    other_levels=(Level.NOTE,),
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


@rule(
    id="PS411",
    title="the overlap scheduler is enabled on a prefill worker",
    level=Level.ERROR,
    cause="Before 1.3, a TensorRT-LLM worker with a cache transceiver and the overlap scheduler, "
    "which is on by default, refuses requests that only compute the prompt.",
    effect="Each prefill request fails with “Context only requests are not supported in pytorch "
    "backend when overlap is enabled”.",
    remedy="Set disable_overlap_scheduler: true on prefill workers.",
    source="tensorrt_llm/executor/base_worker.py before TensorRT-LLM#10755, which removes the "
    "restriction",
    versions=Versions(trtllm="<1.3.0rc0"),
    exceptions="Workers without a cache transceiver are reported by PS401.",
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


@rule(
    id="PS412",
    title="the overlap scheduler is disabled on a decode worker",
    level=Level.NOTE,
    cause="disable_overlap_scheduler is true on a worker that generates tokens.",
    effect="Decode steps are slower, because host work no longer overlaps with GPU work.",
    remedy="Leave the overlap scheduler enabled, except on prefill workers and for some draft "
    "models.",
    source="AISimulate generator rules; TensorRT-LLM 0.20 release notes",
    versions=EVERY_TRTLLM,
    engines=(Engine.TRTLLM,),
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
