"""KV bytes really move from prefill to decode: as many as the model's shape predicts."""

from __future__ import annotations

from penstock.models import read_model
from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

PROMPT = 413  # tokens: several blocks of any size and a part of one, longer than gpt-oss's window
BYTES = ("vllm:nixl_bytes_transferred_sum", "trtllm_kv_transfer_bytes_sum")
SECONDS = ("vllm:nixl_xfer_time_seconds_sum", "trtllm_kv_transfer_latency_seconds_sum")
FAILED = ("vllm:nixl_num_failed_transfers_total", "vllm:nixl_num_kv_expired_reqs_total")


def probe(target: ProbeTarget) -> ProbeResult:
    if target.expected is not None and not target.expected.disaggregated:
        return cannot_tell("the graph has one pool: nothing is to be moved")
    before = target.metrics()
    if before.total(BYTES) is None:
        return cannot_tell(
            "no worker exports bytes transferred",
            "give the workers' metrics (--metrics); a mocker moves no KV and exports none",
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
            "decode computed the prompt itself, or NIXL failed: see the decode workers' logs",
        )
    seconds = (after.total(SECONDS) or 0.0) - (before.total(SECONDS) or 0.0)
    told = f"{moved:,} bytes for {PROMPT} tokens in {1000 * seconds:.1f} ms"
    predicted = _predicted(target)
    if predicted is None:
        return cannot_tell(
            f"{told}, but how many it should be is not known",
            "give the model's folder (--model-dir) and a graph that states the block size",
        )
    if moved < predicted:
        return failed(
            f"{told}; the model's shape predicts {predicted:,}",
            "blocks were left out, or the KV cache is of another type than the graph says",
        )
    if moved != predicted:
        return cannot_tell(
            f"{told}; the model's shape predicts {predicted:,}",
            "other traffic moved KV meanwhile (ask when there is none), or the KV cache is of a "
            "larger type than the graph says",
        )
    return passed(f"{told}, as the model's shape predicts")


def _predicted(target: ProbeTarget) -> int | None:
    expected, folder = target.expected, target.model_folder
    shape = read_model(folder) if folder is not None else None
    if shape is None or expected is None or expected.block_size is None:
        return None
    return shape.kv_bytes(PROMPT, expected.block_size, expected.kv_dtype)
