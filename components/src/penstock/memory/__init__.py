"""How much memory a worker's GPU needs, and how many tokens of KV cache are left."""

from penstock.memory.budget import Budget, Line, Plan, budget

__all__ = ["Budget", "Line", "Plan", "budget"]
