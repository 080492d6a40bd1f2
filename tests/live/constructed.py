"""Small graphs with metrics, as `up` and its processes would state them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import httpx
from msgspec.structs import replace as with_fields

from penstock.live.model import LiveSnapshot
from penstock.live.scrape import Scraper, Scrapes
from penstock.live.snapshot import snapshot
from penstock.local.events import Event
from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import LocalState, ReplicaStatus
from penstock.manifests.deployment import Role
from tests.local.builders import running

FRONTEND_PORT, PREFILL_PORT, DECODE_PORT = 8000, 20001, 20002
GENERATE = 'dynamo_endpoint="generate"'


def replica(
    name: str,
    role: Role,
    pid: int,
    port: int,
    *,
    state: ReplicaState = ReplicaState.READY,
    restarts: int = 0,
) -> ReplicaStatus:
    (template,) = running().replicas
    is_frontend = role is Role.FRONTEND
    return with_fields(
        template,
        name=name,
        program=name.partition(".")[0],
        role=role,
        pid=pid,
        port=port if is_frontend else None,
        system_port=None if is_frontend else port,
        worker_id=None if is_frontend else f"{port:x}",
        state=state,
        restarts=restarts,
    )


def graph(*replicas: ReplicaStatus) -> LocalState:
    """One frontend, prefill and decode worker, unless others are given."""
    replicas = replicas or (
        replica("decode.0", Role.DECODE, 3, DECODE_PORT),
        replica("frontend.0", Role.FRONTEND, 1, FRONTEND_PORT),
        replica("prefill.0", Role.PREFILL, 2, PREFILL_PORT),
    )
    names = {r.program for r in replicas}
    desired = {name: sum(r.program == name for r in replicas) for name in sorted(names)}
    return with_fields(running(), replicas=replicas, desired_replicas=desired)


def frontend_text(requests: int) -> str:
    """Each request: 100 prompt tokens, 40 of them cached, and 10 output tokens."""
    prefix = "dynamo_frontend_"
    ttft = f"{prefix}time_to_first_token_seconds_bucket"
    admitted = f"{prefix}router_admission_received_total"
    return f"""\
{prefix}requests_total{{model="m",status="success"}} {requests}
{prefix}requests_started_total{{model="m"}} {requests + 2}
{prefix}input_sequence_tokens_sum{{model="m"}} {requests * 100}
{prefix}cached_tokens_sum{{model="m"}} {requests * 40}
{prefix}output_tokens_total{{model="m"}} {requests * 10}
{prefix}active_requests{{model="m"}} 2
{prefix}router_queue_pending_requests{{worker_type="prefill"}} 1
{ttft}{{model="m",le="0.1"}} {requests}
{ttft}{{model="m",le="+Inf"}} {requests}
{admitted}{{worker_type="prefill"}} {requests}
{admitted}{{worker_type="decode"}} {requests}
{prefix}worker_last_time_to_first_token_seconds{{worker_id="{PREFILL_PORT}"}} 0.25
{prefix}worker_last_inter_token_latency_seconds{{worker_id="{DECODE_PORT}"}} 0.008
"""


def worker_text(requests: int, engine: str = "") -> str:
    return f"""\
dynamo_component_requests_total{{{GENERATE}}} {requests}
dynamo_component_requests_total{{dynamo_endpoint="kv_query"}} 1000
dynamo_component_inflight_requests{{{GENERATE}}} 3
dynamo_work_handler_queue_depth 1
{engine}"""


class Processes:
    """The metrics at each port, and the time. A text of None: the process hangs."""

    def __init__(self) -> None:
        self.texts: dict[int, str | None] = {
            FRONTEND_PORT: frontend_text(0),
            PREFILL_PORT: worker_text(0),
            DECODE_PORT: worker_text(0),
        }
        self.now = 0.0

    async def read(self, replica: ReplicaStatus) -> str:
        text = self.texts.get(replica.system_port or replica.port or 0, "")
        if text is None:
            await asyncio.Event().wait()
        if not text:
            raise httpx.ConnectError("refused")
        return text

    def scraper(self) -> Scraper:
        return Scraper(self.read, lambda: self.now, wait_s=0.1)


def history(
    states: Sequence[LocalState],
    texts: Sequence[Mapping[int, str | None]],
    events: Sequence[Event] = (),
) -> LiveSnapshot:
    """The snapshot after one scrape per second, with the metrics of each."""
    processes, scrapes = Processes(), Scrapes()
    scraper = processes.scraper()

    async def run() -> None:
        for number, (state, served) in enumerate(zip(states, texts, strict=True)):
            processes.texts |= served
            processes.now = float(number)
            scraped = await scraper.scrape(state.replicas)
            scrapes.add(scraped, [r.pid for r in state.replicas])
        await scraper.close()

    asyncio.run(run())
    return snapshot(states[-1], scrapes, events, 1_800_000_000.0)


def busy(events: Sequence[Event] = ()) -> LiveSnapshot:
    """After 4 requests within one second."""
    engine = f"""\
llamacpp_requests_running 2
llamacpp_requests_waiting 1
llamacpp_prompt_tokens_total 400
llamacpp_cached_tokens_total 160
llamacpp_generated_tokens_total 40
llamacpp_kv_transfer_bytes_total 3100000
dynamo_component_gpu_cache_usage_percent{{{GENERATE}}} 0.25
"""
    before = "\n".join(
        line if "running" in line or "waiting" in line else line.rpartition(" ")[0] + " 0"
        for line in engine.splitlines()
    )
    first = {DECODE_PORT: worker_text(0, before + "\n")}
    second = {
        FRONTEND_PORT: frontend_text(4),
        PREFILL_PORT: worker_text(4),
        DECODE_PORT: worker_text(4, engine),
    }
    return history([graph(), graph()], [first, second], events)
