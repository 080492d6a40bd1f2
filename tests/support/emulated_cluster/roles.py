"""`penstock` commands as a user who has only the rights of a role; emulated or real cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

import kubernetes
from tests.support.charts import ROOT
from tests.support.emulated_cluster.released import Penstock
from tests.support.emulated_cluster.store import Object

RBAC = "rbac.authorization.k8s.io"


def role_file(name: str) -> Object:
    """A manifest of k8s/rbac."""
    return dict(yaml.safe_load((ROOT / "k8s" / "rbac" / f"{name}.yaml").read_text()))


def as_role(site: Penstock, namespace: str, name: str, rules: Sequence[Object]) -> Penstock:
    """The same release as a new service account ``name`` that has exactly ``rules``."""
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(site.kubeconfig), client_configuration=configuration)
    client = kubernetes.client.ApiClient(configuration)
    core = kubernetes.client.CoreV1Api(client)
    rbac = kubernetes.client.RbacAuthorizationV1Api(client)
    named = {"metadata": {"name": name}}
    core.create_namespaced_service_account(namespace, named)
    rbac.create_namespaced_role(namespace, {**named, "rules": list(rules)})
    binding = {
        **named,
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
    }
    rbac.create_namespaced_role_binding(namespace, binding)
    answer = core.create_namespaced_service_account_token(
        name, namespace, {"spec": {}}, _preload_content=False
    )
    token = str(json.loads(answer.data)["status"]["token"])
    kubeconfig = site.kubeconfig.with_name(f"kubeconfig-{name}")
    _write_kubeconfig(site.kubeconfig, kubeconfig, token)
    return Penstock(
        graph=site.graph, kubeconfig=kubeconfig, capsys=site.capsys, namespace=namespace
    )


def without(rule: dict[str, Any], *resources: str) -> dict[str, Any]:
    """A rule of a role for its other resources only."""
    return {**rule, "resources": [r for r in rule["resources"] if r not in resources]}


def _write_kubeconfig(admin: Path, path: Path, token: str) -> None:
    """The current context of ``admin``, with another user."""
    content: dict[str, Any] = yaml.safe_load(admin.read_text())
    current = content["current-context"]
    context = next(c["context"] for c in content["contexts"] if c["name"] == current)
    content["users"] = [{"name": "tester", "user": {"token": token}}]
    content["contexts"] = [{"name": current, "context": {**context, "user": "tester"}}]
    path.write_text(yaml.safe_dump(content))
