"""The requests of `Api` against kmock: what is sent, and every error status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import kmock as mocked
import pytest

import kubernetes
from penstock.cluster.api import Api
from penstock.cluster.api_errors import UnavailableError
from penstock.errors import ClusterError
from tests.support.scripted_http import send_always, serving

pytestmark = [pytest.mark.asyncio, pytest.mark.kmock(cls=mocked.RawHandler)]

MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "engine"}, "data": {"a": "b"}}
PATH = "/api/v1/namespaces/serving/configmaps/engine"
CAUSES = [
    {"reason": "FieldManagerConflict", "field": ".data.a", "message": 'conflict with "kubectl"'}
]
Ask = Callable[[Api], Any]

ASKS: dict[str, tuple[str, Ask]] = {
    "get": (f"get {PATH}", lambda api: api.get(MAP)),
    "apply": (f"patch {PATH}", lambda api: api.apply(MAP, "helm")),
    "delete": (f"delete {PATH}", lambda api: api.delete(MAP)),
    "list": ("get /api/v1/namespaces/serving/pods", lambda api: api.list("Pod", "a=b")),
    "get_from_pod": (
        "get /api/v1/namespaces/serving/pods/front:8000/proxy/metrics",
        lambda api: api.get_from_pod("front", 8000, "metrics"),
    ),
}


def status(code: int) -> dict[str, Any]:
    details = {"causes": CAUSES} if code in (409, 422) else {}
    return {"kind": "Status", "code": code, "message": f"message {code}", "details": details}


async def call(server: mocked.RawHandler, ask: Ask) -> Any:
    configuration = kubernetes.client.Configuration()
    configuration.host = str(server.url).rstrip("/")
    configuration.retries = False
    api = Api(kubernetes.client.ApiClient(configuration), "serving")
    return await asyncio.to_thread(ask, api)


async def test_without_a_previous_container_the_log_is_the_current_ones(
    kmock: mocked.RawHandler,
) -> None:
    path = "/api/v1/namespaces/serving/pods/p/log"
    kmock[f"get {path}?previous=true"] << 400
    kmock[f"get {path}?previous=false"] << b"loading\n"
    assert await call(kmock, lambda api: api.log_tail("p", "main", 5)) == "loading\n"


@pytest.mark.parametrize("body", ["<html>Log in</html>", '{"items": "none"}', "[]"])
async def test_a_list_that_is_no_response_of_kubernetes(
    kmock: mocked.RawHandler, body: str
) -> None:
    kmock[ASKS["list"][0]] << body.encode()
    with pytest.raises(ClusterError, match="is not the API server of a cluster"):
        await call(kmock, lambda api: api.list("Pod", "a=b"))


async def test_a_list_without_items_is_empty(kmock: mocked.RawHandler) -> None:
    kmock[ASKS["list"][0]] << {"kind": "PodList", "items": None}
    assert await call(kmock, lambda api: api.list("Pod", "a=b")) == []


async def test_a_body_that_never_ends_is_given_up() -> None:
    with serving(lambda request: send_always(request, b"a 1\n")) as url:
        configuration = kubernetes.client.Configuration()
        configuration.host = url
        api = Api(kubernetes.client.ApiClient(configuration), "serving")
        api.timeout_s = 0.3
        with pytest.raises(UnavailableError, match="the response has not ended"):
            await asyncio.to_thread(api.get_from_pod, "front", 8000, "metrics")
