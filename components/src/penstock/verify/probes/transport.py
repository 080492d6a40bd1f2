"""The transport of KV transfers, from UCX's log lines: there is no metric."""

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
        return cannot_tell("the graph has one pool: no KV is transferred")
    if expected is not None and not expected.uses_ucx:
        return cannot_tell("llama.cpp's workers transfer KV in shared memory, not with UCX")
    connections = target.log_matches(CONNECTION)
    if not connections:
        return cannot_tell(
            "no log has UCX's lines about its connections",
            "Give the workers' logs (--log), with UCX_LOG_LEVEL=info in engine.env.",
        )
    names = sorted({name for match in connections for name in _transports(match["lanes"])})
    kinds = [kind for kind, begins in KINDS.items() if any(n.startswith(begins) for n in names)]
    used = f"{', '.join(kinds)}: {', '.join(names)}"
    if not kinds:
        return cannot_tell(f"UCX names no known transport: {connections[-1]['lanes']}")
    allowed = expected.transport if expected is not None else "auto"
    if allowed == "rdma" and ("TCP" in kinds or not {"RDMA", "NVLink or CUDA IPC"} & set(kinds)):
        return failed(
            f"the graph asks for RDMA, but KV moves over {used}",
            "Give the pods an RDMA device (kv_transfer.rdma_resource), and let UCX use it.",
        )
    if allowed == "tcp" and ("RDMA" in kinds or "TCP" not in kinds):
        return failed(f"the graph asks for TCP, but KV moves over {used}", "Set UCX_TLS.")
    return passed(f"{used} (the graph sets {allowed})")


def _transports(lanes: str) -> list[str]:
    """The transports that carry data; `amo` and `ka` lanes carry atomics and keep-alive only."""
    return [t for lane in LANE.finditer(lanes) for t in lane["transports"].split()]
