"""The emulated API server against recordings of a real one (../shared/real-cluster).

Every recorded request is repeated, and the responses are compared. A difference needs a reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.emulated_cluster import defaults, fields, writes
from tests.support.emulated_cluster.api_server import ApiServer
from tests.support.outside_files import recordings

RECORDINGS = recordings()
pytestmark = pytest.mark.needs("recordings")
Object = dict[str, Any]

NO_CONTROLLER = "there is no Job controller, which labels the pods with the Job's uid"
NO_ADMISSION = "a pod of its own is not given a service account, a priority or tolerations"
NO_SCHEMA = "the emulator does not know the defaults of this custom resource"
DEFAULTING = {
    ("BackendTrafficPolicy", 0): NO_SCHEMA,
    **{("Job", number): NO_CONTROLLER for number in range(4)},
    ("Pod", 0): NO_ADMISSION,
}
UPDATED_PARENTS = "of an Update, the maps around a field are not recorded as owned"
NOT_VALIDATED = "the emulator validates only what an upgrade of the chart can violate"
CONFLICTS = {
    ("create-then-apply", "the same by force"): UPDATED_PARENTS,
    ("create-then-apply", "helm changes the value by merge patch of the label"): UPDATED_PARENTS,
    ("create-then-apply", "apply with another uid"): NOT_VALIDATED,
    (
        "dynamographdeployment",
        "merge patch of the components replaces the list (refused or not?)",
    ): NOT_VALIDATED,
    (
        "dynamographdeployment",
        "helm applies a component with an unknown field, Strict",
    ): "custom resources: the emulator does not know all fields of the schema",
    ("service-ports", "helm applies another port"): NOT_VALIDATED,
}
# Written by controllers between the recorded steps.
CONTROLLERS = ("kubeall", "kube-controller-manager", "dynamo-operator")
THEIR_ANNOTATIONS = ("nvidia.com/current-worker-hash-v2", "deployment.kubernetes.io/revision")
UNPREDICTABLE = (
    "uid",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "managedFields",
    "namespace",
)


def recorded(folder: str, suffix: str) -> list[Path]:
    return sorted((RECORDINGS / folder).glob(suffix))


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        for name in ("rec-conflicts", "rec-defaulting"):
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {}}
            server.store.write(("v1", "namespaces", "", name), space)
        yield server


@pytest.mark.parametrize("file", recorded("defaulting", "*.jsonl"), ids=lambda p: p.stem)
def test_defaults_and_owners_of_applied_objects(file: Path) -> None:
    """The fields that the API server adds, also in fields that are owned as a whole."""
    for number, line in enumerate(file.read_text().splitlines()):
        entry = json.loads(line)
        if entry["response"]["status"] >= 400:
            continue
        applied = fields.apply(None, entry["request"]["body"], "helm", force=False)
        defaults.fill_in(applied)
        real = entry["response"]["body"]
        assert owned(applied) == owned(real), entry["source"]
        is_same = predictable(applied) == predictable(real)
        assert is_same == ((file.stem, number) not in DEFAULTING), entry["source"]


@pytest.mark.parametrize("file", recorded("conflicts", "*.json"), ids=lambda p: p.stem)
def test_writes_of_several_managers(file: Path, api: ApiServer) -> None:
    for step in json.loads(file.read_text())["steps"]:
        got = send(api, step["request"])
        is_same = response(got.status_code, got.json()) == response(**step["response"])
        expected = CONFLICTS.get((file.stem, step["what"]))
        assert is_same == (expected is None), (step["what"], expected, got.text)


def test_each_object_of_the_chart_is_written_by_two_managers(api: ApiServer) -> None:
    """Helm, then the SDK in a process called `python`: the conflicts that penstock had."""
    file = RECORDINGS / "conflicts" / "every-object-two-managers.jsonl"
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    conflicting = [entry for entry in entries if "request" in entry]
    assert len(conflicting) >= 10
    for entry in conflicting:
        manifest = entry["request"]
        version, plural = manifest["apiVersion"], f"{manifest['kind'].lower()}s"
        path = f"/apis/{version}/namespaces/rec-conflicts/{plural}/{entry['name']}"
        request = {"method": "PATCH", "body": manifest, "contentType": writes.APPLY}
        of_helm = send(api, {**request, "path": f"{path}?fieldManager=helm"})
        assert of_helm.status_code == entry["helm"], of_helm.text
        got = send(api, {**request, "path": f"{path}?fieldManager=python"})
        assert got.status_code == entry["pythonSame"]
        causes = got.json()["details"]["causes"]
        assert by_field(causes) == by_field(entry["pythonCauses"])


def by_field(causes: list[Object]) -> list[Object]:
    return sorted(causes, key=lambda cause: str(cause["field"]))


def send(api: ApiServer, request: Object) -> httpx.Response:
    """Repeat a request, with the emulator's own version and uid of the object."""
    body = request.get("body")
    path, _, _ = request["path"].partition("?")
    meta = body.get("metadata", {}) if isinstance(body, dict) else {}
    if meta.get("resourceVersion", "1") != "1":  # recorded on purpose: an old one
        live = httpx.get(api.url + path.removesuffix("/scale"), trust_env=False).json()
        now = {name: live["metadata"][name] for name in ("resourceVersion", "uid")}
        body = without_controllers({**body, "metadata": {**meta, **now}})
    kind = {"Content-Type": request.get("contentType") or "application/json"}
    return httpx.request(
        request["method"],
        api.url + request["path"],
        content=body if isinstance(body, str) else json.dumps(body),
        headers={"User-Agent": "python-urllib3/2", **kind},
        trust_env=False,
    )


def response(status: int, body: Any, **_: Any) -> Any:
    """What is compared of a response."""
    if status >= 400:
        causes = (body.get("details") or {}).get("causes") or []
        return status, {**body, "details": None}, sorted(map(json.dumps, causes))
    if body["kind"] == "Scale":
        return status, body["spec"]["replicas"]
    spec = {k: v for k, v in body.get("spec", {}).items() if k not in ("clusterIP", "clusterIPs")}
    return status, spec, body.get("data"), owned(body)


def owned(body: Object) -> Object:
    """The fields of each manager that is no controller."""
    fields_by_manager = {}
    for entry in body["metadata"].get("managedFields") or ():
        name, subresource = entry["manager"], entry.get("subresource", "")
        if name in CONTROLLERS and subresource != "scale":
            continue
        tree = without_dots(entry["fieldsV1"]) if entry["operation"] == "Update" else None
        key = f"{name} {entry['operation']} {subresource}"
        fields_by_manager[key] = entry["fieldsV1"] if tree is None else tree
    return fields_by_manager


def without_dots(tree: Object) -> Object:
    """Of an Update, the API server also records maps around the fields."""
    inner = {k: without_dots(v) for k, v in tree.items() if k not in (".", "f:status")}
    for name in THEIR_ANNOTATIONS:
        inner.pop(f"f:{name}", None)
    return {k: v for k, v in inner.items() if v or k != "f:annotations"}


def without_controllers(body: Object) -> Object:
    meta = dict(body["metadata"])
    annotations = meta.get("annotations") or {}
    meta["annotations"] = {k: v for k, v in annotations.items() if k not in THEIR_ANNOTATIONS}
    meta.pop("finalizers", None)
    if not meta["annotations"]:
        del meta["annotations"]
    return {**body, "metadata": meta}


def predictable(body: Object) -> Object:
    meta = {k: v for k, v in body["metadata"].items() if k not in UNPREDICTABLE}
    rest = {k: v for k, v in body.items() if k not in ("status", "metadata")}
    return json.loads(json.dumps({**rest, "metadata": meta}))
