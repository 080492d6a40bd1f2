"""Traces of requests: record them on this machine, and explain which stage made one slow."""
