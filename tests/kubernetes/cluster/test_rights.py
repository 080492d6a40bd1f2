"""What users with few rights can do, on the emulated cluster and on a real one.

`KUBECONFIG=… uv run pytest tests/kubernetes/cluster/test_rights.py -m cluster` creates a namespace,
and in it service accounts with the roles of k8s/rbac.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.diff import EXIT_CHANGED
from penstock.errors import ClusterError
from tests.support.emulated_cluster.released import Penstock, certificate
from tests.support.emulated_cluster.roles import as_role, role_file
from tests.support.emulated_cluster.site import OnSite, Site

pytestmark = pytest.mark.program  # openssl
WRITES = {
    "apply": ("apply", "--yes"),
    "rollback": ("rollback", "1", "--yes"),
    "scale": ("scale", "decode=2", "--cluster", "--yes"),
    "uninstall": ("uninstall", "--yes"),
}


@pytest.fixture(params=["dynamo", "plain", pytest.param("real", marks=pytest.mark.cluster)])
def site(request: pytest.FixtureRequest, on_site: OnSite, tmp_path: Path) -> Iterator[Site]:
    """The quickstart, installed with the role for pipelines."""
    tls = certificate(tmp_path)
    with on_site(request.param, {}, tls) as site:
        as_user(site, "ci").expect(0, "apply", "--yes")
        yield site


def as_user(site: Site, role: str) -> Penstock:
    return as_role(site, site.namespace, role, role_file(role)["rules"])


def versions(site: Site) -> dict[str, str]:
    """The resource version of every object that a verb could write."""
    listed = [
        site.core.list_namespaced_secret,
        site.core.list_namespaced_config_map,
        site.apps.list_namespaced_deployment,
    ]
    contents = {}
    for read in listed:
        for item in json.loads(read(site.namespace, _preload_content=False).data)["items"]:
            meta = item["metadata"]
            content = {k: v for k, v in item.items() if k not in ("metadata", "status")}
            contents[f"{read.__name__} {meta['name']}"] = json.dumps(content, sort_keys=True)
    return contents


def test_a_viewer_reads_everything_and_writes_nothing(site: Site) -> None:
    viewer = as_user(site, "viewer")
    output = viewer.expect(0, "diff")
    assert "no change" in output
    assert "dry run not possible for " in output
    assert "Grant the kubeconfig's user permission to patch" in output
    assert len(re.findall("not possible|not checked", output)) <= 2  # not one per object
    assert "not shown" not in viewer.expect(0, "status", "--cluster")
    code, output = viewer.run("history")
    assert code == 0, output
    before, graph = versions(site), site.graph.read_text()
    for verb, arguments in WRITES.items():
        output = viewer.expect(ClusterError, *arguments)
        assert f"{verb} requires permissions that you do not have in the namespace" in output
        assert "secrets (create, delete, update)" in output or verb == "uninstall"
        assert "Nothing was changed" in output
        assert "k8s/rbac/" in output
    assert versions(site) == before
    assert site.graph.read_text() == graph


def test_an_operator_runs_every_verb(site: Site) -> None:
    operator = as_user(site, "operator")
    site.edit(decode={"replicas": 2})
    for verb in (("diff",), *WRITES.values()):
        output = operator.expect(EXIT_CHANGED if verb == ("diff",) else 0, *verb)
        assert "dry run not possible" not in output
        assert "missing permission" not in output


def test_a_pipeline_does_not_uninstall(site: Site) -> None:
    ci = as_role(site, site.namespace, "pipeline", role_file("ci")["rules"])
    before = versions(site)
    output = ci.expect(ClusterError, "uninstall", "--yes")
    assert "configmaps (list), persistentvolumeclaims (list)." in output
    assert "k8s/rbac/operator.yaml" in output
    assert versions(site) == before
