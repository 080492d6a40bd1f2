"""The figures of `status` from Prometheus endpoints, and their table."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from msgspec.structs import replace as with_fields

from penstock.local.control import GraphStatus
from penstock.local.load import LoadSampler
from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import LocalState
from penstock.local.status_table import status_view
from penstock.manifests.deployment import Role
from penstock.text.terminal import console, duration_text
from tests.local.builders import running

MODEL = '{model="m"}'
GENERATE = '{dynamo_endpoint="generate",worker_id="ab"}'
OTHER = '{dynamo_endpoint="kv_query",worker_id="ab"}'


def frontend_text(requests: int, cached: int) -> str:
    prefix = "dynamo_frontend_"
    return f"""\
# TYPE {prefix}requests_total counter
{prefix}requests_total{MODEL} {requests}
{prefix}cached_tokens_sum{MODEL} {cached}
{prefix}input_sequence_tokens_sum{MODEL} {requests * 100}
{prefix}router_queue_pending_requests{{worker_type="decode"}} 3
{prefix}time_to_first_token_seconds_bucket{{model="m",le="0.1"}} {requests}
{prefix}time_to_first_token_seconds_bucket{{model="m",le="+Inf"}} {requests}
dynamo_tokio_something 1
"""


def worker_text(requests: int, engine: str = "") -> str:
    return f"""\
dynamo_component_requests_total{GENERATE} {requests}
dynamo_component_requests_total{OTHER} 1000
dynamo_component_inflight_requests{GENERATE} 9
dynamo_component_inflight_requests{OTHER} 50
dynamo_work_handler_queue_depth 2
{engine}"""


def graph(pid: int = 3) -> LocalState:
    state = running()
    (decode,) = state.replicas
    frontend = with_fields(
        decode,
        name="frontend.0",
        program="frontend",
        role=Role.FRONTEND,
        pid=pid,
        port=8000,
        system_port=None,
    )
    return with_fields(state, replicas=(decode, frontend))


class Endpoints:
    """The texts at two ports, and the time."""

    def __init__(self) -> None:
        self.texts = {8000: "", 20001: ""}
        self.now = 0.0

    def read(self, url: str) -> str:
        text = self.texts[httpx.URL(url).port or 0]
        if not text:
            raise ConnectionRefusedError("refused")
        return text

    def sampler(self) -> LoadSampler:
        return LoadSampler(self.read, lambda: self.now)


@pytest.fixture
def endpoints() -> Endpoints:
    return Endpoints()


def test_rates_are_over_the_interval_between_two_samples(endpoints: Endpoints) -> None:
    sampler = endpoints.sampler()
    endpoints.texts = {8000: frontend_text(10, 500), 20001: worker_text(20)}
    first = sampler.sample(graph())
    assert (first.interval, first.request_rate) == (None, None)
    assert first.workers["decode.0"].request_rate is None
    assert first.total is not None
    assert (first.total.requests, first.total.prefix_hit_rate) == (10, 0.5)
    endpoints.now = 4.0
    endpoints.texts = {8000: frontend_text(30, 2300), 20001: worker_text(28)}
    second = sampler.sample(graph())
    assert second.request_rate == 5.0
    assert second.interval is not None
    assert second.interval.prefix_hit_rate == 0.9
    assert second.interval.ttft_s == pytest.approx(0.05)
    assert second.workers["decode.0"].request_rate == 2.0
    assert second.router_queue == 3


@pytest.mark.parametrize(
    ("engine", "running_count", "queued"),
    [
        ("", 7, 2),  # no figures of an engine: what is in flight without the queue
        ('vllm:num_requests_running{engine="0"} 4\nvllm:num_requests_waiting 5\n', 4, 7),
        ('vllm:num_requests_running{engine="0"} 4\nvllm:num_requests_running 1\n', 5, 2),
        ("trtllm_num_requests_running 1\n", 1, 2),
        ("sglang:num_running_reqs 6\nsglang:num_queue_reqs 1\n", 6, 3),
    ],
)
def test_running_and_queued_are_the_engines_figures_or_dynamos(
    endpoints: Endpoints, engine: str, running_count: int, queued: int
) -> None:
    endpoints.texts = {8000: "", 20001: worker_text(1, engine)}
    worker = endpoints.sampler().sample(graph()).workers["decode.0"]
    assert (worker.running, worker.queued) == (running_count, queued)


def test_the_fullest_kv_cache_of_a_worker_counts(endpoints: Endpoints) -> None:
    engine = 'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:kv_cache_usage_perc{engine="1"} 0.5\n'
    endpoints.texts[20001] = worker_text(1, engine)
    assert endpoints.sampler().sample(graph()).workers["decode.0"].kv_usage == 0.5


def test_a_prefix_hit_rate_is_at_most_1(endpoints: Endpoints) -> None:
    """Measured under load: 1.03 in an interval of 1.2 s, without the limit."""
    endpoints.texts[8000] = frontend_text(10, 1030)
    total = endpoints.sampler().sample(graph()).total
    assert total is not None
    assert total.prefix_hit_rate == 1.0


def test_a_restarted_frontend_starts_again_at_zero(endpoints: Endpoints) -> None:
    sampler = endpoints.sampler()
    endpoints.texts[8000] = frontend_text(100, 0)
    sampler.sample(graph(pid=3))
    endpoints.now = 2.0
    endpoints.texts[8000] = frontend_text(104, 0)
    load = sampler.sample(graph(pid=4))
    assert load.interval is not None
    assert load.interval.requests == 104


@pytest.mark.parametrize(
    "text", ["", "<html>not metrics</html>", "dynamo_frontend_requests_total{"]
)
def test_a_process_without_metrics_is_left_out(endpoints: Endpoints, text: str) -> None:
    endpoints.texts = {8000: text, 20001: worker_text(1)}
    load = endpoints.sampler().sample(graph())
    assert (load.total, load.as_dict()["since_start"]) == (None, None)
    assert list(load.workers) == ["decode.0"]


def test_a_crashed_process_is_not_asked(endpoints: Endpoints) -> None:
    endpoints.texts = {8000: frontend_text(1, 0), 20001: worker_text(1)}
    crashed = [with_fields(r, state=ReplicaState.CRASHED) for r in graph().replicas]
    load = endpoints.sampler().sample(with_fields(graph(), replicas=tuple(crashed)))
    assert (load.total, load.workers) == (None, {})


def test_the_table_fits_80_columns_and_has_the_figures(
    endpoints: Endpoints, capsys: pytest.CaptureFixture[str]
) -> None:
    sampler = endpoints.sampler()
    endpoints.texts = {8000: frontend_text(100_000, 10**6), 20001: worker_text(1)}
    sampler.sample(graph())
    endpoints.now = 2.0
    engine = "vllm:num_requests_running 12345\nvllm:kv_cache_usage_perc 1.0\n"
    endpoints.texts = {8000: frontend_text(300_000, 10**6), 20001: worker_text(99_999, engine)}
    status = GraphStatus(state=graph(), workers=(), load=sampler.sample(graph()))
    console().print(status_view(status))
    printed = capsys.readouterr().out
    table = printed.splitlines()[:8]
    assert max(len(line.rstrip()) for line in table) <= 80
    assert table[2].split() == ["decode.0", "ready", "2", "0", "49999.0", "12345", "2", "100%"]
    assert table[6].split()[:7] == ["last", "2", "s", "200,000", "100000.0", "50", "ms"]
    assert "using mocker instead of the graph's engine: decode, frontend" in printed
    assert "decode.0.log" not in printed
    on_gpus = tuple(with_fields(replica, gpus=(2, 3)) for replica in graph().replicas)
    status = replace(status, state=with_fields(graph(), replicas=on_gpus))
    console().print(status_view(status, wide=True))
    printed = capsys.readouterr().out
    assert "decode.0.log" in printed
    assert "2, 3" in printed
    assert "note: decode: using mocker instead of trtllm" in printed


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3660, "1 h 1 min"), (90_000, "1 d 1 h")],
)
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
