"""A request uses a prefill and a decode worker if the graph is disaggregated, else one worker."""

from __future__ import annotations

from penstock.manifests.deployment import Role
from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

PROMPT = 200  # tokens


def probe(target: ProbeTarget) -> ProbeResult:
    workers = target.complete(target.prompt(PROMPT), 4).workers
    prefill, decode = workers.get("prefill_worker_id"), workers.get("decode_worker_id")
    if decode is None:
        return cannot_tell(
            "the response names no worker",
            "Only the KV router and a direct endpoint report worker ids.",
        )
    if target.expected is None:
        return cannot_tell(f"no graph was given; prefill {_hex(prefill)}, decode {_hex(decode)}")
    if not target.expected.disaggregated:
        if prefill not in (None, decode):
            return failed(
                f"prefill on {_hex(prefill)}, decode on {_hex(decode)}, but the graph has one pool",
                "Workers of another graph serve this model.",
            )
        return passed(f"worker {_hex(decode)} did prefill and decode")
    if prefill is None or prefill == decode:
        return failed(
            f"worker {_hex(decode)} served the request alone",
            "No prefill worker takes part: see `topology`.",
        )
    roles = {i.worker_id: i.role for i in target.instances()}
    if roles.get(prefill) is not Role.PREFILL or roles.get(decode) is not Role.DECODE:
        return failed(
            f"prefill on {_hex(prefill)}, decode on {_hex(decode)}: not workers of these pools"
        )
    return passed(f"prefill on {_hex(prefill)}, decode on {_hex(decode)}")


def _hex(worker: int | None) -> str:
    return "none" if worker is None else f"{worker:x}"
