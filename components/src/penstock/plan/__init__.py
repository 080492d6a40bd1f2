"""Recommends a graph for a model, a GPU budget, a workload and an SLO, from replays."""
