"""Limits that the graph model and the reader of manifests share."""

MOST_REPLICAS = 10_000  # of one component; Kubernetes supports 5,000 nodes in a cluster
