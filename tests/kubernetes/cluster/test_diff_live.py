"""`penstock diff` against a release installed by real Helm into an emulated API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python
import httpx
import pytest
import yaml

from penstock.cli import main as cli
from penstock.cli.diff import EXIT_CHANGED
from penstock.errors import ClusterError
from penstock.graph.load import load_graph
from penstock.manifests.render import chart_path
from penstock.manifests.source import render_graph
from tests.support.emulated_cluster.api_server import ApiServer
from tests.support.emulated_cluster.released import Penstock
from tests.support.emulated_cluster.store import ApiError

ROOT = Path(__file__).parents[3]
NAME = "quick"
DGD = "/apis/nvidia.com/v1beta1/namespaces/default/dynamographdeployments/quick"


@dataclass(kw_only=True)
class Released(Penstock):
    """A cluster with the quickstart installed, and the graph file that it came from."""

    api: ApiServer

    def diff(self, *arguments: str) -> tuple[int, str]:
        return self.run("diff", *arguments)


@pytest.fixture
def released(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Released]:
    graph = tmp_path / f"{NAME}.yaml"
    graph.write_text((ROOT / "dynamo_graphs" / "quickstart-simulated.yaml").read_text())
    kubeconfig = tmp_path / "kubeconfig"
    with ApiServer() as api:
        kubeconfig.write_text(api.kubeconfig)
        with helm_python.Config(kubeconfig_path=kubeconfig, namespace="default") as config:
            config.install(chart_path(), NAME, yaml.safe_load(graph.read_text()))
        yield Released(api=api, kubeconfig=kubeconfig, graph=graph, capsys=capsys)


def test_the_installed_graph_has_no_changes(released: Released) -> None:
    assert released.diff() == (
        0,
        "default/quick, compared with revision 1 (deployed):\n  no changes\n",
    )


def test_json_reports_the_same(released: Released) -> None:
    released.edit(prefill={"config": {"engine": {"block_size": 64}}})
    code, output = released.diff("--json")
    report = json.loads(output)
    assert (code, report["release"], report["changed"]) == (EXIT_CHANGED, NAME, True)
    assert {c["name"]: c["action"] for c in report["components"]} == {
        "frontend": "unchanged",
        "prefill": "restarted",
        "decode": "restarted",
    }


def test_a_deleted_object_is_created_again(released: Released) -> None:
    key = ("policy/v1", "poddisruptionbudgets", "default", "quick-prefill")
    released.api.store.remove(key)
    code, output = released.diff()
    assert code == EXIT_CHANGED
    assert "also: PodDisruptionBudget quick-prefill: created" in output


def test_rejections_of_the_api_server_are_reported(released: Released) -> None:
    causes = [{"field": "spec.components[2].replicas", "message": "must be at most 8"}]

    def reject(new: dict[str, Any], _: object) -> None:
        components = new.get("spec", {}).get("components", [])
        if any(c["replicas"] > 8 for c in components):
            raise ApiError(422, "Invalid", "the graph is invalid", {"causes": causes})

    released.api.store.admission.append(reject)
    released.edit(decode={"replicas": 9})
    code, output = released.diff()
    assert code == EXIT_CHANGED
    error = "DynamoGraphDeployment quick: spec.components[2].replicas: must be at most 8"
    assert f"rejected by the API server: {error}" in output


@pytest.mark.parametrize("code", [401, 403, 500])
def test_a_rejected_read_is_an_error_with_the_object(released: Released, code: int) -> None:
    def refuse(path: str) -> None:
        if path == DGD:
            raise ApiError(code, "Nope", "not you")

    released.api.gate = refuse
    exit_code, output = released.diff()
    assert exit_code == ClusterError.exit_code
    assert f"DynamoGraphDeployment default/quick: {code}: not you" in output


def test_comparing_two_files_needs_no_cluster(released: Released, tmp_path: Path) -> None:
    other = tmp_path / "before.yaml"
    other.write_text(released.graph.read_text())
    assert cli.main(["diff", str(released.graph), "--from", str(other)]) == 0
    released.edit(decode={"replicas": 2})
    assert cli.main(["diff", str(released.graph), "--from", str(other)]) == EXIT_CHANGED
    assert "decode: scaled 1 → 2" in released.capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("apiVersion: v1\nkind: ConfigMap\n", "document 1 has no kind or no metadata.name"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {generateName: x}\n", "document 1 has no kind"),
        (
            "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\n"
            "metadata: {name: x}\nspec: {services: {}}\n",
            "is v1alpha1",
        ),
    ],
)
def test_files_that_cannot_be_compared_are_rejected(
    released: Released, tmp_path: Path, text: str, expected: str
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(text)
    assert cli.main(["diff", str(released.graph), "--from", str(other)]) == 5
    assert expected in released.capsys.readouterr().err


def test_a_list_is_compared_by_its_objects(released: Released, tmp_path: Path) -> None:
    rendered = render_graph(load_graph(released.graph)).objects
    other = tmp_path / "list.yaml"
    items = {"apiVersion": "v1", "kind": "List", "items": [dict(o) for o in rendered]}
    other.write_text(yaml.safe_dump(items))
    assert cli.main(["diff", str(released.graph), "--from", str(other)]) == 0


def test_a_release_of_another_chart_is_rejected(released: Released, tmp_path: Path) -> None:
    chart = tmp_path / "other"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: other\nversion: 1.0.0\n")
    (chart / "templates" / "c.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"
    )
    with helm_python.Config(kubeconfig_path=released.kubeconfig, namespace="default") as config:
        config.install(chart, "other", {})
    code, output = released.diff("--release", "other")
    assert code == ClusterError.exit_code
    assert "was installed from the chart other, not penstock" in output


@pytest.mark.parametrize("manager", ["helm", "helm-controller", "argocd-controller"])
def test_the_client_that_installed_the_release_can_write_again_after_penstock(
    released: Released, manager: str
) -> None:
    """Its next apply without force has no conflict, and `penstock` follows a takeover."""

    def apply(block_size: int, *, force: bool) -> tuple[int, str]:
        released.edit(prefill={"config": {"engine": {"block_size": block_size}}})
        objects = render_graph(load_graph(released.graph), "default", name=NAME).objects
        (graph,) = (o for o in objects if o["kind"] == "DynamoGraphDeployment")
        query = f"fieldManager={manager}" + ("&force=true" if force else "")
        headers = {"Content-Type": "application/apply-patch+yaml"}
        url = f"{released.api.url}{DGD}?{query}"
        done = httpx.patch(url, content=json.dumps(graph), headers=headers, trust_env=False)
        return done.status_code, done.text

    assert apply(32, force=True)[0] == 200  # takes over from the process that installed it
    released.edit(prefill={"config": {"engine": {"block_size": 64}}})
    released.expect(0, "apply", "--yes", "--no-wait")
    code, output = apply(128, force=False)
    assert code == 200, output
