"""A budget as a table for the reader: `penstock explain --memory`."""

from __future__ import annotations

from typing import Any

from penstock.memory.budget import Budget


def as_text(name: str, budget: Budget) -> str:
    """Each use of one GPU with how it was reckoned, then what is left for KV."""
    plan = budget.plan
    layout = f"TP {plan.tp}" + (f" × PP {plan.pp}" if plan.pp > 1 else "")
    if plan.data_parallel > 1:
        layout += f" × DP {plan.data_parallel}"
    if plan.attention_ranks > 1:
        layout += f", attention DP {plan.attention_ranks}"
    rows = [(line.name, f"{line.gib:.1f}", line.how) for line in budget.lines]
    rows.append(("KV cache", f"{budget.pool_gib:.1f}", budget.pool_how))
    gpus = plan.tp * plan.pp * plan.data_parallel
    lines = [
        f"{name}: one of its {gpus} {plan.gpu.name}, {plan.gpu.memory_gib} GiB "
        f"({plan.engine}, {plan.model.name}, {layout})"
    ]
    lines += [f"  {use:<17} {gib:>7} GiB  {how}" for use, gib, how in rows]
    if budget.beside:
        uses = " + ".join(f"{line.name} {line.gib:.1f}" for line in budget.beside)
        left = plan.gpu.memory_gib - sum(line.gib for line in budget.lines) - budget.pool_gib
        lines.append(f"  {uses} GiB have the {left:.1f} GiB that the fraction leaves")
    ranks = plan.attention_ranks * plan.data_parallel
    lines.append(
        f"  {budget.token_bytes / 1024:.1f} KiB of KV a token ({plan.kv_dtype}): "
        f"{budget.kv_tokens:,} tokens, {budget.sequences:.2f} sequences of {plan.context:,}"
        + (f" in {ranks} ranks" if ranks > 1 else "")
    )
    return "\n".join(lines)


def as_dict(name: str, budget: Budget) -> dict[str, Any]:
    """The same for `--json`."""
    plan = budget.plan
    return {
        "component": name,
        "gpu": plan.gpu.name,
        "memory_gib": plan.gpu.memory_gib,
        "uses": [{"name": u.name, "gib": round(u.gib, 3), "how": u.how} for u in budget.lines],
        "kv_cache_gib": round(budget.pool_gib, 3),
        "kv_bytes_per_token": budget.token_bytes,
        "kv_tokens": budget.kv_tokens,
        "context": plan.context,
        "sequences": round(budget.sequences, 2),
    }
