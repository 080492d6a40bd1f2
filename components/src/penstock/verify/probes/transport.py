"""Over what KV moves, from UCX's own words: no metric tells."""

from __future__ import annotations

import re

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

# "UCX  INFO    ucp_context_0 inter-node cfg#2 rma(rc_mlx5/mlx5_0:1)  am(rc_mlx5/mlx5_0:1)"
CONNECTION = r"UCX\s+INFO\s+\S+ (?:intra|inter)-node cfg#\d+ (?P<lanes>.+)"
LANE = re.compile(r"(?P<use>rma|rma_am|am)\((?P<transports>[^)]*)\)")
KINDS = {
    "RDMA": ("rc", "dc", "ud", "ib", "srd"),
    "NVLink or CUDA IPC": ("cuda_ipc",),
    "shared memory": ("cma", "sysv", "posix", "knem", "xpmem"),
    "TCP": ("tcp",),
}


def probe(target: ProbeTarget) -> ProbeResult:
    expected = target.expected
    if expected is not None and not expected.disaggregated:
        return cannot_tell("the graph has one pool: nothing is to be moved")
    connections = target.log_matches(CONNECTION)
    if not connections:
        return cannot_tell(
            "no log holds a line of UCX about its connections",
            "give the workers' logs (--log), with UCX_LOG_LEVEL=info in engine.env",
        )
    names = sorted({name for match in connections for name in _transports(match["lanes"])})
    kinds = [kind for kind, begins in KINDS.items() if any(n.startswith(begins) for n in names)]
    told = f"{', '.join(kinds)}: {', '.join(names)}"
    if not kinds:
        return cannot_tell(f"UCX names no transport that is known here: {connections[-1]['lanes']}")
    wanted = expected.transport if expected is not None else "auto"
    if wanted == "rdma" and ("TCP" in kinds or not {"RDMA", "NVLink or CUDA IPC"} & set(kinds)):
        return failed(
            f"the graph asks for RDMA, and KV moves over {told}",
            "the pods have no RDMA device (kv_transfer.rdma_resource), or UCX may not use it",
        )
    if wanted == "tcp" and ("RDMA" in kinds or "TCP" not in kinds):
        return failed(f"the graph asks for TCP, and KV moves over {told}", "set UCX_TLS")
    return passed(f"{told} (the graph says {wanted})")


def _transports(lanes: str) -> list[str]:
    """The transports that carry data; `amo` and `ka` lanes carry atomics and keep-alive only."""
    return [t for lane in LANE.finditer(lanes) for t in lane["transports"].split()]
