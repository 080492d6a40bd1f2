"""Create, replace, patch and delete, with the errors of a real API server.

The texts follow the recordings in ../shared/real-cluster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.support.emulated_cluster import defaults, fields, policies, requests, topology
from tests.support.emulated_cluster.fields import Manager
from tests.support.emulated_cluster.store import RESOURCES, ApiError, Key, Object, Store

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
# Of a StatefulSet.
MUTABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
Query = Mapping[str, str]


def create(store: Store, place: Key, body: Object, query: Query, agent: str) -> Object:
    """POST; the name is in the body."""
    version, plural, namespace, _ = place
    key = (version, plural, namespace, str(body["metadata"]["name"]))
    with store.lock:
        requests.require_kind(key, body)
        requests.require_names(key, key[3], body)
        _require_namespace(store, namespace)
        if key in store.objects:
            text = f'{_resource(key)} "{key[3]}" already exists'
            raise ApiError(409, "AlreadyExists", text, _details(key))
        made = {"apiVersion": version, "kind": RESOURCES[version][plural], **fields.copied(body)}
        defaults.fill_in(made)
        policies.admit(store, key, made)
        made = fields.update(None, made, _updater(query, agent, version))
        return store.write(key, made, dry_run=is_dry_run(query))


def replace(store: Store, key: Key, body: Object, query: Query, agent: str) -> Object:
    """PUT. The status stays as it is."""
    with store.lock:
        old = existing(store, key)
        _require_version(key, old, body)
        made = {**fields.copied(body), "apiVersion": key[0], "kind": old["kind"]}
        if "status" in old:
            made["status"] = old["status"]
        defaults.fill_in(made)
        _require_mutable(key, old, made)
        made = fields.update(old, made, _updater(query, agent, key[0]))
        return store.write(key, made, dry_run=is_dry_run(query))


def patch(store: Store, key: Key, body: Any, query: Query, agent: str, media: str) -> Object:
    """PATCH of any kind."""
    with store.lock:
        _require_namespace(store, key[2])
        if media == APPLY:
            return _apply(store, key, body, query)
        if "force" in query:
            raise _invalid_option("force", "may not be specified for non-apply patch", "Forbidden")
        old = existing(store, key)
        if media == JSON_PATCH:
            made = _json_patched(old, body)
        elif media == STRATEGIC:
            schema = topology.of(key[0], old["kind"])
            made = fields.merged(old, _without_directives(body), schema, keeps_order=True)
        else:
            made = merged(old, body)
        _require_version(key, old, made)
        defaults.fill_in(made)
        _require_mutable(key, old, made)
        made = fields.update(old, made, _updater(query, agent, key[0]))
        return store.write(key, made, dry_run=is_dry_run(query))


def set_scale(store: Store, key: Key, body: Object, query: Query, agent: str) -> Object:
    """PUT or merge patch of the `scale` subresource."""
    with store.lock:
        old = existing(store, key)
        made = merged(old, {"spec": {"replicas": body["spec"]["replicas"]}})
        who = _updater(query, agent, key[0])
        who = Manager(who.name, who.operation, who.api_version, "scale")
        return store.write(key, fields.update(old, made, who), dry_run=is_dry_run(query))


def delete(store: Store, key: Key, options: Object, query: Query) -> Object:
    """DELETE. An object with finalizers of controllers stays, with a `deletionTimestamp`."""
    with store.lock:
        old = existing(store, key)
        _require_preconditions(key, old, options.get("preconditions") or {})
        if is_dry_run(query):
            return old
        if set(old["metadata"].get("finalizers") or ()) <= {"kubernetes.io/pvc-protection"}:
            return store.remove(key)
        meta = {"deletionTimestamp": "2026-11-22T00:00:00Z", **old["metadata"]}
        return store.write(key, {**old, "metadata": meta}, trusted=True)


def _require_preconditions(key: Key, old: Object, given: Object) -> None:
    live = old["metadata"]["uid"]
    if given.get("uid", live) == live:
        return
    group = key[0].rpartition("/")[0]
    kind = RESOURCES[key[0]][key[1]]
    what = f"{kind}.{group}" if group else kind
    text = (
        f'Operation cannot be fulfilled on {what} "{key[3]}": the UID in the precondition '
        f"({given['uid']}) does not match the UID in record ({live}). The object might have been "
        "deleted and then recreated"
    )
    raise ApiError(409, "Conflict", text, {**_details(key), "kind": kind})


def existing(store: Store, key: Key) -> Object:
    """The object. Raises ApiError (404)."""
    if key not in store.objects:
        raise ApiError(404, "NotFound", f'{_resource(key)} "{key[3]}" not found', _details(key))
    return store.objects[key]


def is_dry_run(query: Query) -> bool:
    return query.get("dryRun") == "All"


def _apply(store: Store, key: Key, body: Object, query: Query) -> Object:
    if not query.get("fieldManager"):
        raise _invalid_option("fieldManager", "is required for apply patch", "Required value")
    if body["metadata"].get("managedFields"):
        raise ApiError(400, "BadRequest", "metadata.managedFields must be nil")
    named = body["metadata"].get("name", key[3])
    if named != key[3]:
        text = f"the name of the object ({named}) does not match the name on the URL ({key[3]})"
        raise ApiError(400, "BadRequest", text)
    _require_types(key, body)
    requests.require_names(key, key[3], body)
    old = store.objects.get(key)
    _require_version(key, old, body)
    try:
        force = query.get("force") == "true"
        made = fields.apply(old, body, query["fieldManager"], force=force)
    except fields.ConflictError as error:
        causes = [
            {"reason": "FieldManagerConflict", "message": message, "field": path}
            for message, path in error.fields
        ]
        raise ApiError(409, "Conflict", str(error), {"causes": causes}) from None
    defaults.fill_in(made)
    if old is None:
        policies.admit(store, key, made)
    _require_mutable(key, old, made)
    return store.write(key, made, dry_run=is_dry_run(query))


def _require_namespace(store: Store, namespace: str) -> None:
    key = ("v1", "namespaces", "", namespace)
    if namespace and key not in store.objects:
        text = f'namespaces "{namespace}" not found'
        raise ApiError(404, "NotFound", text, {"name": namespace, "kind": "namespaces"})


def _require_version(key: Key, old: Object | None, new: Object) -> None:
    """Raises ApiError (409) if ``new`` was read before the last write."""
    given = new["metadata"].get("resourceVersion")
    if given and (old is None or given != old["metadata"]["resourceVersion"]):
        text = (
            f'Operation cannot be fulfilled on {_resource(key)} "{key[3]}": the object has been '
            "modified; please apply your changes to the latest version and try again"
        )
        raise ApiError(409, "Conflict", text, _details(key))


def _require_types(key: Key, body: Object) -> None:
    """Raises ApiError (500) for a malformed object, as the real server does."""
    problem = topology.problem(body, topology.of(key[0], body["kind"]))
    if problem:
        what = f"/{key[3]}; {key[0]}, Kind={body['kind']}"
        raise ApiError(500, "", f"failed to create typed patch object ({what}): {problem}")


def _require_mutable(key: Key, old: Object | None, new: Object) -> None:
    """The fields that cannot change, of the kinds in which an upgrade of the chart could try."""
    kind = new["kind"]
    if old is None:
        return
    if kind == "ConfigMap" and old.get("immutable"):
        text = "field is immutable when `immutable` is set"
        for field in ("immutable", "data", "binaryData"):
            if old.get(field) != new.get(field):
                raise _invalid(key, kind, field, text)
    if kind == "Deployment" and old["spec"]["selector"] != new["spec"]["selector"]:
        value = json.dumps(new["spec"]["selector"], separators=(",", ":"))
        raise _invalid(key, kind, "spec.selector", "field is immutable", value)
    if kind == "RoleBinding" and old["roleRef"] != new["roleRef"]:
        names = {"apiGroup": "APIGroup", "kind": "Kind", "name": "Name"}
        role = {name: new["roleRef"].get(field, "") for field, name in names.items()}
        value = json.dumps(role, separators=(",", ":"))
        raise _invalid(key, kind, "roleRef", "cannot change roleRef", value)
    if kind == "StatefulSet":
        fixed = [{k: v for k, v in o["spec"].items() if k not in MUTABLE} for o in (old, new)]
        if fixed[0] != fixed[1]:
            names = ", ".join(f"'{name}'" for name in MUTABLE[:-1]) + f" and '{MUTABLE[-1]}'"
            text = f"updates to statefulset spec for fields other than {names} are forbidden"
            raise _invalid(key, kind, "spec", text)


def _invalid(key: Key, kind: str, field: str, message: str, value: str = "") -> ApiError:
    """``value``: the invalid value; without one the change is forbidden."""
    group = key[0].rpartition("/")[0]
    text = f"Invalid value: {value}: {message}" if value else f"Forbidden: {message}"
    reason = "FieldValueInvalid" if value else "FieldValueForbidden"
    causes = [{"reason": reason, "message": text, "field": field}]
    details = {**_details(key), "kind": kind, "causes": causes}
    what = f'{kind}.{group} "{key[3]}"' if group else f'{kind} "{key[3]}"'
    return ApiError(422, "Invalid", f"{what} is invalid: {field}: {text}", details)


def _invalid_option(field: str, message: str, kind: str) -> ApiError:
    text = f"{kind}: {message}"
    reason = {"Required value": "FieldValueRequired", "Forbidden": "FieldValueForbidden"}[kind]
    causes = [{"reason": reason, "message": text, "field": field}]
    details = {"group": "meta.k8s.io", "kind": "PatchOptions", "causes": causes}
    message = f'PatchOptions.meta.k8s.io "" is invalid: {field}: {text}'
    return ApiError(422, "Invalid", message, details)


def _resource(key: Key) -> str:
    group = key[0].rpartition("/")[0]
    return f"{key[1]}.{group}" if group else key[1]


def _details(key: Key) -> Object:
    group = key[0].rpartition("/")[0]
    return {"name": key[3], **({"group": group} if group else {}), "kind": key[1]}


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
    made: Object = fields.copied(old)
    for operation in operations:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        ]
        node: Any = made
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node[part]
        place: Any = int(last) if isinstance(node, list) else last
        match operation["op"]:
            case "test":
                if node[place] != operation["value"]:
                    text = "the server rejected our request due to an error in our request"
                    raise ApiError(422, "Invalid", text, {})
            case "remove":
                del node[place]
            case "add" if isinstance(node, list):
                node.insert(place, operation["value"])
            case _:
                node[place] = operation["value"]
    return made
