"""Create, replace, patch and delete, with the errors of a real API server.

The texts follow the recordings in ../shared/real-cluster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.emulated_cluster import (
    defaults,
    fields,
    policies,
    requests,
    topology,
    validation,
)
from tests.support.emulated_cluster.fields import Manager
from tests.support.emulated_cluster.store import (
    RESOURCES,
    ApiError,
    Key,
    Object,
    Store,
    details,
    full_kind,
    invalid,
    resource,
)
from tests.support.kubernetes_schemas.syntax import quantity

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
# Of a StatefulSet.
MUTABLE = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip
# Of the specs of other kinds.
FIXED = {
    "Deployment": ("selector",),
    "Job": ("selector", "template", "completionMode"),
    "PersistentVolumeClaim": ("accessModes", "selector", "storageClassName", "volumeMode"),
}
Query = Mapping[str, str]


def create(store: Store, place: Key, body: Object, query: Query, agent: str) -> Object:
    """POST; the name is in the body."""
    version, plural, namespace, _ = place
    meta = body.get("metadata") or {}
    name = meta.get("name") or (meta["generateName"] + "xxxxx" if "generateName" in meta else "")
    key = (version, plural, namespace, str(name))
    with store.lock:
        requests.require_kind(key, body)
        manifest = {
            "apiVersion": version,
            "kind": RESOURCES[version][plural],
            **fields.copied(body),
        }
        requests.require_place(key, manifest, name)
        validation.require_types(key, manifest, by_apply=False, strict=_is_strict(query))
        _require_namespace(store, namespace)
        if not name:
            text = "Required value: name or generateName is required"
            raise invalid(full_kind(key), "", ("metadata.name", text))
        if meta.get("resourceVersion"):
            raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
        requests.require_names(key, name, body)
        if key in store.objects:
            text = f'{resource(key)} "{key[3]}" already exists'
            raise ApiError(409, "AlreadyExists", text, details(key))
        manifest["metadata"]["name"] = name
        return _write(store, key, None, manifest, query, _updater(query, agent, version))


def replace(store: Store, key: Key, body: Object, query: Query, agent: str) -> Object:
    """PUT. The status stays as it is."""
    with store.lock:
        old = store.existing(key)
        manifest = {"kind": old["kind"], **fields.copied(body), "apiVersion": key[0]}
        requests.require_place(key, manifest, (body.get("metadata") or {}).get("name", ""))
        validation.require_types(key, manifest, by_apply=False, strict=_is_strict(query))
        _require_version(key, old, body)
        _require_uid(key, old, body)
        if "status" in old:
            manifest["status"] = old["status"]
        return _write(store, key, old, manifest, query, _updater(query, agent, key[0]))


def patch(store: Store, key: Key, body: Any, query: Query, agent: str, media: str) -> Object:
    """PATCH of any kind."""
    with store.lock:
        _require_namespace(store, key[2])
        if media == APPLY:
            return _apply(store, key, body, query)
        if "force" in query:
            text = "Forbidden: may not be specified for non-apply patch"
            raise requests.option("PatchOptions", "force", text)
        old = store.existing(key)
        if media == JSON_PATCH:
            patched = _json_patched(old, body)
        elif media == STRATEGIC:
            schema = topology.of(key[0], old["kind"])
            patched = fields.merged(old, _without_directives(body), schema, keeps_order=True)
        else:
            patched = merged(old, body)
        validation.require_types(key, patched, by_apply=False, strict=_is_strict(query))
        _require_version(key, old, patched)
        return _write(store, key, old, patched, query, _updater(query, agent, key[0]))


def _write(
    store: Store, key: Key, old: Object | None, manifest: Object, query: Query, by: Manager | None
) -> Object:
    """Fill in the defaults, validate and store; ``by``: None if the fields' owners are known."""
    defaults.fill_in(manifest)
    validation.require_valid(key, manifest, old)
    _require_mutable(key, old, manifest)
    if old is None:
        policies.admit(store, key, manifest)
    owned = fields.update(old, manifest, by) if by else manifest
    return store.write(key, owned, dry_run=is_dry_run(query))


def set_scale(
    store: Store, key: Key, body: Object, query: Query, agent: str, method: str
) -> Object:
    """PUT or merge patch of the `scale` subresource."""
    with store.lock:
        old = store.existing(key)
        if method == "PUT":
            requests.require_name(key, (body.get("metadata") or {}).get("name", ""))
        replicas = body["spec"]["replicas"]
        if replicas < 0:
            text = f"Invalid value: {replicas}: must be greater than or equal to 0"
            raise invalid("Scale.autoscaling", key[3], ("spec.replicas", text))
        scaled = merged(old, {"spec": {"replicas": replicas}})
        who = _updater(query, agent, key[0])
        who = Manager(who.name, who.operation, who.api_version, "scale")
        return store.write(key, fields.update(old, scaled, who), dry_run=is_dry_run(query))


def delete(store: Store, key: Key, options: Object, query: Query) -> Object:
    """DELETE. An object with finalizers of controllers stays, with a `deletionTimestamp`."""
    with store.lock:
        requests.require_delete_options(options)
        old = store.existing(key)
        _require_preconditions(key, old, options.get("preconditions") or {})
        if is_dry_run(query):
            return old
        if set(old["metadata"].get("finalizers") or ()) <= {"kubernetes.io/pvc-protection"}:
            return store.remove(key)
        meta = {"deletionTimestamp": "2026-11-22T00:00:00Z", **old["metadata"]}
        return store.write(key, {**old, "metadata": meta}, trusted=True)


def _require_preconditions(key: Key, old: Object, required: Object) -> None:
    live = old["metadata"]["uid"]
    if required.get("uid", live) == live:
        return
    text = (
        f'Operation cannot be fulfilled on {full_kind(key)} "{key[3]}": the UID in the '
        f"precondition ({required['uid']}) does not match the UID in record ({live}). The object "
        "might have been deleted and then recreated"
    )
    raise ApiError(409, "Conflict", text, {**details(key), "kind": RESOURCES[key[0]][key[1]]})


def is_dry_run(query: Query) -> bool:
    return query.get("dryRun") == "All"


def _is_strict(query: Query) -> bool:
    return query.get("fieldValidation") == "Strict"


def _apply(store: Store, key: Key, body: Object, query: Query) -> Object:
    if not query.get("fieldManager"):
        text = "Required value: is required for apply patch"
        raise requests.option("PatchOptions", "fieldManager", text)
    meta = body.setdefault("metadata", {})
    if meta.get("managedFields"):
        raise ApiError(400, "BadRequest", "metadata.managedFields must be nil")
    requests.require_place(key, body, meta.get("name", key[3]))
    validation.require_types(key, body, by_apply=True)
    requests.require_names(key, key[3], body)
    old = store.objects.get(key)
    _require_version(key, old, body)
    try:
        force = query.get("force") == "true"
        applied = fields.apply(old, body, query["fieldManager"], force=force)
    except fields.ConflictError as error:
        causes = [
            {"reason": "FieldManagerConflict", "message": message, "field": path}
            for message, path in error.fields
        ]
        raise ApiError(409, "Conflict", str(error), {"causes": causes}) from None
    applied["metadata"]["name"] = key[3]
    return _write(store, key, old, applied, query, None)


def _require_namespace(store: Store, namespace: str) -> None:
    key = ("v1", "namespaces", "", namespace)
    if namespace and key not in store.objects:
        text = f'namespaces "{namespace}" not found'
        raise ApiError(404, "NotFound", text, {"name": namespace, "kind": "namespaces"})


def _require_version(key: Key, old: Object | None, new: Object) -> None:
    """Raises ApiError (409) if ``new`` was read before the last write."""
    sent = new["metadata"].get("resourceVersion")
    if sent and (old is None or sent != old["metadata"]["resourceVersion"]):
        text = (
            f'Operation cannot be fulfilled on {resource(key)} "{key[3]}": the object has been '
            "modified; please apply your changes to the latest version and try again"
        )
        raise ApiError(409, "Conflict", text, details(key))


def _require_uid(key: Key, old: Object, new: Object) -> None:
    sent, live = new["metadata"].get("uid"), old["metadata"]["uid"]
    if sent in (None, live):
        return
    where = f"StorageError: invalid object, Code: 4, Key: /registry/{key[1]}/{key[2]}/{key[3]}"
    text = (
        f'Operation cannot be fulfilled on {resource(key)} "{key[3]}": {where}, ResourceVersion: '
        f"0, AdditionalErrorMsg: Precondition failed: UID in precondition: {sent}, UID in object "
        f"meta: {live}"
    )
    raise ApiError(409, "Conflict", text, details(key))


def _require_mutable(key: Key, old: Object | None, new: Object) -> None:
    """The fields that cannot change, of the kinds in which an upgrade of the chart could try."""
    kind = new["kind"]
    if old is None:
        return

    def refuse(field: str, message: str) -> ApiError:
        return invalid(full_kind(key), key[3], (field, message))

    if kind == "ConfigMap" and old.get("immutable"):
        for field in ("immutable", "data", "binaryData"):
            if old.get(field) != new.get(field):
                raise refuse(field, "Forbidden: field is immutable when `immutable` is set")
    if kind == "Secret" and old.get("type") != new.get("type"):
        raise refuse("type", f'Invalid value: "{new.get("type")}": field is immutable')
    if kind == "Service":
        address = new["spec"].get("clusterIP")
        if address not in (None, "", old["spec"].get("clusterIP")):
            text = f"Invalid value: {_compact([address])}: may not change once set"
            raise refuse("spec.clusterIPs[0]", text)
    if kind in ("Deployment", "Job") and (field := _changed(old, new, FIXED[kind])):
        text = f"Invalid value: {_compact(new['spec'].get(field))}: field is immutable"
        raise refuse(f"spec.{field}", text)
    if kind == "RoleBinding" and old["roleRef"] != new["roleRef"]:
        names = {"apiGroup": "APIGroup", "kind": "Kind", "name": "Name"}
        role = {name: new["roleRef"].get(field, "") for field, name in names.items()}
        raise refuse("roleRef", f"Invalid value: {_compact(role)}: cannot change roleRef")
    if kind == "Pod" and _other_than_images(old) != _other_than_images(new):
        text = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`"
        raise refuse("spec", text)
    if kind == "PersistentVolumeClaim" and _changed(old, new, FIXED[kind]):
        text = "Forbidden: spec is immutable after creation except resources.requests"
        raise refuse("spec", text)
    if kind == "PersistentVolumeClaim":
        sizes = [quantity(o["spec"]["resources"]["requests"]["storage"]) for o in (old, new)]
        if sizes[0] and sizes[1] and sizes[1] < sizes[0]:
            text = "Forbidden: field can not be less than status.capacity"
            raise refuse("spec.resources.requests.storage", text)
    if kind == "StatefulSet":
        fixed = [{k: v for k, v in o["spec"].items() if k not in MUTABLE} for o in (old, new)]
        if fixed[0] != fixed[1]:
            names = ", ".join(f"'{name}'" for name in MUTABLE[:-1]) + f" and '{MUTABLE[-1]}'"
            text = f"updates to statefulset spec for fields other than {names} are forbidden"
            raise refuse("spec", f"Forbidden: {text}")


def _changed(old: Object, new: Object, names: Sequence[str]) -> str | None:
    """The first of these fields of the spec that differs."""
    return next((n for n in names if old["spec"].get(n) != new["spec"].get(n)), None)


def _other_than_images(pod: Object) -> Object:
    kept = {
        name: value
        for name, value in pod["spec"].items()
        if name not in ("activeDeadlineSeconds", "tolerations", "nodeName")
    }
    containers = [{**c, "image": ""} for c in pod["spec"].get("containers") or ()]
    return {**kept, "containers": containers}


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _updater(query: Query, agent: str, version: str) -> Manager:
    name = query.get("fieldManager") or agent.partition("/")[0] or "unknown"
    return Manager(name, "Update", version)


def merged(old: Any, patch: Any) -> Any:
    """A JSON merge patch."""
    if not isinstance(patch, dict) or not isinstance(old, dict):
        return patch
    result = dict(old)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(old.get(name), value)
    return result


def _without_directives(patch: Any) -> Any:
    if isinstance(patch, dict):
        return {k: _without_directives(v) for k, v in patch.items() if not k.startswith("$")}
    return [*map(_without_directives, patch)] if isinstance(patch, list) else patch


def _json_patched(old: Object, operations: list[Object]) -> Object:
    patched: Object = fields.copied(old)
    for operation in operations:
        try:
            _patch_one(patched, operation)
        except (IndexError, KeyError, TypeError, ValueError):
            text = "the server rejected our request due to an error in our request"
            raise ApiError(422, "Invalid", text, {}) from None
    return patched


def _patch_one(manifest: Object, operation: Object) -> None:
    """Raises LookupError, TypeError or ValueError if it cannot be done, or a test fails."""
    *parents, last = [
        part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
    ]
    node: Any = manifest
    for part in parents:
        node = node[int(part)] if isinstance(node, list) else node[part]
    place: Any = last
    if isinstance(node, list):
        place = len(node) if last == "-" else int(last)
    match operation["op"]:
        case "test":
            if node[place] != operation["value"]:
                raise ValueError(operation["path"])
        case "remove":
            del node[place]
        case "add" if isinstance(node, list):
            node.insert(place, operation["value"])
        case "add" | "replace":
            node[place] = operation["value"]
        case other:
            raise ValueError(other)
