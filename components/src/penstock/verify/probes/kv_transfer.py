"""KV bytes move from prefill to decode, as many as the model's shape predicts."""

from __future__ import annotations

from penstock.models import read_model
from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

PROMPT = 413  # tokens: several blocks of any size and a part of one, longer than gpt-oss's window
BYTES = (
    "vllm:nixl_bytes_transferred_sum",
    "trtllm_kv_transfer_bytes_sum",
    "llamacpp_kv_transfer_bytes_total",
)
SECONDS = (
    "vllm:nixl_xfer_time_seconds_sum",
    "trtllm_kv_transfer_latency_seconds_sum",
    "llamacpp_kv_transfer_seconds_total",
)
FAILED = (
    "vllm:nixl_num_failed_transfers_total",
    "vllm:nixl_num_kv_expired_reqs_total",
    "llamacpp_kv_transfer_failures_total",
)
# llama.cpp transfers a file, which also has a header and, per token, its id and position.
FILE_BYTES_PER_TOKEN, FILE_BYTES = 24, 8192


def probe(target: ProbeTarget) -> ProbeResult:
    if target.expected is not None and not target.expected.disaggregated:
        return cannot_tell("the graph has one pool: no KV is transferred")
    before = target.metrics()
    if before.total(BYTES) is None:
        return cannot_tell(
            "no worker exports the bytes transferred",
            "Give the workers' metrics (--metrics); a mocker transfers no KV and exports none.",
        )
    target.complete(target.prompt(PROMPT), 4)
    start = before.total(BYTES) or 0.0
    target.wait_for(lambda: (target.metrics().total(BYTES) or 0.0) > start)
    after = target.metrics()
    moved = int((after.total(BYTES) or 0.0) - start)
    lost = (after.total(FAILED) or 0.0) - (before.total(FAILED) or 0.0)
    if moved <= 0 or lost:
        return failed(
            f"{moved} bytes moved for {PROMPT} tokens, {lost:.0f} transfers failed or expired",
            "The decode worker computed the prompt itself, or NIXL failed: read its log.",
        )
    seconds = (after.total(SECONDS) or 0.0) - (before.total(SECONDS) or 0.0)
    transfer = f"{moved:,} bytes for {PROMPT} tokens in {1000 * seconds:.1f} ms"
    predicted = _predicted(target)
    if predicted is None:
        return cannot_tell(
            f"{transfer}, but the expected number is not known",
            "Give the model's folder (--model-dir), and a graph that sets the block size.",
        )
    if moved < predicted:
        return failed(
            f"{transfer}; the model's shape predicts {predicted:,}",
            "Blocks were not transferred, or the KV cache has another data type than in the graph.",
        )
    most = predicted + _other_bytes(target)
    if moved > most:
        return cannot_tell(
            f"{transfer}; the model's shape predicts {predicted:,}",
            "Stop other traffic, which also transfers KV. Otherwise the KV cache has a larger data "
            "type than in the graph.",
        )
    others = (
        f", {moved - predicted:,} of them for the ids of the tokens" if moved > predicted else ""
    )
    return passed(f"{transfer}, as the model's shape predicts{others}")


def _predicted(target: ProbeTarget) -> int | None:
    expected, folder = target.expected, target.model_folder
    shape = read_model(folder) if folder is not None else None
    if shape is None or expected is None:
        return None
    block_size = 1 if expected.runs_llamacpp else expected.block_size
    if block_size is None:
        return None
    return shape.kv_bytes(PROMPT, block_size, expected.kv_dtype)


def _other_bytes(target: ProbeTarget) -> int:
    """The most bytes that a transfer has in addition to the KV."""
    is_file = target.expected is not None and target.expected.runs_llamacpp
    return PROMPT * FILE_BYTES_PER_TOKEN + FILE_BYTES if is_file else 0
