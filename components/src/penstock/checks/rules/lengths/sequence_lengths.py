"""Rules of lengths: context, prompts, steps, and what each side of a graph takes of them."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.engines.settings import WORDS
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

# With one of these the context may go beyond the positions in config.json (RoPE scaling).
STRETCHED = ("hf-overrides", "json-model-override-args", "model_kwargs")


def block_size(worker: Worker) -> int | None:
    return worker.count("block_size")


def chunks_prompts(worker: Worker) -> bool | None:
    """Whether a prompt may take several steps; None where the engine decides by model and GPU."""
    if worker.is_trtllm:
        return worker.get("enable_chunked_prefill") is True
    if worker.engine is Engine.VLLM:
        return worker.get("enable-chunked-prefill") is not False
    return None


@rule(
    id="PS120",
    title="a context longer than the model's",
    level=Level.ERROR,
    cause="The context length is above the positions that the model was made for.",
    effect="vLLM refuses to start; other engines answer nonsense past the limit.",
    remedy="Set at most the model's max_position_embeddings.",
    source="vllm#7080, vllm#17924",
)
def beyond_positions(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        said = worker.settings.word("context_length")
        length = worker.count("context_length")
        model = deployment.model
        if any(worker.get(key) for key in STRETCHED):
            continue
        if said and length and model and model.positions and length > model.positions:
            key = WORDS["context_length"][worker.engine]
            yield RuleResult(
                location=said.location,
                message=f"{length:,} tokens, and {model.name} has {model.positions:,} positions",
                fix=Fix(
                    text=f"set at most {model.positions}",
                    config={key: model.positions},
                ),
            )


@rule(
    id="PS121",
    title="prompts longer than a step, not chunked",
    level=Level.ERROR,
    cause="Without chunked prefill a prompt must fit into one step, and the step is smaller "
    "than the context length.",
    effect="TensorRT-LLM answers longer prompts with 500 (1.6.0 known issue), vLLM does not start.",
    remedy="Switch chunked prefill on, or raise the tokens of a step.",
    source="Dynamo 1.6.0 known issues; vllm#33109",
)
def prompt_above_step(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        longest, tokens = deployment.longest_prompt(worker), worker.count("max_batch_tokens")
        if (
            (worker.is_trtllm and not worker.reads_prompts)
            or chunks_prompts(worker) is not False
            or not worker.settings.is_whole
        ):
            continue
        if longest and tokens and tokens < longest:
            key = "enable_chunked_prefill" if worker.is_trtllm else "enable-chunked-prefill"
            yield RuleResult(
                location=worker.settings.location("max_batch_tokens"),
                message=f"a step takes {tokens:,} tokens, a prompt may have {longest:,}, and "
                "chunked prefill is off",
                fix=Fix(text="let prompts take several steps", config={key: True}),
                # Nobody asked for the model's whole length: short prompts may be all there are.
                level=None if worker.settings.word("context_length") else Level.WARNING,
            )


@rule(
    id="PS122",
    title="a step that is no whole number of KV blocks",
    level=Level.ERROR,
    cause="max_num_tokens of a prefill worker is no multiple of tokens_per_block.",
    effect="The worker crashes when a chunk ends inside a block.",
    remedy="Round it up to a multiple.",
    source="AISimulate generator rules, marked CRASH",
)
def step_of_part_blocks(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        block, tokens = block_size(worker), worker.count("max_batch_tokens")
        said = worker.settings.word("max_batch_tokens")
        if not worker.is_trtllm or not said or not block or not tokens or not tokens % block:
            continue
        if worker.reads_prompts and deployment.is_disaggregated:
            whole = -(-tokens // block) * block
            yield RuleResult(
                location=said.location,
                message=f"max_num_tokens {tokens} is no multiple of tokens_per_block, {block}",
                fix=Fix(text=f"set {whole}", config={"max_num_tokens": whole}),
            )


@rule(
    id="PS123",
    title="decode takes shorter sequences than prefill",
    level=Level.ERROR,
    cause="Decode's context length, prompt and answer, is below prefill's.",
    effect="Long prompts are computed, moved, and then refused.",
    remedy="Give decode at least prefill's length.",
    source="AISimulate generator rules; recipes/gpt-oss-120b/trtllm/disagg (9000 and 11000)",
)
def shorter_decode(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        first, second = prefill.count("context_length"), decode.count("context_length")
        if first and second and second < first:
            key = WORDS["context_length"][decode.engine]
            yield RuleResult(
                location=decode.settings.location("context_length"),
                message=f"{decode.name} takes {second:,} tokens, {prefill.name} {first:,}",
                fix=Fix(text="give decode prompt and answer", config={key: first}),
            )


@rule(
    id="PS126",
    title="another context length than the graph's",
    level=Level.WARNING,
    cause="The engine's own key says another length than model.context_length.",
    effect="Requests that the graph promises are refused, or memory is held for longer ones; "
    "`penstock verify` fails on it.",
    remedy="Say it once, in model.context_length.",
    source="penstock",
)
def other_than_promised(deployment: ServingDeployment) -> Iterable[RuleResult]:
    promised = deployment.context_length
    for worker in deployment.workers:
        length = worker.count("context_length")
        if promised and length and length != promised and worker.settings.is_whole:
            yield RuleResult(
                location=worker.settings.location("context_length"),
                message=f"{worker.name} takes {length:,} tokens, and model.context_length is "
                f"{promised:,}",
                fix=Fix(
                    text="leave it to model.context_length",
                    config={WORDS["context_length"][worker.engine]: promised},
                ),
            )


@rule(
    id="PS124",
    title="fewer tokens than sequences in a step of vLLM",
    level=Level.ERROR,
    cause="max-num-batched-tokens is below max-num-seqs.",
    effect="vLLM ends at its start.",
    remedy="Raise the one or lower the other.",
    source="vllm/config/scheduler.py 0.31.0; vllm#1658",
)
def fewer_tokens_than_sequences(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is not Engine.VLLM:
            continue
        tokens, sequences = worker.count("max_batch_tokens"), worker.count("max_sequences")
        if tokens and sequences and tokens < sequences:
            yield RuleResult(
                location=worker.settings.location("max_batch_tokens"),
                message=f"max-num-batched-tokens {tokens} is below max-num-seqs {sequences}",
                fix=Fix(
                    text="each sequence takes a token a step",
                    config={"max-num-batched-tokens": sequences},
                ),
            )


@rule(
    id="PS125",
    title="no context length",
    level=Level.NOTE,
    cause="Nothing says how long a sequence may get, so the engine takes the model's limit.",
    effect="KV cache and transfer buffers are sized for it: one gpt-oss sequence is 4.5 GiB "
    "of fp8 KV.",
    remedy="Set model.context_length, or the engine's own key.",
    source="TensorRT-LLM llm_args.py (max_seq_len), vllm/config/model.py",
)
def no_length(deployment: ServingDeployment) -> Iterable[RuleResult]:
    """Only where the model's own limit is far above what most graphs are sized for."""
    for worker in deployment.pool(Role.PREFILL, Role.WORKER):
        said = worker.settings.word("context_length")
        if said is None and worker.settings.is_whole and worker.engine is not Engine.MOCKER:
            of = f", {deployment.model.positions:,} tokens" if deployment.model else ""
            yield RuleResult(
                location=worker.settings.location("context_length"),
                message=f"no context length: the engine takes the model's{of}",
                fix=Fix(
                    text="say how long a sequence may get",
                    config={WORDS["context_length"][worker.engine]: 32768},
                    graph={"model.context_length": 32768},
                ),
            )
