"""A request really goes through both pools, on two workers; or through one, as the graph says."""

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
            "the answer names no worker",
            "only the KV router and a direct endpoint report worker ids",
        )
    if target.expected is None:
        return cannot_tell(f"no graph was given; prefill {_hex(prefill)}, decode {_hex(decode)}")
    if not target.expected.disaggregated:
        if prefill not in (None, decode):
            return failed(
                f"prefill on {_hex(prefill)}, decode on {_hex(decode)}, and the graph has one pool",
                "workers of another graph answer for this model",
            )
        return passed(f"one worker did both: {_hex(decode)}")
    if prefill is None or prefill == decode:
        return failed(
            f"worker {_hex(decode)} answered alone", "no prefill worker takes part: see topology"
        )
    roles = {i.worker_id: i.role for i in target.instances()}
    if roles.get(prefill) is not Role.PREFILL or roles.get(decode) is not Role.DECODE:
        return failed(f"prefill on {_hex(prefill)}, decode on {_hex(decode)}: not of these pools")
    return passed(f"prefill on {_hex(prefill)}, decode on {_hex(decode)}")


def _hex(worker: int | None) -> str:
    return "none" if worker is None else f"{worker:x}"
