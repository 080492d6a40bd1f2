"""The emulated API server's authorization against recordings of a real one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.kubernetes.cluster.test_recordings import RECORDINGS
from tests.support.emulated_cluster.access import RBAC, User
from tests.support.emulated_cluster.api_server import ApiServer

pytestmark = pytest.mark.needs("recordings")
NAMESPACE = "rec-errors"
USERS = {
    "a user with the ClusterRole view in the namespace": "reader",
    "a user without rights in this namespace": "dev",
    "an administrator": "admin",
}
# Of the ClusterRole `view`, what the recordings ask for.
VIEW = [
    {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "watch"]},
]
# penstock does not send these reviews, and the emulator does not know them.
NOT_SENT = ("may, of a URL", "the rules of a user", "who am I")


def recorded(name: str) -> list[dict[str, Any]]:
    path = RECORDINGS / "errors" / f"{name}.json"
    return list(json.loads(path.read_text())) if path.exists() else []


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        server.access.users |= {"reader": User("reader", ("readers",)), "dev": User("dev")}
        store = server.store
        store.write(("v1", "namespaces", "", NAMESPACE), {"kind": "Namespace"})
        store.write((RBAC, "clusterroles", "", "view"), {"kind": "ClusterRole", "rules": VIEW})
        binding = {
            "kind": "RoleBinding",
            "subjects": [{"kind": "Group", "name": "readers"}],
            "roleRef": {"kind": "ClusterRole", "name": "view"},
        }
        store.write((RBAC, "rolebindings", NAMESPACE, "readers"), binding)
        yield server


def send(api: ApiServer, entry: dict[str, Any]) -> httpx.Response:
    request = entry["request"]
    headers = {"Authorization": f"Bearer {USERS[entry['user']]}"}
    headers["Content-Type"] = request.get("contentType") or "application/json"
    url = api.url + request["path"]
    content = json.dumps(request["body"]) if "body" in request else None
    return httpx.request(request["method"], url, content=content, headers=headers, trust_env=False)


@pytest.mark.parametrize("entry", recorded("403"), ids=lambda entry: str(entry["what"]))
def test_forbidden_requests(entry: dict[str, Any], api: ApiServer) -> None:
    got = send(api, entry)
    assert (got.status_code, got.json()) == (403, entry["response"]["body"])


@pytest.mark.parametrize(
    "entry",
    [entry for entry in recorded("selfsubjectaccessreview") if entry["what"] not in NOT_SENT],
    ids=lambda entry: str(entry["what"]),
)
def test_access_reviews(entry: dict[str, Any], api: ApiServer) -> None:
    got, response = send(api, entry), entry["response"]
    assert got.status_code == response["status"]
    body = response["body"]
    if got.status_code == 422:
        assert got.json() == body
        api.refused_reviews.clear()
    else:
        assert got.json()["status"] == body["status"]
        assert got.json()["spec"] == body["spec"]
