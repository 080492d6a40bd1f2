"""Probes against an endpoint whose responses the test chooses."""

from __future__ import annotations

import json
import re
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, get_args

import pytest

from penstock.errors import NotVerifiedError
from penstock.graph.choices import Probe
from penstock.manifests.deployment import Engine, Role
from penstock.manifests.source import open_source
from penstock.metrics import Metrics, parse
from penstock.verify.expected import Expectations, read_expectations
from penstock.verify.preflight import require_endpoint
from penstock.verify.probes import NOT_COVERED, PROBES, responses, run_probes
from penstock.verify.result import Verdict
from penstock.verify.target import ProbeTarget, Process, log_in, metrics_at
from tests.support.emulated_cluster.api_server import ApiServer
from tests.support.emulated_cluster.released import certificate
from tests.support.scripted_http import body_of, respond, serving

ROOT = Path(__file__).parents[2]
GRAPHS = ROOT / "dynamo_graphs"

Respond = Callable[[str, dict[str, Any]], tuple[int, str]]


def expected(**changed: Any) -> Expectations:
    values: dict[str, Any] = {
        "models": ("m",),
        "workers": {Role.PREFILL: 1, Role.DECODE: 1},
        "engines": frozenset({Engine.TRTLLM}),
        "router_mode": "kv",
        "kv_events": True,
        "migration_limit": 3,
        "block_size": 32,
        "context_length": 4096,
        "kv_dtype": None,
        "reasoning_parser": "gpt_oss",
        "tool_call_parser": "harmony",
        "transport": "auto",
    }
    return Expectations(**(values | changed))


@pytest.fixture
def serve() -> Iterator[Callable[[Respond], str]]:
    with ExitStack() as servers:

        def start(answer: Respond) -> str:
            def handle(request: BaseHTTPRequestHandler) -> None:
                body = body_of(request)
                status, text = answer(request.path, json.loads(body) if body else {})
                respond(request, text.encode(), status)

            return servers.enter_context(serving(handle))

        yield start


def verdict(target: ProbeTarget, name: str) -> tuple[Verdict, str]:
    (run,) = run_probes(target, [name])
    return run.result.verdict, f"{run.result.detail} {run.result.hint}"


def test_table_graph_model_and_documentation_name_the_same_probes() -> None:
    rows = re.findall(r"^\| `[a-z-]+` \|.*\|$", (ROOT / "docs/verify.md").read_text(), re.MULTILINE)
    cells = [[cell.strip() for cell in row.strip("|").split(" |")] for row in rows]
    documented = [name.strip("`") for name, *_ in cells]
    assert {name.strip("`"): missing for name, _, missing, _ in cells} == NOT_COVERED
    assert set(PROBES) == set(get_args(Probe)) == set(documented)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize(
    "response",
    [(200, "<html>hello</html>"), (502, "bad gateway"), (200, "{}"), (200, "[]"),
     (200, '{"data": [{}], "instances": [{}], "choices": [], "usage": null}'),
     (200, '{"data": [{"id": "m"}], "choices": [{"message": null}], "nvext": []}')],
)  # fmt: skip
def test_a_nonsense_response_neither_passes_nor_crashes(
    serve: Callable[[Respond], str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    response: tuple[int, str],
) -> None:
    monkeypatch.setattr(ProbeTarget, "wait_for", lambda self, seen, seconds=0.0: seen())
    target = ProbeTarget(url=serve(lambda path, body: response), expected=expected())
    assert verdict(target, name)[0] is not Verdict.PASS


WORKER = (
    'dynamo_frontend_router_worker_state{{reason="none",router_worker_id="{id}",target_component='
    '"{component}",target_endpoint="generate",target_namespace="{namespace}"}} 1\n'
)


def _with_workers(*workers: tuple[str, str]) -> Respond:
    """A frontend that lists workers of these components and namespaces."""
    metrics = "".join(
        WORKER.format(id=2**63 + number, component=component, namespace=namespace)
        for number, (component, namespace) in enumerate(workers)
    )
    health = '{"status": "healthy", "stage": "ready"}'
    return lambda path, body: (200, metrics if path == "/metrics" else health)


@pytest.mark.parametrize(
    ("workers", "expected_verdict", "words"),
    [
        ([("prefill", "n-1"), ("backend", "n-1")], "pass", "1 prefill, 1 decode or aggregated"),
        ([("backend", "n-1"), ("backend", "other")], "fail", "prefill: 0 workers, expected 1"),
        ([("prefill", "n-1"), ("backend", "n-2")], "fail", "workers of 2 generations"),
        ([], "cannot tell", "lists no workers"),
    ],
)
def test_the_workers_of_dynamo_1_7_are_those_of_the_frontends_metrics(
    serve: Callable[[Respond], str],
    workers: list[tuple[str, str]],
    expected_verdict: str,
    words: str,
) -> None:
    target = ProbeTarget(url=serve(_with_workers(*workers)), expected=expected(), namespace="n-")
    got, text = verdict(target, "topology")
    assert (str(got), words in text) == (expected_verdict, True), text


def _model(complete: Callable[[], dict[str, Any]], metrics: str = "") -> Respond:
    """A frontend with one model, and the response to each of its requests."""

    def answer(path: str, body: dict[str, Any]) -> tuple[int, str]:
        if path == "/metrics":
            return 200, metrics
        served = {"data": [{"id": "m"}]} if path == "/v1/models" else {"choices": [], **complete()}
        return 200, json.dumps(served)

    return answer


def _chat(message: dict[str, Any]) -> Respond:
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return _model(lambda: {"choices": [choice], "usage": {"completion_tokens": 9}})


BLOCKS_OF_32 = 'dynamo_frontend_model_kv_cache_block_size{model="m"} 32\n'


def _cached(tokens: int) -> dict[str, Any]:
    return {"prompt_tokens_details": {"cached_tokens": tokens}}


CALL = {"function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}


@pytest.mark.parametrize(
    ("name", "message", "expected_verdict", "words"),
    [
        ("reasoning-parser", {"content": "85", "reasoning_content": "9:40…"}, "pass", "separate"),
        ("reasoning-parser", {"content": "85"}, "cannot tell", "did not reason"),
        ("reasoning-parser", {"content": "<|channel|>final"}, "fail", "<|channel|>"),
        ("reasoning-parser", {"content": "analysisWe addassistantfinal85"}, "fail",
         "without their special tokens"),
        ("reasoning-parser", {"content": None}, "fail", "an empty message of 9 tokens"),
        ("reasoning-parser", {"content": "An analysis of it: 85"}, "cannot tell", "did not reason"),
        ("tool-call-parser", {"content": None, "tool_calls": [CALL]}, "pass", "Oslo"),
        ("tool-call-parser", {"content": None}, "fail", "model.harmony_vocabulary"),
        ("tool-call-parser", {"content": "get_weather(Oslo)"}, "fail", "in the content"),
        ("tool-call-parser", {"content": "It rains."}, "cannot tell", "called no tool"),
        ("tool-call-parser", {"tool_calls": [{"function": {"name": "get_weather",
         "arguments": "{"}}]}, "fail", "are not JSON"),
        ("tool-call-parser", {"tool_calls": [{"function": {"name": "x", "arguments": "{}"}}]},
         "fail", "not a tool of the request"),
    ],
)  # fmt: skip
def test_parsers(
    serve: Callable[[Respond], str],
    name: str,
    message: dict[str, Any],
    expected_verdict: str,
    words: str,
) -> None:
    got, text = verdict(ProbeTarget(url=serve(_chat(message)), expected=expected()), name)
    assert (str(got), words in text) == (expected_verdict, True), text


def _log(folder: Path, *lanes: str) -> Process:
    path = folder / "decode.log"
    text = "".join(
        f"[17952.4] [host:61:0] ucp_worker.c:1991 UCX  INFO    ucp_context_0 {lane}\n"
        for lane in lanes
    )
    path.write_text(text)
    return Process(name="decode.0", log=log_in(path))


@pytest.mark.parametrize(
    ("lanes", "configured", "expected_verdict", "words"),
    [
        ("inter-node cfg#1 rma(rc_mlx5/mlx5_0:1)  am(rc_mlx5/mlx5_0:1)", "rdma", "pass", "RDMA"),
        ("inter-node cfg#1 rma(rc_mlx5/mlx5_0:1)  am(tcp/eth0)", "rdma", "fail", "tcp/eth0"),
        ("inter-node cfg#1 rma_am(tcp/eth0)  am(tcp/eth0)", "rdma", "fail", "asks for RDMA"),
        ("intra-node cfg#1 rma(cuda_ipc/cuda)  am(rc_mlx5/mlx5_0:1)", "rdma", "pass", "NVLink"),
        ("inter-node cfg#1 rma_am(tcp/eth0)  am(tcp/eth0)", "auto", "pass", "TCP"),
        ("intra-node cfg#1 rma_am(tcp/lo)  am(tcp/lo cma/memory)", "tcp", "pass", "shared memory"),
        ("inter-node cfg#1 rma(rc_mlx5/mlx5_0:1)", "tcp", "fail", "asks for TCP"),
        ("self cfg#0 rma_am(tcp/lo)", "rdma", "cannot tell", "UCX_LOG_LEVEL"),
    ],
)
def test_transport(
    tmp_path: Path, lanes: str, configured: str, expected_verdict: str, words: str
) -> None:
    """Lines as UCX 1.22 writes them; those over InfiniBand and CUDA IPC were not observed by us."""
    target = ProbeTarget(
        url="http://127.0.0.1:9",
        expected=expected(transport=configured),
        processes=(_log(tmp_path, lanes),),
    )
    result = PROBES["transport"](target)
    assert str(result.verdict) == expected_verdict, result
    assert words in result.detail + result.hint, result


def test_the_transport_of_llamacpp_is_shared_memory(tmp_path: Path) -> None:
    target = ProbeTarget(
        url="http://127.0.0.1:9",
        expected=read_expectations(open_source(GRAPHS / "quickstart.yaml", ())),
        processes=(_log(tmp_path, "intra-node cfg#1 rma_am(tcp/lo)  am(tcp/lo cma/memory)"),),
    )
    result = PROBES["transport"](target)
    assert str(result.verdict) == "cannot tell", result
    assert "in shared memory, not with UCX" in result.detail


@pytest.mark.parametrize(
    ("size", "time"),
    [
        ("vllm:nixl_bytes_transferred_sum {0}", "vllm:nixl_xfer_time_seconds_sum {1}"),
        ("trtllm_kv_transfer_bytes_sum {0}", "trtllm_kv_transfer_latency_seconds_sum {1}"),
        ("sglang:kv_transfer_total_mb_sum {2}", "sglang:kv_transfer_latency_ms_sum {3}"),
    ],
)
def test_the_rate_of_kv_transfers_of_each_engine(
    serve: Callable[[Respond], str], size: str, time: str
) -> None:
    """Of an endpoint and one worker, whose URLs the user gives."""
    requests = [0]

    def count() -> dict[str, Any]:
        requests[0] += 1
        return {}

    def answer(path: str, body: dict[str, Any]) -> tuple[int, str]:
        if path == "/health":
            return 200, '{"status": "healthy", "stage": "ready"}'  # lists no workers
        if path != "/worker":
            return _model(count)(path, body)
        moved, seconds = requests[0] * 2**20, requests[0] / 2**10
        values = (moved, seconds, moved / 2**20, 1000 * seconds)
        return 200, "\n".join([size.format(*values), time.format(*values), ""])

    url = serve(answer)
    worker = Process(name="worker", metrics=metrics_at(f"{url}/worker"))
    follower = Process(name="node-1", role=Role.DECODE)  # of several nodes, only one has metrics
    target = ProbeTarget(url=url, expected=expected(), processes=(worker, follower))
    got, text = verdict(target, "kv-transfer")
    assert got is Verdict.CANNOT_TELL
    assert text.startswith(
        "1,048,576 bytes for 413 tokens in 1.0 ms (1.07 GB/s) over unknown transport, but the "
        "expected number of bytes is not known"
    )


def test_a_gauge_with_different_values_has_no_value() -> None:
    metrics = Metrics(tuple(parse('a{x="1"} 3\na{x="2"} 4\nb 5\n')))
    assert metrics.gauge("a") is None
    assert metrics.gauge("a", x="2") == 4
    assert metrics.total(["a", "b"]) == 12
    assert metrics.total(["nothing"]) is None


@pytest.mark.parametrize(
    ("graph", "change", "values"),
    [
        ("cpu-disagg", None, {"block_size": 32, "context_length": 2048, "kv_dtype": "float32",
                              "migration_limit": 3, "router_mode": "kv", "transport": "auto",
                              "workers": {Role.PREFILL: 1, Role.DECODE: 1}}),
        ("cpu-aggregated", None, {"workers": {Role.WORKER: 1}, "disaggregated": False}),
        ("gpt-oss-120b-b200-disagg", "kv_transfer.transport=rdma",
         {"reasoning_parser": "gpt_oss", "tool_call_parser": "harmony", "transport": "rdma",
          "models": ("openai/gpt-oss-120b",), "engines": frozenset({Engine.TRTLLM})}),
        ("gpt-oss-120b-b200-disagg", "kv_transfer.transport=tcp", {"transport": "tcp"}),
        ("quickstart-simulated", "decode.replicas=0",
         {"context_length": 8192, "models": ("openai/gpt-oss-20b",), "empty_pools": ("decode",)}),
    ],
)  # fmt: skip
def test_expectations_are_read_from_a_graph(
    graph: str, change: str | None, values: dict[str, Any]
) -> None:
    source = open_source(GRAPHS / f"{graph}.yaml", [change] if change else ())
    expectations = read_expectations(source)
    assert {name: getattr(expectations, name) for name in values} == values


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (200, "<html>hello</html>", "/v1/models returned HTTP 200 and no models"),
        (404, "{}", "is not a Dynamo frontend"),
        (401, "{}", "Set the environment variable OPENAI_API_KEY"),
        (503, "no model", "does not serve: /v1/models returned HTTP 503: no model"),
    ],
)
def test_an_endpoint_that_cannot_be_probed_is_one_error(
    serve: Callable[[Respond], str], status: int, text: str, words: str
) -> None:
    target = ProbeTarget(url=serve(lambda path, body: (status, text)))
    with pytest.raises(NotVerifiedError) as caught:
        require_endpoint(target)
    (problem,) = caught.value.problems
    assert words in str(problem)
    assert (problem.place, bool(problem.fix)) == (target.url, True)


@pytest.mark.program
def test_a_certificate_of_its_own_is_trusted_as_ssl_cert_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, _ = files = certificate(tmp_path)
    with ApiServer(certificate=files) as server:  # a web server with TLS, and without models
        with pytest.raises(NotVerifiedError, match=r"self-signed.* Fix: Set SSL_CERT_FILE to the"):
            require_endpoint(ProbeTarget(url=server.url))
        monkeypatch.setenv("SSL_CERT_FILE", str(chain))
        with pytest.raises(NotVerifiedError, match="is not a Dynamo frontend"):
            require_endpoint(ProbeTarget(url=server.url))


@pytest.mark.parametrize(
    ("decode_workers", "cached_everywhere", "expected_verdict"),
    [
        ((1, 2, 3, 1), True, "pass"),
        ((1, 1), False, "fail"),
        (tuple(range(99)), True, "cannot tell"),
    ],
)
def test_the_prefix_cache_of_one_of_several_decode_mockers(
    serve: Callable[[Respond], str],
    monkeypatch: pytest.MonkeyPatch,
    decode_workers: tuple[int, ...],
    cached_everywhere: bool,
    expected_verdict: str,
) -> None:
    """A decode mocker reports the tokens of its own cache only."""
    monkeypatch.setattr(ProbeTarget, "wait_for", lambda self, seen, seconds=0.0: seen())
    order, caches = iter(decode_workers), set[int]()

    def complete() -> dict[str, Any]:
        worker = next(order)
        cached = 14 * 32 if worker in caches and cached_everywhere else 0
        caches.add(worker)
        workers = {"prefill_worker_id": 7, "decode_worker_id": worker}
        return {"usage": _cached(cached), "nvext": {"worker_id": workers}}

    url = serve(_model(complete, BLOCKS_OF_32))
    target = ProbeTarget(url=url, expected=expected(engines=frozenset({Engine.MOCKER})))
    assert verdict(target, "prefix-cache")[0] == expected_verdict


@pytest.mark.parametrize(
    ("engine", "cached", "expected_verdict"),
    [
        (Engine.TRTLLM, 448, "pass"),
        (Engine.TRTLLM, 452, "fail"),
        (Engine.LLAMACPP, 452, "pass"),  # 453 tokens, all but the last
        (Engine.LLAMACPP, 448, "pass"),
        (Engine.LLAMACPP, 447, "fail"),
        (Engine.LLAMACPP, 453, "fail"),
        (None, 452, "pass"),  # no graph: it may be llama.cpp
        (None, 447, "fail"),
    ],
)
def test_only_llamacpp_caches_tokens_after_the_full_blocks(
    serve: Callable[[Respond], str],
    monkeypatch: pytest.MonkeyPatch,
    engine: Engine | None,
    cached: int,
    expected_verdict: str,
) -> None:
    monkeypatch.setattr(ProbeTarget, "wait_for", lambda self, seen, seconds=0.0: seen())
    tokens = iter((0, cached))
    url = serve(_model(lambda: {"usage": _cached(next(tokens))}, BLOCKS_OF_32))
    known = expected(engines=frozenset({engine})) if engine else None
    target = ProbeTarget(url=url, expected=known)
    assert verdict(target, "prefix-cache")[0] == expected_verdict


@pytest.mark.parametrize(
    ("engine", "differs", "expected_verdict"),
    [
        (Engine.TRTLLM, (), "pass"),
        (Engine.TRTLLM, (0,), "fail"),
        (Engine.LLAMACPP, (0,), "pass"),  # not cached: other sums
        (Engine.LLAMACPP, (2,), "fail"),
    ],
)
def test_only_the_first_greedy_output_of_llamacpp_may_differ(
    serve: Callable[[Respond], str],
    engine: Engine,
    differs: tuple[int, ...],
    expected_verdict: str,
) -> None:
    tokens = iter([8 if number in differs else 7 for number in range(4)])
    url = serve(_model(lambda: {"nvext": {"completion_token_ids": [next(tokens)] * 24}}))
    target = ProbeTarget(url=url, expected=expected(engines=frozenset({engine})))
    assert verdict(target, "greedy")[0] == expected_verdict


@pytest.mark.parametrize(
    ("outputs", "cached", "expected_verdict", "words"),
    [
        ((8, 7, 7, 7), (0, 149, 149, 149), "pass", "3 times the same"),  # llama.cpp
        ((8, 7, 6, 6), (0, 149, 149, 149), "fail", "differ"),
        ((8, 8, 8, 8), (0, 128, 128, 128), "pass", "4 times the same"),
        ((8, 7, 7, 7), (0, 128, 128, 128), "fail", "differ"),
        ((1, 2, 3, 4), (0, 128, 128, 128), "cannot tell", "Add --graph GRAPH"),  # a mocker
        ((8, 7, 6, 7), (0, 0, 0, 149), "cannot tell", "separate caches"),
    ],
)
def test_greedy_without_a_graph_recognizes_the_cache(
    serve: Callable[[Respond], str],
    outputs: tuple[int, ...],
    cached: tuple[int, ...],
    expected_verdict: str,
    words: str,
) -> None:
    order = iter(zip(outputs, cached, strict=True))

    def complete() -> dict[str, Any]:
        token, hits = next(order)
        return {"usage": _cached(hits), "nvext": {"completion_token_ids": [token] * 24}}

    got, text = verdict(ProbeTarget(url=serve(_model(complete))), "greedy")
    assert (str(got), words in text) == (expected_verdict, True), text


def test_a_failure_of_a_graph_with_empty_pools_names_them(serve: Callable[[Respond], str]) -> None:
    url = serve(lambda path, body: (200, '{"data": [], "instances": []}'))
    empty = expected(workers={}, empty_pools=("prefill", "decode"))
    actual, text = verdict(ProbeTarget(url=url, expected=empty), "models")
    assert actual is Verdict.FAIL
    assert "declares 0 replicas of prefill, decode. Start one: `penstock scale GRAPH pre" in text
    assert verdict(ProbeTarget(url=url, expected=empty), "topology")[0] is not Verdict.FAIL
    assert "declares" not in verdict(ProbeTarget(url=url, expected=expected()), "models")[1]


def test_topology_names_the_pools_that_the_graph_declares_without_replicas(
    serve: Callable[[Respond], str],
) -> None:
    declared = expected(workers={Role.PREFILL: 1}, empty_pools=("decode",))
    url = serve(_with_workers(("prefill", "n-1")))
    target = ProbeTarget(url=url, expected=declared, namespace="n-")
    actual, text = verdict(target, "topology")
    assert actual is Verdict.PASS
    assert text.strip() == (
        "1 prefill, 0 decode or aggregated, generation n-1; the graph declares 0 replicas of decode"
    )


class OneWorker:
    """Computes a prompt at a time, and may go on when the client has left."""

    def __init__(self, token_s: float, cancels: bool, component: str) -> None:
        self._token_s, self._cancels = token_s, cancels
        worker = {"namespace": "n", "component": component, "instance_id": 1}
        instances = [{**worker, "endpoint": "generate"}]
        self._lists = json.dumps({"data": [{"id": "m"}], "instances": instances}).encode()
        self._computes = threading.Lock()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        if request.path != "/v1/completions":
            respond(request, self._lists)
            return
        tokens = len(json.loads(body_of(request))["prompt"])
        seen = [request.connection] if self._cancels else []  # readable when the client leaves
        with self._computes:
            select.select(seen, [], [], tokens * self._token_s)
        with suppress(ConnectionError):
            respond(request, b'data: {"choices": []}\n\n')


@pytest.mark.parametrize(
    ("token_s", "cancels", "component", "expected_verdict", "words"),
    [
        (1e-3, True, "backend", Verdict.PASS, "the clients of 8 prompts of 256 tokens left"),
        (1e-3, False, "backend", Verdict.FAIL, "prefills run to the end without a client"),
        (1e-3, False, "prefill", Verdict.PASS, "Dynamo does not tell prefill workers that"),
        (1e-6, False, "backend", Verdict.PASS, "2048 tokens take 0.0 s, too short to see"),
    ],
)
def test_a_short_request_does_not_wait_for_prompts_whose_clients_have_left(
    monkeypatch: pytest.MonkeyPatch,
    token_s: float,
    cancels: bool,
    component: str,
    expected_verdict: Verdict,
    words: str,
) -> None:
    monkeypatch.setattr(responses, "PREFILL_S", 0.2)
    worker = OneWorker(token_s, cancels, component)
    with serving(worker.handle) as url:
        found = responses.canceled_prefills(ProbeTarget(url=url), "free", 4096)
    assert (found.verdict, words in found.detail) == (expected_verdict, True), found
