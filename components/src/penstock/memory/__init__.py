"""The memory that a worker's GPU needs, and the tokens of KV cache that are left."""

from penstock.memory.budget import Line, MemoryBudget, MemoryInputs, Use, memory_budget

__all__ = ["Line", "MemoryBudget", "MemoryInputs", "Use", "memory_budget"]
