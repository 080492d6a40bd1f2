"""`penstock verify --cluster` of a release on an emulated cluster, whose pods a test scripts.

Names of metrics and lines of logs are those that Dynamo 1.6.1 with vLLM 0.31.0, NIXL and UCX wrote
on a CPU. tests/e2e/test_cpu_engine.py runs the same probes on these programs.
"""

from __future__ import annotations

import itertools
import json
import select
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ClusterError, NotVerifiedError, UsageError
from penstock.verify.probes import workers
from tests.kubernetes.cluster.test_live import PORTS, pods
from tests.support.emulated_cluster.released import ROOT, Cluster
from tests.support.emulated_cluster.roles import as_role, role_file
from tests.support.scripted_http import body_of, respond, serving

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "hidden_size": 32,
    "intermediate_size": 64,
    "vocab_size": 4096,
    "max_position_embeddings": 8192,
    "dtype": "float32",
}
TOKEN_BYTES = 2 * 2 * 2 * 8 * 4  # keys and values of 2 layers with 2 heads of 8 dimensions
BLOCK = 32  # tokens
EXPECTED = "vllm.yaml"  # the release is one of mockers
NAMESPACE = "default_quick_2e27fc74"
LOG = """\
2026-12-01T10:40:16.1Z 2026-12-01 10:40:16 NIXL INFO    _api.py:407 Backend UCX was instantiated
2026-12-01T10:40:17.1Z [1796121617.5] [vm:61:1] ucp_worker.c:1991 UCX  INFO    ucp_context_0 \
inter-node cfg#1 rma(rc_mlx5/mlx5_0:1)  am(rc_mlx5/mlx5_0:1)
"""


@dataclass
class Worker:
    """A ready pod and its counters."""

    pod: str
    component: str
    is_listed: bool = True
    hangs: bool = False
    in_flight: int = 0
    sent: int = 0
    moved: int = 0
    computed: int = 0

    @property
    def worker_id(self) -> int:
        return 2**63 + sum(self.pod.encode())

    @property
    def metrics(self) -> str:
        labels = f'dynamo_component="{self.component}",worker_id="{self.worker_id:x}"'
        generate = f'{labels},dynamo_endpoint="generate",dynamo_namespace="{NAMESPACE}"'
        counters = {
            f"dynamo_component_inflight_requests{{{generate}}}": self.in_flight,
            f"dynamo_component_response_bytes_total{{{generate}}}": self.sent,
            f"vllm:nixl_bytes_transferred_sum{{{labels}}}": self.moved,
            f"vllm:nixl_xfer_time_seconds_sum{{{labels}}}": self.moved / 25e9,
            f'vllm:prompt_tokens_by_source_total{{{labels},source="local_compute"}}': self.computed,
        }
        return "".join(f"{name} {value}\n" for name, value in counters.items())


class Engines(dict[str, str]):
    """The pods of a release as the API server's proxy shows them, and their frontend."""

    def __init__(self, installed: Cluster) -> None:
        super().__init__()
        names = pods(installed)
        self.frontend = names["frontend"][0]
        self.prefill = [Worker(name, "prefill") for name in names["prefill"]]
        self.decode = [Worker(name, "backend") for name in names["decode"]]
        self.moves_kv, self.decode_computes = True, False
        self.heeds_names = True
        self._turns = itertools.count()
        for worker in self.workers:
            installed.api.logs[worker.pod] = LOG

    @property
    def workers(self) -> list[Worker]:
        return [*self.prefill, *self.decode]

    def get(self, name: str, default: object = None) -> str | None:  # type: ignore[override]
        texts = {f"{w.pod}:{PORTS['decode']}/metrics": w.metrics for w in self.workers}
        return texts.get(name, "" if name.startswith(self.frontend) else None)

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        if request.command == "POST":
            self._complete(request, json.loads(body_of(request)))
            return
        listed = [
            {
                "namespace": NAMESPACE,
                "component": worker.component,
                "instance_id": worker.worker_id,
                "endpoint": "generate",
            }
            for worker in self.workers
            if worker.is_listed
        ]
        other = {**listed[0], "namespace": "default_other_2e27fc74", "instance_id": 1}
        body = {"data": [{"id": "openai/gpt-oss-20b"}], "instances": [*listed, other]}
        respond(request, json.dumps(body).encode())

    def _complete(self, request: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        prefill, decode = self._chosen(body["nvext"])
        for worker in (prefill, decode):
            worker.in_flight += 1
            if worker.hangs:
                select.select([request.connection], [], [])  # until the client leaves
                worker.in_flight -= 1
                request.close_connection = True
                return
            worker.sent += 100
            worker.in_flight -= 1
        tokens = len(body["prompt"])
        prefill.computed += tokens
        if self.moves_kv:
            decode.moved += -(-tokens // BLOCK) * BLOCK * TOKEN_BYTES
        if self.decode_computes:
            decode.computed += tokens
        ids = {"prefill_worker_id": prefill.worker_id, "decode_worker_id": decode.worker_id}
        answer = {"choices": [{"text": "a"}], "nvext": {"worker_id": ids}}
        respond(request, json.dumps(answer).encode())

    def _chosen(self, named: dict[str, Any]) -> tuple[Worker, Worker]:
        turn = next(self._turns)
        chosen = []
        for name, pool in (("prefill_worker_id", self.prefill), ("decode_worker_id", self.decode)):
            asked = [w for w in pool if w.worker_id == named.get(name) and self.heeds_names]
            chosen.append(asked[0] if asked else pool[turn % len(pool)])
        return chosen[0], chosen[1]


@pytest.fixture
def engines(
    installed: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engines]:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    vllm = (ROOT / "dynamo_graphs" / "cpu-disagg.yaml").read_text()
    (tmp_path / EXPECTED).write_text(vllm.replace("replicas: 1", "replicas: 2"))
    monkeypatch.setattr(workers, "ANSWER_S", 1.0)
    monkeypatch.setattr(workers, "POLL_S", 0.05)
    installed.edit(decode={"replicas": 2})
    assert installed.apply()[0] == 0
    scripted = Engines(installed)
    with serving(scripted.handle) as url:
        installed.api.served = scripted
        installed.api.forwarded[PORTS["frontend"]] = int(url.rpartition(":")[2])
        yield scripted


def verify(installed: Cluster, *names: str, code: int | type[NotVerifiedError] = 0) -> str:
    only = [word for name in names for word in ("--only", name)]
    folder = installed.graph.parent
    files = ("--graph", str(folder / EXPECTED), "--model-dir", str(folder))
    output = installed.expect(code, "verify", "--cluster", *files, *only)
    return " ".join(output.split())


def test_kv_moves_between_the_pools_of_a_release(installed: Cluster, engines: Engines) -> None:
    output = verify(installed, "topology", "workers", "kv-transfer", "transport")
    assert "2 prefill, 2 decode or aggregated" in output
    names = ", ".join(sorted(worker.pod for worker in engines.workers))
    assert f"4 workers responded: {names}" in output
    moved = 13 * BLOCK * TOKEN_BYTES  # blocks of a prompt of 413 tokens
    assert (
        f"prefill → decode: {2 * moved:,} bytes for 2 × 413 tokens in {2 * moved / 25e6:.1f} ms "
        "(25.00 GB/s) over NIXL (UCX), RDMA, as the model's shape predicts"
    ) in output
    assert all(worker.moved > moved for worker in engines.decode)


@pytest.mark.parametrize("moves_kv", [False, True])
def test_a_decode_worker_that_computes_the_prompt_itself_fails(
    installed: Cluster, engines: Engines, moves_kv: bool
) -> None:
    """Both pools take part, and every request succeeds (llm-d#1189)."""
    engines.moves_kv, engines.decode_computes = moves_kv, True
    moved = 13 * BLOCK * TOKEN_BYTES if moves_kv else 0
    output = verify(installed, "disaggregation", "kv-transfer", code=NotVerifiedError)
    assert "pass disaggregation" in output
    for worker in engines.decode:
        computed = f"{worker.pod} computed 413 tokens of the prompt itself"
        assert f" → {worker.pod}: {moved:,} bytes moved for 413 tokens; {computed}" in output


@pytest.mark.parametrize("pool", ["prefill", "decode"])
def test_an_engine_that_hangs_in_a_ready_pod_is_named(
    installed: Cluster, engines: Engines, pool: str
) -> None:
    hung: Worker = getattr(engines, pool)[1]
    hung.hangs = True
    output = verify(installed, "topology", "workers", code=NotVerifiedError)
    assert "pass topology" in output
    assert f"{hung.pod} hangs: requests in flight, and nothing sent for 1 s hint:" in output
    others = [worker.pod for worker in engines.workers if worker is not hung]
    assert not [pod for pod in others if pod in output]
    assert all(worker.sent for worker in engines.workers if worker is not hung)


@pytest.mark.parametrize("pool", ["prefill", "decode"])
def test_workers_whose_only_partners_hang_are_not_blamed(
    installed: Cluster, engines: Engines, pool: str
) -> None:
    hung: list[Worker] = getattr(engines, pool)
    for worker in hung:
        worker.hangs = True
    output = verify(installed, "workers", code=NotVerifiedError)
    for worker in engines.workers:
        if worker in hung:
            assert f"{worker.pod} hangs" in output
        elif pool == "prefill":  # no request reaches decode
            reason = "is not tested, as its requests need a worker that hangs"
            assert f"{worker.pod} {reason}" in output
        else:  # prefill has sent its results
            assert worker.pod not in output


def test_without_names_in_requests_the_responses_state_who_has_answered(
    installed: Cluster, engines: Engines
) -> None:
    engines.heeds_names = False
    assert "4 workers responded" in verify(installed, "workers")


def test_a_ready_pod_that_the_frontend_does_not_list_is_named(
    installed: Cluster, engines: Engines
) -> None:
    engines.decode[1].is_listed = False
    output = verify(installed, "workers", code=NotVerifiedError)
    assert f"{engines.decode[1].pod} is ready, but the frontend does not list it" in output


def test_the_transport_is_unknown_without_log_lines_about_it(
    installed: Cluster, engines: Engines
) -> None:
    installed.api.logs.clear()
    assert "(25.00 GB/s) over unknown transport, as" in verify(installed, "kv-transfer")


def test_a_release_without_a_ready_frontend(installed: Cluster, engines: Engines) -> None:
    assert "is not installed" in installed.expect(
        ClusterError, "verify", "--cluster", "--release", "other"
    )
    installed.edit(frontend={"replicas": 0})
    installed.apply("--no-wait")
    installed.wait_until(lambda: "frontend" not in pods(installed))
    assert "has no ready frontend" in installed.expect(ClusterError, "verify", "--cluster")


def test_options_that_do_not_fit_together(installed: Cluster) -> None:
    assert "--kubeconfig needs --cluster" in installed.expect(UsageError, "verify")
    installed.graph = Path("127.0.0.1:8000")
    assert "name the graph of the release" in installed.expect(UsageError, "verify", "--cluster")


@pytest.mark.program  # openssl
def test_the_rights_that_are_missing_are_listed(secured: Cluster) -> None:
    viewer = as_role(secured, "default", "viewer", role_file("viewer")["rules"])
    output = " ".join(viewer.expect(ClusterError, "verify", "--cluster").split())
    assert "verify requires permissions that you do not have in the namespace" in output
    assert "pods/log (get)" in output
    assert "pods/portforward (create, get)" in output
    assert "pods/proxy" not in output
