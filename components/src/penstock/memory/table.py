"""A memory budget as text and as JSON, for `penstock explain --memory`."""

from __future__ import annotations

from typing import Any

from penstock.memory.budget import WITHIN, MemoryBudget


def as_text(name: str, budget: MemoryBudget) -> str:
    """The worker, each use of one GPU's memory with the arithmetic, and the KV cache capacity."""
    inputs = budget.inputs
    gpus = inputs.tp * inputs.pp * inputs.data_parallel
    rows = [(str(line.use), f"{line.gib:.1f}", line.how) for line in budget.lines]
    rows.append(("KV cache", f"{budget.pool_gib:.1f}", budget.pool_how))
    lines = [
        f"Component:   {name}",
        f"GPUs:        {gpus} × {inputs.gpu.name}, {inputs.gpu.memory_gib} GiB each",
        f"Model:       {inputs.model.name}",
        f"Engine:      {inputs.engine}, {_layout(budget)}",
        "Memory per GPU:",
    ]
    lines += [f"  {use:<17} {gib:>7} GiB  {how}" for use, gib, how in rows]
    if budget.beside:
        uses = " + ".join(f"{line.use} {line.gib:.1f}" for line in budget.beside)
        rest = inputs.gpu.memory_gib - budget.used_gib - budget.pool_gib
        lines.append(f"  {'outside fraction':<17} {rest:>7.1f} GiB  needed: {uses}")
    ranks = inputs.attention_ranks * inputs.data_parallel
    lines += [
        "KV cache capacity:",
        f"  Per token:   {budget.token_bytes / 1024:.1f} KiB ({inputs.kv_dtype})",
        f"  Tokens:      {budget.kv_tokens:,}" + (" per rank" if ranks > 1 else ""),
        f"  Range:       {_range(budget)}",
        f"  Sequences:   {budget.sequences:.2f} of {inputs.context:,} tokens"
        + (f", in {ranks} ranks" if ranks > 1 else ""),
    ]
    return "\n".join(lines)


def _range(budget: MemoryBudget) -> str:
    """The range of the tokens, and the logs that it is from."""
    low, high = budget.smallest.kv_tokens, budget.largest.kv_tokens
    if low == high:
        return f"{low:,} tokens, as configured"
    within, logs = WITHIN[budget.inputs.engine]
    basis = f"the KV cache of {within} of {logs} published logs differs less"
    return f"{low:,} to {high:,} tokens, ± {budget.error_gib:.1f} GiB: {basis}"


def _layout(budget: MemoryBudget) -> str:
    """The parallelism: `TP 4 × PP 2`."""
    inputs = budget.inputs
    layout = f"TP {inputs.tp}" + (f" × PP {inputs.pp}" if inputs.pp > 1 else "")
    if inputs.data_parallel > 1:
        layout += f" × DP {inputs.data_parallel}"
    if inputs.attention_ranks > 1:
        layout += f", attention DP {inputs.attention_ranks}"
    return layout


def as_dict(name: str, budget: MemoryBudget) -> dict[str, Any]:
    """The same for `--json`."""
    inputs = budget.inputs
    return {
        "component": name,
        "gpu": inputs.gpu.name,
        "memory_gib": inputs.gpu.memory_gib,
        "uses": [{"name": u.use, "gib": round(u.gib, 3), "how": u.how} for u in budget.lines],
        "kv_cache_gib": round(budget.pool_gib, 3),
        "kv_bytes_per_token": budget.token_bytes,
        "kv_tokens": budget.kv_tokens,
        "kv_tokens_range": [budget.smallest.kv_tokens, budget.largest.kv_tokens],
        "kv_error": round(budget.kv_error, 3),
        "context": inputs.context,
        "sequences": round(budget.sequences, 2),
    }
