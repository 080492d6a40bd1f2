"""Limits that the graph model and the readers of files share."""

MOST_REPLICAS = 10_000  # of one component; Kubernetes supports 5,000 nodes in a cluster
# Of a graph or an engine's file. Some rules compare each key with all others; a list of CUDA graph
# sizes has up to 512 items.
MOST_KEYS, MOST_ITEMS = 1000, 5000
# Of a file that are listed: one with more is of another kind, or was written by a program.
MOST_PROBLEMS = 100
