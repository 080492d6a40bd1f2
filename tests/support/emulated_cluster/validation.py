"""What the API server refuses in an object: wrong types first, then wrong content.

Built-in kinds and Dynamo's custom resources, by the validators of
`tests.support.kubernetes_schemas`, which check the chart too; of Dynamo's, only where ../shared has
the CRD. Places and statuses follow the recordings in ../shared/real-cluster and `refusals.yaml`;
most texts are our own. Other custom resources are checked as far as `OTHERS` has their fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from tests.support import outside_files
from tests.support.emulated_cluster import topology
from tests.support.emulated_cluster.store import ApiError, Key, Object, full_kind, invalid
from tests.support.kubernetes_schemas import builtin, contents, crd, groups
from tests.support.kubernetes_schemas.structure import (
    MISSING,
    UNKNOWN_FIELD,
    WRONG_TYPE,
    structural_problems,
)
from tests.support.kubernetes_schemas.syntax import Problem, quantity

VERSION = topology.VERSION
OWN_CRDS = ("DynamoGraphDeployment", "DynamoGraphDeploymentScalingAdapter")
QUANTITY_TEXT = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
DURATION = (
    "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
)
PERIOD = {"type": "string", "pattern": DURATION}
OTHERS: Mapping[str, Object] = {
    "PodMonitor": {
        "properties": {
            "spec": {
                "required": ["podMetricsEndpoints", "selector"],
                "properties": {
                    "podMetricsEndpoints": {
                        "items": {"properties": {"interval": PERIOD, "scrapeTimeout": PERIOD}}
                    }
                },
            }
        }
    }
}


def require_types(key: Key, body: Object, *, by_apply: bool, strict: bool = False) -> None:
    """Raises ApiError: 500 of an apply, otherwise 400. ``strict``: refuse unknown fields too."""
    kind = body["kind"]
    group = key[0] if "/" in key[0] else f"/{key[0]}"
    what = f"{(body.get('metadata') or {}).get('namespace', '')}/{key[3]}; {group}, Kind={kind}"
    typed = f"failed to create typed patch object ({what})"
    if by_apply and (text := topology.problem(body, topology.of(key[0], kind))):
        raise ApiError(500, "", f"{typed}: {text}")
    for place, text in _of_types(body):
        if text == UNKNOWN_FIELD and not (strict or by_apply):
            continue
        if by_apply:
            raise ApiError(500, "", f"{typed}: .{place}: {text}")
        if text == UNKNOWN_FIELD:
            raise _undecodable(kind, f'strict decoding error: unknown field "{place}"')
        raise _undecodable(kind, f"json: cannot unmarshal field {kind}.{place}: {text}")
    text = next(_malformed(body), "")
    if text and not builtin.is_builtin(body):  # the operator's webhook decodes it
        refusal = f'admission webhook "m{kind.lower()}.kb.io" denied the request: {text}'
        raise ApiError(400, "", refusal)
    if text and by_apply:
        to = f"to proper version: unable to convert unstructured object to {group}, Kind={kind}"
        raise ApiError(500, "", f"failed to convert new object ({what}) {to}: {text}")
    if text:
        raise _undecodable(kind, text)


def _undecodable(kind: str, text: str) -> ApiError:
    message = f'{kind} in version "v1" cannot be handled as a {kind}: {text}'
    return ApiError(400, "BadRequest", message)


def _of_types(body: Object) -> list[Problem]:
    """Unknown fields and wrong types."""
    if builtin.is_builtin(body):
        return [p for p in builtin.wrong_types(body, VERSION) if p[1] != MISSING]
    problems = _of_crd(body, None)
    return [p for p in problems if p[1] == UNKNOWN_FIELD or WRONG_TYPE.search(p[1])]


def _malformed(value: Any) -> Iterator[str]:
    """Quantities and encoded bytes that cannot be decoded."""
    if isinstance(value, list):
        for item in value:
            yield from _malformed(item)
        return
    if not isinstance(value, Mapping):
        return
    encoded = ["binaryData", *(["data"] if value.get("kind") == "Secret" else [])]
    for name, item in value.items():
        if name in encoded and isinstance(item, Mapping):
            if not all(contents.is_base64(text) for text in item.values()):
                yield "error decoding from json: illegal base64 data at input byte 0"
        elif name in ("limits", "requests") and isinstance(item, Mapping):
            if any(quantity(amount) is None for amount in item.values()):
                yield QUANTITY_TEXT
        elif name in ("sharedMemorySize", "sizeLimit") and quantity(item) is None:
            yield QUANTITY_TEXT
        elif name not in ("annotations", "data", "labels", "stringData"):
            yield from _malformed(item)


def require_valid(key: Key, new: Object, old: Object | None) -> None:
    """``new`` with defaults. Raises ApiError (422)."""
    problems = [
        (place, "Required value" if text == MISSING else f"Invalid value: {text}")
        for place, text in _problems(new, old)
    ]
    prefix = ""
    if not problems and new["kind"] == "DynamoGraphDeployment":
        problems = list(_denied(new, old))
        prefix = 'admission webhook "vdynamographdeployment.kb.io" denied the request: '
    if problems:
        raise invalid(full_kind(key), key[3], *problems, prefix=prefix)


def _problems(new: Object, old: Object | None) -> Iterator[Problem]:
    kind = new["kind"]
    if builtin.is_builtin(new):
        missing = [p for p in builtin.wrong_types(new, VERSION) if p[1] == MISSING]
        yield from missing or builtin.refused(new)
    elif kind == groups.KIND:
        yield from groups.faults(new, VERSION)
    elif kind in OTHERS:
        yield from structural_problems(Draft202012Validator(OTHERS[kind]), new)
    else:  # unknown fields are dropped where they are not refused before
        yield from (p for p in _of_crd(new, old) if p[1] != UNKNOWN_FIELD)


def _of_crd(new: Object, old: Object | None) -> list[Problem]:
    """Of the custom resources whose CRD is at hand."""
    definition = _crds().get(new["kind"])
    return definition.problems(new, old) if definition else []


@cache
def _crds() -> Mapping[str, crd.Crd]:
    definitions = {}
    for kind in OWN_CRDS:
        file = outside_files.crds() / f"nvidia.com_{kind.lower()}s.yaml"
        if file.is_file():
            definitions[kind] = crd.versions(file)["nvidia.com/v1beta1"]
    return definitions


def _denied(new: Object, old: Object | None) -> Iterator[Problem]:
    """The rules of the operator's validating webhook that were recorded."""
    components = new["spec"].get("components") or []
    if not components:
        yield "spec.components", "Required value: must have at least one component"
    if old is None:
        return
    before, after = old["spec"].get("backendFramework"), new["spec"].get("backendFramework")
    if before != after:
        text = "is immutable and cannot be changed after creation"
        yield "spec.backendFramework", f"Invalid value: {json.dumps(after)}: {text}"
    names = [component["name"] for component in components]
    were = {c["name"]: bool(c.get("multinode")) for c in old["spec"].get("components") or ()}
    changes = [
        (what, [name for name in changed if name not in rest])
        for what, changed, rest in (("removed", were, names), ("added", names, were))
    ]
    if lines := "; ".join(f"components {what}: [{', '.join(n)}]" for what, n in changes if n):
        text = "component topology is immutable and cannot be modified after creation"
        yield "spec.components", f"Forbidden: {text}: {lines}"
    for index, component in enumerate(components):
        nodes = component.get("multinode")
        if were.get(component["name"], bool(nodes)) != bool(nodes):
            text = "cannot change node topology between single-node and multi-node after creation"
            value = json.dumps(nodes, separators=(",", ":"))
            yield f"spec.components[{index}].multinode", f"Invalid value: {value}: {text}"
