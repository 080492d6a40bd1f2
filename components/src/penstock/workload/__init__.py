"""Workloads: requests with their lengths, arrivals and shared prefixes."""

from penstock.workload.load import find_workload, ready_names
from penstock.workload.model import Workload
from penstock.workload.request import BLOCK_TOKENS, Request
from penstock.workload.sample import sample

__all__ = ["BLOCK_TOKENS", "Request", "Workload", "find_workload", "ready_names", "sample"]
