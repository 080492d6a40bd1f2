"""The emulated API server against the recorded errors of a real one (../shared/real-cluster).

Every recorded request of `errors/` is repeated in the recorded order and state. A response that
differs needs a reason in DIFFERENCES; the test fails if one is missing, or no longer needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.kubernetes.cluster.test_recordings import recorded
from tests.support.emulated_cluster.api_server import TOO_MANY, ApiServer
from tests.support.emulated_cluster.store import RESOURCES, ApiError, Object

pytestmark = [pytest.mark.slow, pytest.mark.needs("recordings")]
SCHEMA = "the emulator does not validate custom resources against their CRD's schema"
WEBHOOK = "the emulator has no validating webhook; `penstock check` and `diff` know these rules"
VERSION = "the emulator serves DynamoGraphDeployments as v1beta1 only"
POD_STATE = "the emulator does not know which containers and addresses a pod has"
EVICTION = "the emulator does not evict pods"
VALIDATION = "the emulator validates only what an upgrade of the chart can violate"
IN_PLACE = (
    "the texts contain the whole object; the chart never changes it in place, and `diff` says so"
)
NOT_JSON = "the client cannot send it"
DGD, KIND, LOGS = "422-dynamographdeployment", "4xx-other-kinds", "logs-and-proxy"
# Files whose responses all depend on the user's rights: replayed in test_rights.py.
OF_USERS = ("401-and-anonymous", "403", "selfsubjectaccessreview")
# Recorded responses: repeated here, the same from the emulator, and of OF_USERS.
RESPONSES, REPRODUCED, OF_RIGHTS = 130, 96, 30
# Recorded responses that the emulator does not reproduce, with the reason.
DIFFERENCES: dict[tuple[str, str], str] = {
    (DGD, "DGD of v1alpha1 with what only v1beta1 has"): VERSION,
    (DGD, "DGD: a container without a name"): SCHEMA,
    (DGD, "DGD: a multinode of 0 nodes"): SCHEMA,
    (DGD, "DGD: a multinode of 1 node (CEL or schema)"): SCHEMA,
    (DGD, "DGD: a wrong quantity"): WEBHOOK,
    (DGD, "DGD: an unknown backendFramework"): SCHEMA,
    (DGD, "DGD: an unknown field, Strict, by POST"): SCHEMA,
    (DGD, "DGD: an unknown type of component (enum)"): SCHEMA,
    (DGD, "DGD: an update changes backendFramework"): WEBHOOK,
    (DGD, "DGD: an update makes a component multinode"): WEBHOOK,
    (DGD, "DGD: an update takes a component away"): WEBHOOK,
    (DGD, "DGD: merge patch of status"): SCHEMA,
    (DGD, "DGD: minAvailable above replicas"): WEBHOOK,
    (DGD, "DGD: no components"): WEBHOOK,
    (DGD, "DGD: replicas a string"): SCHEMA,
    (DGD, "DGD: replicas negative (schema)"): SCHEMA,
    (DGD, "DGD: scale subresource, which it does not have"): SCHEMA,
    (DGD, "DGD: two components with one name, by POST"): WEBHOOK,
    (DGD, "scaling adapter: negative replicas"): SCHEMA,
    ("429", "eviction that a PodDisruptionBudget does not allow"): EVICTION,
    (KIND, "Deployment: a container without an image"): VALIDATION,
    (KIND, "Deployment: negative replicas"): VALIDATION,
    (KIND, "Deployment: selector that does not match the labels"): VALIDATION,
    (KIND, "Job: another template"): IN_PLACE,
    (KIND, "PersistentVolumeClaim: another storage class"): IN_PLACE,
    (KIND, "PersistentVolumeClaim: smaller"): IN_PLACE,
    (KIND, "body that is no JSON"): NOT_JSON,
    ("500-webhook-unavailable", "list in the other version"): VERSION,
    ("500-webhook-unavailable", "read of one in the other version (conversion)"): VERSION,
    (LOGS, "eviction of a pod that is not scheduled"): EVICTION,
    (LOGS, "log of a container that the pod does not have"): POD_STATE,
    (LOGS, "log of a pod that is not scheduled"): POD_STATE,
    (LOGS, "log of a pod with two containers without saying which"): POD_STATE,
    (LOGS, "proxy to a pod that is not scheduled"): POD_STATE,
}
KINDS = {kind: plural for kinds in RESOURCES.values() for plural, kind in kinds.items()}
LABELS = {"app": "app"}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "app", "labels": LABELS},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]},
        },
    },
}
VARIABLE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}")  # uids


def lists() -> dict[str, list[Object]]:
    """The recorded requests by file; of a file about one namespace its apply and its pod."""
    found = {}
    for file in recorded("errors", "*.json"):
        content = json.loads(file.read_text())
        if isinstance(content, dict):
            content = [
                {"what": what, **content[what], "about": content}
                for what in ("apply", "podDirectly")
                if what in content
            ]
        found[file.stem] = content
    return found


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def prepare(api: ApiServer, name: str, entries: list[Object]) -> None:
    """The namespaces and objects that the recording had before its first request."""
    for entry in entries:
        found = re.search(r"/namespaces/([^/?]+)/", entry["request"]["path"])
        if found and found[1] != "nowhere":
            make_namespace(api, found[1], entry.get("about", {}))
    if name == "namespace-terminating":
        (space,) = (o for k, o in api.store.objects.items() if k[3] == "rec-terminating")
        space["metadata"]["deletionTimestamp"] = "2026-11-22T20:51:52Z"
    if name == "4xx-other-kinds":
        make(api, DEPLOYMENT, "rec-errors")
    if name == "500-webhook-unavailable":
        api.webhook_down = "127.0.0.1:19443"


def make_existing(api: ApiServer, entry: Object, entries: list[Object]) -> None:
    """The object that a request finds: as the first recorded response with status 200 has it."""
    if entry["response"]["status"] != 200 and not entry["what"].startswith("DGD: an update"):
        return
    path = entry["request"]["path"].partition("?")[0]
    for other in entries:
        body = other["response"].get("body")
        same = other["request"]["path"].partition("?")[0] == path
        if same and other["response"]["status"] == 200 and is_object(body):
            key = (body["apiVersion"], KINDS.get(body["kind"], ""))
            namespace = body["metadata"].get("namespace", "")
            if body["kind"] in KINDS and not api.store.objects.get(
                (*key, namespace, body["metadata"]["name"])
            ):
                make(api, body, namespace)
            return


def is_object(body: Any) -> bool:
    return isinstance(body, dict) and "name" in (body.get("metadata") or {})


def make(api: ApiServer, manifest: Object, namespace: str) -> None:
    plural = KINDS[manifest["kind"]]
    key = (manifest["apiVersion"], plural, namespace, manifest["metadata"]["name"])
    api.store.write(key, manifest, trusted=True)


def make_namespace(api: ApiServer, name: str, about: Object) -> None:
    """The namespace, and what a recording about one namespace says of it."""
    if ("v1", "namespaces", "", name) in api.store.objects:
        return
    meta = {"name": name, "labels": about.get("namespaceLabels", {})}
    make(api, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}, "")
    for manifest in about.get("objects", ()):
        make(api, manifest, name)
    events = about.get("events", ())
    count = sum(1 for e in events if e["reason"] == "SuccessfulCreate")
    for number in range(count if about.get("resourceQuota") else 0):  # created by controllers
        template = about["apply"]["request"]["body"]["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"app-{number}"}}
        make(api, {**pod, "spec": template["spec"]}, name)


def send(api: ApiServer, request: Object) -> httpx.Response:
    body = request.get("body")
    if isinstance(body, str) and (size := re.match(r"\(a ConfigMap with ([\d,]+) bytes", body)):
        data = {"text": "x" * int(size[1].replace(",", ""))}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": data}
    content = body if isinstance(body, str) else json.dumps(body) if body is not None else None
    media = {"Content-Type": request["contentType"]} if request.get("contentType") else {}
    return httpx.request(
        request["method"],
        api.url + request["path"],
        content=content,
        headers={"User-Agent": "python-urllib3/2", **media, **(request.get("headers") or {})},
        trust_env=False,
        timeout=10,
    )


def answered(api: ApiServer, name: str, entry: Object) -> Any:
    """The emulator's response, in the form of `normal`; None if it does not respond."""
    is_limited = name == "429" and "evict" not in entry["what"]

    def limit(_: str) -> None:
        raise ApiError(429, "", TOO_MANY)

    api.gate = limit if is_limited else lambda _: None
    try:
        answer = send(api, entry["request"])
    except httpx.HTTPError:
        return None
    return normal(answer.status_code, decoded(answer))


def normal(status: int, body: Any) -> Any:
    """What is compared: of an error everything but uids and versions, otherwise kind and status."""
    if status < 400:
        return status, body.get("kind") if isinstance(body, dict) else None
    text = VARIABLE.sub("UID", json.dumps(body, sort_keys=True))
    return status, re.sub(r"current: \d+", "current: N", text)


def decoded(answer: httpx.Response) -> Any:
    """JSON, or text; None for an empty body."""
    try:
        return answer.json()
    except ValueError:
        return answer.text or None


def differences() -> tuple[int, set[tuple[str, str]]]:
    """The number of repeated requests, and those whose response differs from the recorded one."""
    count, found = 0, set()
    for name, entries in lists().items():
        if name in OF_USERS:
            continue
        with ApiServer() as api:
            prepare(api, name, entries)
            for entry in entries:
                count += 1
                real = normal(entry["response"]["status"], entry["response"].get("body"))
                make_existing(api, entry, entries)
                if answered(api, name, entry) != real:
                    found.add((name, entry["what"]))
    return count, found


def test_every_recorded_error_is_reproduced_or_explained() -> None:
    count, found = differences()
    assert found == DIFFERENCES.keys()
    assert (count, count - len(found)) == (RESPONSES, REPRODUCED)


def test_the_other_recorded_responses_depend_on_rights() -> None:
    assert sum(len(entries) for name, entries in lists().items() if name in OF_USERS) == OF_RIGHTS
