"""The emulated API server against the recorded refusals of a real one (../shared/real-cluster).

Every recorded request of `errors/` and `emulator-2026-11-28/` is repeated in the recorded order and
state. The status and the refused fields must be the recorded ones, or the difference needs a reason
in DIFFERENCES; the test fails if one is missing, or no longer needed. Responses that differ only in
their wording are counted.
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
from tests.support.kubernetes_schemas.edit import edited

pytestmark = [pytest.mark.slow, pytest.mark.needs("recordings")]
VERSION = "the emulator serves DynamoGraphDeployments as v1beta1 only"
PODS = "the recorded pods are not there: the emulator makes pods of its own"
STATUS = "the emulator has no status subresource for clients"
ALSO = "the real server names a second field for the same fault"
DGD, KIND, LOGS = "422-dynamographdeployment", "4xx-other-kinds", "logs-and-proxy"
# Files whose responses all depend on the user's rights: replayed in test_rights.py.
OF_USERS = ("401-and-anonymous", "403", "selfsubjectaccessreview")
# Recorded responses: repeated here, of these the same to the letter, and of OF_USERS.
RESPONSES, REPRODUCED, OF_RIGHTS = 240, 160, 30
# Recorded responses with another status or other fields than the emulator's, with the reason.
DIFFERENCES: dict[tuple[str, str], str] = {
    (DGD, "DGD of v1alpha1 with what only v1beta1 has"): VERSION,
    (DGD, "DGD: merge patch of status"): STATUS,
    (DGD, "scaling adapter: negative replicas"): ALSO,
    ("429", "eviction that a PodDisruptionBudget does not allow"): PODS,
    ("500-webhook-unavailable", "list in the other version"): VERSION,
    ("500-webhook-unavailable", "read of one in the other version (conversion)"): VERSION,
    (LOGS, "eviction of a pod that is not scheduled"): PODS,
    (LOGS, "log of a container that the pod does not have"): PODS,
    (LOGS, "log of a pod that is not scheduled"): PODS,
    (LOGS, "log of a pod with two containers without saying which"): PODS,
    (LOGS, "proxy to a pod that is not scheduled"): PODS,
    ("emulator-differences", "deploy: no selector"): ALSO,
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
POD_OF_JOB = {"restartPolicy": "Never", "containers": [{"name": "m", "image": "x"}]}
GRAPHS, GRAPH = "nvidia.com/v1beta1", "DynamoGraphDeployment"
COMPARED = ("emulator-differences", "refusals-same-status")
VARIABLE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}")  # uids


def lists() -> dict[str, list[Object]]:
    """The recorded requests by file; of a file about one namespace its apply and its pod."""
    listed = {}
    for file in recorded("errors", "*.json"):
        content = json.loads(file.read_text())
        if isinstance(content, dict):
            content = [
                {"what": what, **content[what], "about": content}
                for what in ("apply", "podDirectly")
                if what in content
            ]
        listed[file.stem] = content
    for name in COMPARED:
        (file,) = recorded("emulator-2026-11-28", f"{name}.json")
        listed[name] = [compared(entry) for entry in json.loads(file.read_text())]
    return listed


def compared(entry: Object) -> Object:
    """A request that was sent to both servers, in the form of those in `errors/`."""
    body = entry["body"]
    if isinstance(body, dict) and "omitted" in body:
        body = edited(DEPLOYMENT, {"metadata/annotations": {"a": "x" * 300 * 1024}})
        body = edited(body, {"metadata/name": "d9"})
    request = {
        "method": entry["method"],
        "path": entry["path"],
        "contentType": entry["content_type"],
        "body": body,
    }
    real = entry["real"]
    response = {"status": real["status"], "body": real["answer"]}
    return {"what": entry["what"], "request": request, "response": response}


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def prepare(api: ApiServer, name: str, entries: list[Object]) -> None:
    """The namespaces and objects that the recording had before its first request."""
    for entry in entries:
        match = re.search(r"/namespaces/([^/?]+)/", entry["request"]["path"])
        if match and match[1] not in ("nope", "nowhere"):
            make_namespace(api, match[1], entry.get("about", {}))
    if name == "namespace-terminating":
        (space,) = (o for k, o in api.store.objects.items() if k[3] == "rec-terminating")
        space["metadata"]["deletionTimestamp"] = "2026-11-22T20:51:52Z"
    if name == "4xx-other-kinds":
        make(api, DEPLOYMENT, "rec-errors")
    if name in COMPARED:
        make_compared(api, name, entries)
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


def make_compared(api: ApiServer, name: str, entries: list[Object]) -> None:
    """The objects that the compared requests were sent to."""
    space = "emuns"
    for manifest in (
        config_map("c1"),
        {**config_map("ci"), "immutable": True, "data": {"a": "b"}},
        edited(DEPLOYMENT, {"metadata/name": "d1"}),
        of("v1", "Service", "s1", spec={"ports": [{"port": 80}], "clusterIP": "10.96.0.7"}),
        of("batch/v1", "Job", "j1", spec={"template": {"spec": POD_OF_JOB}}),
        of("v1", "Pod", "p1", spec={"containers": [{"name": "main", "image": "x"}]}),
        of("v1", "Secret", "sh.helm.release.v1.emu.v1", type="helm.sh/release.v1"),
    ):
        make(api, manifest, space)
    make(api, of("v1", "Node", "cpu-0"), "")
    graphs = [e["request"]["body"] for e in entries if "backendFramework changed" in e["what"]]
    for graph in graphs or [of(GRAPHS, GRAPH, "emu", spec={"components": [{"name": "a"}]})]:
        make(api, edited(graph, {"spec/backendFramework": "vllm"}), space)
    if name == "refusals-same-status":  # the project's own creations, repeated
        for entry in entries:
            if entry["what"].startswith("own: create"):
                make(api, entry["request"]["body"], space)


def of(version: str, kind: str, name: str, **content: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content}


def config_map(name: str) -> Object:
    return of("v1", "ConfigMap", name, data={})


def outcome(response: tuple[int, Any]) -> Any:
    """The status and the refused fields of a response."""
    status, text = response
    if status < 400:
        return response
    body = json.loads(text)
    causes = ((body or {}).get("details") or {}).get("causes") if isinstance(body, dict) else ()
    # "<nil>" is the note that a CRD's rules were left out.
    return status, sorted({c.get("field") for c in causes or ()} - {"<nil>"}, key=str)


def replayed() -> tuple[int, int, set[tuple[str, str]]]:
    """The requests, those with the same response, and those with another status or other fields."""
    count, same, differing = 0, 0, set()
    for name, entries in lists().items():
        if name in OF_USERS:
            continue
        with ApiServer() as api:
            prepare(api, name, entries)
            for entry in entries:
                count += 1
                real = normal(entry["response"]["status"], entry["response"].get("body"))
                make_existing(api, entry, entries)
                answer = answered(api, name, entry)
                same += answer == real
                if answer is None or outcome(answer) != outcome(real):
                    differing.add((name, entry["what"]))
            # Reviews that were refused as recorded; elsewhere none may be sent.
            api.refused_reviews.clear()
    return count, same, differing


def test_every_recorded_refusal_is_reproduced_or_explained() -> None:
    count, same, differing = replayed()
    assert differing == DIFFERENCES.keys()
    assert (count, same) == (RESPONSES, REPRODUCED)


def test_the_other_recorded_responses_depend_on_rights() -> None:
    assert sum(len(entries) for name, entries in lists().items() if name in OF_USERS) == OF_RIGHTS
