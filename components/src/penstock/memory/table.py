"""A budget as a table for the reader: `penstock explain --memory`."""

from __future__ import annotations

from typing import Any

from penstock.memory.budget import MemoryBudget


def as_text(name: str, budget: MemoryBudget) -> str:
    """Each use of one GPU with how it was reckoned, then what is left for KV."""
    inputs = budget.inputs
    layout = f"TP {inputs.tp}" + (f" × PP {inputs.pp}" if inputs.pp > 1 else "")
    if inputs.data_parallel > 1:
        layout += f" × DP {inputs.data_parallel}"
    if inputs.attention_ranks > 1:
        layout += f", attention DP {inputs.attention_ranks}"
    rows = [(line.name, f"{line.gib:.1f}", line.how) for line in budget.lines]
    rows.append(("KV cache", f"{budget.pool_gib:.1f}", budget.pool_how))
    gpus = inputs.tp * inputs.pp * inputs.data_parallel
    lines = [
        f"{name}: one of its {gpus} {inputs.gpu.name}, {inputs.gpu.memory_gib} GiB "
        f"({inputs.engine}, {inputs.model.name}, {layout})"
    ]
    lines += [f"  {use:<17} {gib:>7} GiB  {how}" for use, gib, how in rows]
    if budget.beside:
        uses = " + ".join(f"{line.name} {line.gib:.1f}" for line in budget.beside)
        left = inputs.gpu.memory_gib - budget.used_gib - budget.pool_gib
        lines.append(f"  {uses} GiB have the {left:.1f} GiB that the fraction leaves")
    ranks = inputs.attention_ranks * inputs.data_parallel
    lines.append(
        f"  {budget.token_bytes / 1024:.1f} KiB of KV a token ({inputs.kv_dtype}): "
        f"{budget.kv_tokens:,} tokens, {budget.sequences:.2f} sequences of {inputs.context:,}"
        + (f" in {ranks} ranks" if ranks > 1 else "")
    )
    return "\n".join(lines)


def as_dict(name: str, budget: MemoryBudget) -> dict[str, Any]:
    """The same for `--json`."""
    inputs = budget.inputs
    return {
        "component": name,
        "gpu": inputs.gpu.name,
        "memory_gib": inputs.gpu.memory_gib,
        "uses": [{"name": u.name, "gib": round(u.gib, 3), "how": u.how} for u in budget.lines],
        "kv_cache_gib": round(budget.pool_gib, 3),
        "kv_bytes_per_token": budget.token_bytes,
        "kv_tokens": budget.kv_tokens,
        "context": inputs.context,
        "sequences": round(budget.sequences, 2),
    }
