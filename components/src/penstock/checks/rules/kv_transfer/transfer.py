"""Rules of the hand-off: what prefill and decode must agree on to move KV blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.lengths.sequence_lengths import block_size
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker, positive_int

TRANSCEIVER = "cache_transceiver_config"
LONG_PROMPT = 32768  # tokens beyond which the default time-out of 60 s has been too short


def moving_kv(deployment: ServingDeployment) -> Iterator[Worker]:
    """Workers of both pools of a disaggregated graph whose files are known."""
    if deployment.is_disaggregated:
        for worker in deployment.pool(Role.PREFILL, Role.DECODE):
            if worker.settings.is_whole:
                yield worker


@rule(
    id="PS401",
    title="nothing moves the KV cache",
    level=Level.ERROR,
    cause="Dynamo adds no transfer configuration of its own: absent means off for "
    "TensorRT-LLM, a ValueError for vLLM's prefill, mooncake for SGLang.",
    effect="The first hand-off fails, or the worker ends at its start.",
    remedy="Name the backend, the same on both pools.",
    source="dynamo/trtllm/workers/llm_worker.py, dynamo/vllm/args.py 286-300 of 1.6.1; "
    "dynamo#2278, aiconfigurator#519, aiconfigurator#287",
)
def nothing_moves(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in moving_kv(deployment):
        if worker.is_trtllm and not worker.get(f"{TRANSCEIVER}.backend"):
            yield RuleResult(
                location=worker.config(f"{TRANSCEIVER}.backend"),
                message=f"{worker.name} has no {TRANSCEIVER}.backend, which leaves transfer off",
                fix=Fix(
                    text="name the same on both pools", config={f"{TRANSCEIVER}.backend": "NIXL"}
                ),
            )
        elif worker.engine is Engine.VLLM and not _has_connector(worker):
            yield RuleResult(
                location=worker.config("kv-transfer-config"),
                message=f"{worker.name} has no --kv-transfer-config",
                fix=Fix(
                    text="name the connector",
                    config={
                        "kv-transfer-config": {
                            "kv_connector": "NixlConnector",
                            "kv_role": "kv_both",
                        }
                    },
                ),
                # vLLM's decode starts without one, and computes every prompt again.
                level=Level.WARNING if worker.role is Role.DECODE else None,
            )
        elif worker.engine is Engine.SGLANG and not worker.get("disaggregation-transfer-backend"):
            yield RuleResult(
                location=worker.config("disaggregation-transfer-backend"),
                message=f"{worker.name} names no --disaggregation-transfer-backend, and SGLang "
                "takes mooncake",
                fix=Fix(text="name it", config={"disaggregation-transfer-backend": "nixl"}),
                level=Level.WARNING,
            )


def _has_connector(worker: Worker) -> bool:
    """Named as a whole, or by `--kv-transfer-config.kv_connector`."""
    keys = ("kv-transfer-config", "kv-transfer-config.kv_connector")
    return any(worker.get(key) is not None for key in keys)


@rule(
    id="PS403",
    title="a transfer backend by default",
    level=Level.WARNING,
    cause="DEFAULT takes what TRTLLM_USE_*_KVCACHE says, else NIXL.",
    effect="An image or a variable decides; 4 + 4 workers on one host failed so.",
    remedy="Name NIXL or UCX.",
    source="dynamo#5884; kv-cache-transfer.md@2f345512",
)
def default_backend(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in moving_kv(deployment):
        if worker.is_trtllm and worker.get(f"{TRANSCEIVER}.backend") == "DEFAULT":
            yield RuleResult(
                location=worker.config(f"{TRANSCEIVER}.backend"),
                message="backend DEFAULT: the environment decides, else NIXL",
                fix=Fix(text="name it", config={f"{TRANSCEIVER}.backend": "NIXL"}),
            )


def runtime_of(worker: Worker) -> str:
    """PYTHON, CPP, or auto where the engine chooses; it has no choice but CPP without NIXL."""
    said = worker.get(f"{TRANSCEIVER}.transceiver_runtime") or "auto"
    backend = worker.get(f"{TRANSCEIVER}.backend")
    return "CPP" if said == "auto" and backend in ("UCX", "MOONCAKE", "MPI") else str(said)


@rule(
    id="PS407",
    title="a transfer buffer smaller than a prompt",
    level=Level.ERROR,
    cause="max_tokens_in_buffer is below the longest prompt that the worker accepts.",
    effect="Workers lock up under load with num_fitting_reqs=0, and never recover.",
    remedy="Hold the longest prompt, in whole blocks.",
    source="Dynamo TensorRT-LLM known issues; dynamo#4327",
)
def small_buffer(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in moving_kv(deployment):
        buffer = positive_int(worker.get(f"{TRANSCEIVER}.max_tokens_in_buffer"))
        longest = _longest(deployment, worker)
        if not worker.is_trtllm or not buffer or not longest or buffer >= longest:
            continue
        block = block_size(worker) or 1
        needed = -(-longest // block) * block
        yield RuleResult(
            location=worker.config(f"{TRANSCEIVER}.max_tokens_in_buffer"),
            message=f"max_tokens_in_buffer {buffer:,}, and a prompt may have {longest:,} tokens",
            fix=Fix(
                text="hold the longest prompt, in whole blocks",
                config={f"{TRANSCEIVER}.max_tokens_in_buffer": needed},
            ),
        )


def _longest(deployment: ServingDeployment, worker: Worker) -> int | None:
    """Tokens of the longest prompt that can reach the worker: what prefill takes."""
    if worker.role is Role.PREFILL:
        return deployment.longest_prompt(worker)
    lengths = [deployment.longest_prompt(w) for w in deployment.pool(Role.PREFILL)]
    known = [length for length in lengths if length]
    return max(known) if known else deployment.longest_prompt(worker)


@rule(
    id="PS408",
    title="a transfer buffer of unknown size",
    level=Level.WARNING,
    cause="max_tokens_in_buffer is unset, so the engine sizes the buffer itself.",
    effect="A published recipe asked for 194.9 GiB so, and no memory setting helped.",
    remedy="Set it to the longest prompt.",
    source="dynamo#12276",
)
def no_buffer(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in moving_kv(deployment):
        section = worker.get(TRANSCEIVER)
        if worker.is_trtllm and isinstance(section, Mapping) and section.get("backend"):
            if section.get("max_tokens_in_buffer") is None and runtime_of(worker) != "PYTHON":
                longest = _longest(deployment, worker) or 8192
                block = block_size(worker) or 1
                yield RuleResult(
                    location=worker.config(f"{TRANSCEIVER}.max_tokens_in_buffer"),
                    message="max_tokens_in_buffer is unset",
                    fix=Fix(
                        text="size it for the longest prompt",
                        config={
                            f"{TRANSCEIVER}.max_tokens_in_buffer": -(-longest // block) * block
                        },
                    ),
                )


@rule(
    id="PS409",
    title="a transfer buffer of part blocks",
    level=Level.ERROR,
    cause="max_tokens_in_buffer is no multiple of tokens_per_block.",
    effect="The worker crashes at the first transfer.",
    remedy="Round it up.",
    source="AISimulate generator rules, marked CRASH",
)
def part_blocks(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in moving_kv(deployment):
        buffer = positive_int(worker.get(f"{TRANSCEIVER}.max_tokens_in_buffer"))
        block = block_size(worker)
        if worker.is_trtllm and buffer and block and buffer % block:
            yield RuleResult(
                location=worker.config(f"{TRANSCEIVER}.max_tokens_in_buffer"),
                message=f"max_tokens_in_buffer {buffer} is no multiple of tokens_per_block, "
                f"{block}",
                fix=Fix(
                    text="round it up",
                    config={f"{TRANSCEIVER}.max_tokens_in_buffer": -(-buffer // block) * block},
                ),
            )


@rule(
    id="PS410",
    title="a time-out too short for long prompts",
    level=Level.WARNING,
    cause="kv_transfer_timeout_ms is 60 s unless set; long prompts queue longer than that.",
    effect="Transfers fail under load, and with them the requests.",
    remedy="600000.",
    source="dynamo#10671; TensorRT-LLM#15152, #13868",
)
def short_timeout(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in moving_kv(deployment):
        longest = _longest(deployment, worker) or 0
        key = f"{TRANSCEIVER}.kv_transfer_timeout_ms"
        said = worker.settings.get(key)
        timeout = 60000 if said is None else positive_int(said.value)
        if worker.is_trtllm and said is not None and said.value is None:
            yield RuleResult(
                location=said.location,
                message="kv_transfer_timeout_ms is null: a lost transfer is waited for for ever",
                fix=Fix(text="let it fail", config={key: 600000}),
            )
        if worker.is_trtllm and longest > LONG_PROMPT and timeout and timeout <= 60000:
            yield RuleResult(
                location=worker.config(key),
                message=f"transfers fail after {timeout / 1000:g} s, and prompts may have "
                f"{longest:,} tokens",
                fix=Fix(
                    text="wait longer",
                    config={key: 600000},
                    graph={"kv_transfer.timeout_ms": 600000},
                ),
            )


@rule(
    id="PS411",
    title="a prefill worker with the overlap scheduler",
    level=Level.ERROR,
    cause="Prefill-only workers do not support it.",
    effect="The worker crashes or hangs.",
    remedy="disable_overlap_scheduler: true on prefill.",
    source="examples/backends/trtllm prefill.yaml (qwen3) of ai-dynamo/dynamo; AISimulate "
    "generator rules. TensorRT-LLM's own CI leaves it on in one case.",
)
def overlapping_prefill(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.pool(Role.PREFILL):
        if worker.is_trtllm and worker.settings.is_whole:
            if worker.get("disable_overlap_scheduler") is not True:
                yield RuleResult(
                    location=worker.config("disable_overlap_scheduler"),
                    message=f"{worker.name} runs the overlap scheduler",
                    fix=Fix(text="switch it off", config={"disable_overlap_scheduler": True}),
                )


@rule(
    id="PS412",
    title="decode without the overlap scheduler",
    level=Level.WARNING,
    cause="disable_overlap_scheduler is true where tokens are generated.",
    effect="The host's work is no longer hidden behind the GPU's: slower steps.",
    remedy="Leave it on, but for prefill and some draft models.",
    source="AISimulate generator rules; TensorRT-LLM 0.20 release notes",
)
def lone_decode(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.pool(Role.DECODE, Role.WORKER):
        if worker.is_trtllm and worker.get("disable_overlap_scheduler") is True:
            if worker.get("speculative_config") is None:
                yield RuleResult(
                    location=worker.config("disable_overlap_scheduler"),
                    message=f"{worker.name} runs without the overlap scheduler",
                    fix=Fix(text="leave it on", config={"disable_overlap_scheduler": False}),
                )
