"""How much memory a worker's GPU needs, and how many tokens of KV cache are left."""

from penstock.memory.budget import Line, MemoryBudget, MemoryInputs, memory_budget

__all__ = ["Line", "MemoryBudget", "MemoryInputs", "memory_budget"]
