"""`gateway shift` and `apply --blue-green` on an emulated cluster.

Its frontends count the requests that the HTTPRoute of the gateway sends them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest

from penstock.cli import gateway_shift
from penstock.cli import main as cli
from penstock.gateway.model import load_gateway
from penstock.gateway.policy import build_policy
from penstock.gateway.routes import route
from tests.support.emulated_cluster.released import NAME, Cluster, certificate, cluster
from tests.support.emulated_cluster.roles import as_role, role_file
from tests.support.scripted_http import body_of, respond, serving

NEXT = "next"
GATEWAY = f"""\
name: front
namespace: default
gateway_class: eg
hostname: llm.example.com
tls: {{secret: front-tls}}
api_keys: {{secret: front-keys}}
backends:
  - {{release: {NAME}, weight: 100}}
  - {{release: {NEXT}, weight: 0}}
"""
KEY = ("gateway.networking.k8s.io/v1", "httproutes", "default", "front")
PER_S = 10.0
PACE = ("--steps", "50,100", "--step-s", "20", "--yes")


class Traffic(dict[str, str]):
    """The metrics of the frontends' pods: their requests follow the HTTPRoute."""

    def __init__(self, installed: Cluster) -> None:
        super().__init__()
        self._cluster, self.fails = installed, {NAME: 0.0, NEXT: 0.0}
        self.kubeconfig: Path | None = None  # of the user; None: unrestricted
        self._requests, self._time_s = {NAME: 1000.0, NEXT: 0.0}, installed.clock.now()
        self.weights: list[tuple[int, int]] = []
        """Of the old and of the new release, as they changed; 0 and 100 are copies."""
        self.verified: list[tuple[str, ...]] = []
        """The arguments of `penstock verify`."""

    def get(self, name: str, default: object = None) -> str | None:  # type: ignore[override]
        release = next(
            (r for r in (NAME, NEXT) if name.startswith(f"{r}-") and "frontend" in name), ""
        )
        if not release:
            return None
        self._serve()
        requests = self._requests[release]
        errors = int(requests * self.fails[release])
        counters = {
            'started_total{model="m"}': round(requests),
            'total{status="success",error_type=""}': round(requests) - errors,
            'total{status="error",error_type="internal"}': errors,
        }
        return "".join(f"dynamo_frontend_requests_{k} {v}\n" for k, v in counters.items())

    def _serve(self) -> None:
        rule = self._cluster.api.store.objects[KEY]["spec"]["rules"][0]
        shares = {ref["name"]: ref["weight"] for ref in rule["backendRefs"]}
        old, new = shares[f"{NAME}-frontend"], shares[f"{NEXT}-frontend"]
        is_copied = any(f["type"] == "RequestMirror" for f in rule.get("filters", ()))
        seen = (old, new + 1000 * is_copied)
        if not self.weights or self.weights[-1] != seen:
            self.weights.append(seen)
        now_s = self._cluster.clock.now()
        requests, self._time_s = PER_S * (now_s - self._time_s), now_s
        self._requests[NAME] += requests * old / (old + new)
        self._requests[NEXT] += requests * (new / (old + new) + is_copied)


def frontend(request: BaseHTTPRequestHandler) -> None:
    """Of both releases: a model, and a chat of 61 prompt tokens."""
    if request.command == "GET":
        respond(request, json.dumps({"data": [{"id": "m"}]}).encode())
        return
    assert json.loads(body_of(request))["model"] == "m"
    respond(request, json.dumps({"usage": {"prompt_tokens": 61}}).encode())


@pytest.fixture
def traffic(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Traffic]:
    """The old release is installed behind the gateway. With the parameter "tls", the API server
    tells users apart."""
    tls = certificate(tmp_path) if getattr(request, "param", "") == "tls" else None
    with cluster(tmp_path, capsys, monkeypatch, tls) as emulated, serving(frontend) as url:
        emulated.install()
        (tmp_path / f"{NEXT}.yaml").write_text(emulated.graph.read_text())
        (tmp_path / "gateway.yaml").write_text(GATEWAY)
        post_route(emulated, tmp_path / "gateway.yaml")
        emulated.api.forwarded[8000] = int(url.rpartition(":")[2])
        served = Traffic(emulated)
        emulated.api.served = served
        # Its probes need an engine, as those of test_verify.py have.
        monkeypatch.setattr(gateway_shift, "_verify", lambda *words: served.verified.append(words))
        yield served


def post_route(emulated: Cluster, file: Path) -> None:
    collection = f"{emulated.api.url}/apis/{KEY[0]}/namespaces/default/httproutes"
    manifest = route(build_policy(load_gateway(file)))
    post = httpx.post(collection, json=manifest, trust_env=False, verify=False)
    post.raise_for_status()


def penstock(traffic: Traffic, verb: str, *words: object) -> tuple[int, str]:
    installed = traffic._cluster
    where = ("--kubeconfig", str(traffic.kubeconfig or installed.kubeconfig))
    code = cli.main([verb, *map(str, words), *where])
    captured = installed.capsys.readouterr()
    return code, captured.out + captured.err


def blue_green(traffic: Traffic, *words: str) -> tuple[int, str]:
    folder = traffic._cluster.graph.parent
    file = folder / "gateway.yaml"
    return penstock(traffic, "apply", folder / f"{NEXT}.yaml", "--blue-green", file, *PACE, *words)


def test_a_new_release_is_installed_and_gets_the_requests(traffic: Traffic) -> None:
    code, output = blue_green(traffic)
    assert code == 0, output
    assert traffic.weights == [(100, 0), (100, 1000), (50, 50), (0, 100)]
    assert f"To end it: penstock uninstall {NAME}.yaml --namespace=default --kube" in output
    folder, kubeconfig = traffic._cluster.graph.parent, traffic._cluster.kubeconfig
    assert load_gateway(folder / "gateway.yaml").backends[1].weight == 100
    where = ("--cluster", "--namespace=default", "--kubeconfig", str(kubeconfig))
    assert traffic.verified == [(str(folder / f"{NEXT}.yaml"), *where)]


@pytest.mark.program
@pytest.mark.parametrize("traffic", ["tls"], indirect=True)
def test_a_pipeline_has_every_right_of_a_shift(traffic: Traffic) -> None:
    """The role ci, for `apply --blue-green` and for `gateway shift`."""
    installed = traffic._cluster
    ci = as_role(installed, "default", "ci", role_file("ci")["rules"])
    traffic.kubeconfig = ci.kubeconfig
    code, output = blue_green(traffic)
    assert code == 0, output
    assert traffic.weights[-1] == (0, 100)
    assert installed.api.access.denied == []
    used = set(map(str, installed.api.access.used))
    assert {"get pods/portforward", "get pods/proxy"} <= used
    file = installed.graph.parent / "gateway.yaml"
    back = ("shift", file, "--to", NAME, *PACE, "--copies", "0")
    code, output = penstock(traffic, "gateway", *back)
    assert code == 0, output
    assert installed.api.access.denied == []


def test_a_worse_release_loses_the_requests_again(traffic: Traffic) -> None:
    traffic.fails[NEXT] = 0.1
    code, output = blue_green(traffic, "--copies", "0")
    assert code == 16, output
    assert "next: it is worse than quick: " in output
    traffic._serve()
    assert traffic.weights == [(100, 0), (50, 50), (100, 0)]
    assert (traffic._cluster.graph.parent / "gateway.yaml").read_text() == GATEWAY


def test_nothing_is_installed_for_a_gateway_that_does_not_exist(traffic: Traffic) -> None:
    del traffic._cluster.api.store.objects[KEY]
    code, output = blue_green(traffic)
    assert code == 15
    assert "HTTPRoute front (namespace default): the gateway is not installed" in output
    assert not [
        o for o in traffic._cluster.api.store.of_kind("Pod") if NEXT in o["metadata"]["name"]
    ]


def test_the_namespace_of_the_file_is_that_of_the_release(traffic: Traffic) -> None:
    code, output = blue_green(traffic, "--namespace", "other")
    assert code == 3
    assert "next is in the namespace default, but apply installs it in other" in output


def test_a_release_without_a_serving_one_beside_it_is_refused(traffic: Traffic) -> None:
    folder = traffic._cluster.graph.parent
    code, output = penstock(
        traffic, "apply", traffic._cluster.graph, "--blue-green", folder / "gateway.yaml", *PACE
    )
    assert code == 3
    assert "quick already gets all requests" in output


def test_options_of_a_shift_need_one(traffic: Traffic) -> None:
    code, output = penstock(traffic, "apply", traffic._cluster.graph, "--copies", "5", "--yes")
    assert code == 2
    assert "--copies needs --blue-green" in output


def test_a_release_on_a_cluster_that_is_not_installed(traffic: Traffic) -> None:
    file = traffic._cluster.graph.parent / "gateway.yaml"
    code, output = penstock(traffic, "gateway", "shift", file, "--to", NEXT, *PACE)
    assert code == 15
    assert NEXT in output
