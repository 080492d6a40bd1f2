"""What a change does to a running deployment, and the cluster's API."""
