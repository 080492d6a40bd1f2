"""What a real API server refuses, the emulated one refuses too: `refusals.yaml`.

`KUBECONFIG=… uv run pytest tests/kubernetes/cluster/test_refusals.py -m cluster` sends the same dry
runs to a real cluster and compares them with the recording.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubernetes import client
from tests.support.emulated_cluster.api_server import ApiServer
from tests.support.emulated_cluster.site import api_client, real_kubeconfig
from tests.support.kubernetes_schemas.edit import REMOVED, edited

RECORDED = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text())
OBJECTS = {entry["body"]["kind"]: entry for entry in RECORDED["objects"]}
STRICT = "dryRun=All&fieldValidation=Strict"
# Requests to which the emulated server responds differently, with the reason.
ALSO = "the real server names the selector as a whole too"
PARENT = "the real server names the parent of the field"
FOR_LATER = "the emulated server does not look at a generated name's prefix"
DIFFERENCES = {
    'Deployment {"spec/selector": {"matchExpressions"': ALSO,
    'Deployment {"spec/strategy": {"type": "Rolling"}}': PARENT,
    'Deployment {"spec/template/metadata/labels"': PARENT,
    'Deployment {"spec/template/spec/containers/0/volumeMounts": [{"name": "v", "mountPath": "/a", '
    '"subPath"': PARENT,
    'StatefulSet {"spec/updateStrategy"': PARENT,
    'StatefulSet {"spec/selector"': ALSO,
    'ConfigMap {"metadata/ownerReferences"': PARENT,
    'ConfigMap {"metadata/generateName"': FOR_LATER,
    'NetworkPolicy {"spec/policyTypes"': PARENT,
}


def title(request: dict[str, Any]) -> str:
    return f"{request['kind']} {json.dumps(request['change'])}"


@pytest.fixture(
    scope="module", params=["emulated", pytest.param("real", marks=pytest.mark.cluster)]
)
def api(request: pytest.FixtureRequest) -> Iterator[client.ApiClient]:
    if request.param == "real":
        yield api_client(real_kubeconfig())
        return
    with ApiServer() as server:
        yield client.ApiClient(client.Configuration(host=server.url))


def respond(api: client.ApiClient, method: str, path: str, body: Any) -> tuple[int, list[str]]:
    """The status and the refused fields."""
    token = api.configuration.auth_settings().get("BearerToken", {}).get("value")
    media = {"POST": "application/json", "PATCH": "application/apply-patch+yaml"}[method]
    response = api.rest_client.pool_manager.request(
        method,
        f"{api.configuration.host}/{path}",
        body=json.dumps(body),
        headers={"Content-Type": media} | ({"Authorization": token} if token else {}),
    )
    answer = json.loads(response.data)
    causes = (answer.get("details") or {}).get("causes") if response.status >= 400 else ()
    return response.status, sorted({cause.get("field", "") for cause in causes or ()})


def responses(api: client.ApiClient, request: dict[str, Any]) -> list[tuple[int, list[str]]]:
    """Of the server-side apply and of the POST."""
    kept = OBJECTS[request["kind"]]
    change = {place: REMOVED if v == "~" else v for place, v in request["change"].items()}
    body = edited(kept["body"], change)
    path = f"{kept['path']}/namespaces/default/{kept['plural']}"
    apply = f"{path}/h1?{STRICT}&fieldManager=helm&force=true"
    return [respond(api, "PATCH", apply, body), respond(api, "POST", f"{path}?{STRICT}", body)]


@pytest.mark.parametrize("request_", RECORDED["requests"], ids=title)
def test_a_wrong_object_is_refused_as_by_a_real_server(
    api: client.ApiClient, request_: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    expected = [
        (status, request_["fields"] if status == 422 else []) for status in request_["status"]
    ]
    is_emulated = "emulated" in request.node.callspec.id
    reason = next((r for t, r in DIFFERENCES.items() if title(request_).startswith(t)), None)
    answers = responses(api, request_)
    if is_emulated and reason:
        assert answers != expected, "no longer different"
        assert reason == FOR_LATER or all(status >= 400 for status, _ in answers)
    else:
        assert answers == expected


@pytest.mark.parametrize("kind", OBJECTS)
def test_the_unchanged_objects_are_accepted(api: client.ApiClient, kind: str) -> None:
    assert responses(api, {"kind": kind, "change": {}}) == [(201, []), (201, [])]
