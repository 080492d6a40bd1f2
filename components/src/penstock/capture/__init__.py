"""Turns logs of requests that a deployment served into workload traces."""
