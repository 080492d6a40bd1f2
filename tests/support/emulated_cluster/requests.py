"""Requests that the API server refuses before it looks at the object, with its recorded texts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.support.emulated_cluster.store import (
    RESOURCES,
    ApiError,
    Key,
    Object,
    Store,
    full_kind,
    invalid,
)

MOST_BYTES = 3 * 1024**2
MOST_DATA = 1024**2
MOST_MANAGER = 128  # bytes
POLICIES = ("Foreground", "Background", "Orphan")
FIRST_VERSION = 100  # older ones are compacted
PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
STRATEGIC = "application/strategic-merge-patch+json"
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
NAME_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
    r"validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
EVENT_FIELDS = ("type", "metadata.name", "metadata.namespace", "spec.nodeName", "status.phase")
Query = Mapping[str, str]


def require_size(length: int) -> None:
    if length > MOST_BYTES:
        text = f"Request entity too large: limit is {MOST_BYTES}"
        raise ApiError(413, "RequestEntityTooLarge", text)


def require_media(key: Key, media: str) -> None:
    """Raises ApiError if the object cannot be patched with this media type."""
    is_custom = "." in key[0].partition("/")[0] and not key[0].endswith(".k8s.io/v1")
    if media == STRATEGIC and is_custom:
        text = (
            "the body of the request was in an unknown format - accepted media types include: "
            f"{', '.join(PATCHES)}"
        )
        raise ApiError(415, "UnsupportedMediaType", text)
    if media not in (*PATCHES, STRATEGIC):
        raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def require_method(key: Key, subresource: str, method: str) -> None:
    if method == "POST" and key[3] and not subresource:
        text = "the server does not allow this method on the requested resource"
        raise ApiError(405, "MethodNotAllowed", text, {})


def require_options(method: str, query: Query) -> None:
    kind = {"PATCH": "PatchOptions", "POST": "CreateOptions"}.get(method, "UpdateOptions")
    dry_run = query.get("dryRun")
    if dry_run not in (None, "All"):
        raise option(kind, "dryRun", f'Unsupported value: ["{dry_run}"]: supported values: "All"')
    validation = query.get("fieldValidation")
    if validation not in (None, "", "Ignore", "Strict", "Warn"):
        values = '"", "Ignore", "Strict", "Warn"'
        text = f'Unsupported value: "{validation}": supported values: {values}'
        raise option(kind, "fieldValidation", text)
    if len(query.get("fieldManager", "")) > MOST_MANAGER:
        raise option(kind, "fieldManager", f"Too long: may not be more than {MOST_MANAGER} bytes")


def require_delete_options(options: Object) -> None:
    policy = options.get("propagationPolicy")
    if policy is not None and "orphanDependents" in options:
        text = "orphanDependents and deletionPropagation cannot be both set"
        raise option("DeleteOptions", "propagationPolicy", f'Invalid value: "{policy}": {text}')
    if policy not in (None, *POLICIES):
        values = ", ".join(f'"{name}"' for name in (*POLICIES, "nil"))
        text = f'Unsupported value: "{policy}": supported values: {values}'
        raise option("DeleteOptions", "propagationPolicy", text)


def require_review(body: Object) -> None:
    """Reject a SelfSubjectAccessReview with metadata other than a namespace, or without exactly one
    kind of attributes, as Kubernetes does."""
    metadata = {k: v for k, v in body.get("metadata", {}).items() if k != "namespace"}
    spec = body.get("spec", {})
    if metadata:
        raise _review("metadata", metadata, "must be empty")
    if not spec:
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _review("spec.resourceAttributes", None, text)
    if {"resourceAttributes", "nonResourceAttributes"} <= spec.keys():
        text = "cannot be specified in combination with resourceAttributes"
        raise _review("spec.nonResourceAttributes", spec["nonResourceAttributes"], text)


def _review(field: str, value: Object | None, text: str) -> ApiError:
    message = f"Invalid value: {json.dumps(value)}: {text}"
    return invalid(".authorization.k8s.io", "", (field, message))


def option(kind: str, field: str, message: str) -> ApiError:
    return invalid(f"{kind}.meta.k8s.io", "", (field, message))


def require_kind(key: Key, body: Any) -> None:
    """Of a create or replace. A custom resource of another kind has another text."""
    expected = RESOURCES[key[0]][key[1]]
    kind = body.get("kind") or expected
    if kind == expected or "/" in key[0]:
        return
    text = f'{kind} in version "v1" cannot be handled as a {expected}: converting (v1.{kind}) to'
    raise ApiError(400, "BadRequest", f"{text} (core.{expected}): unknown conversion")


def require_names(key: Key, name: str, body: Object) -> None:
    """The object's name, its labels and its size."""
    kind = full_kind(key)
    if not SUBDOMAIN.fullmatch(name):
        raise invalid(kind, name, ("metadata.name", f'Invalid value: "{name}": {NAME_TEXT}'))
    for value in (body["metadata"].get("labels") or {}).values():
        if isinstance(value, str) and len(value) > 63:
            message = f'Invalid value: "{value}": must be no more than 63 bytes'
            raise invalid(kind, name, ("metadata.labels", message))
    data = body.get("data")
    values = data.values() if isinstance(data, Mapping) else ()
    size = sum(len(v.encode()) for v in values if isinstance(v, str))
    if kind == "ConfigMap" and size > MOST_DATA:
        raise invalid(kind, name, ("[]", f"Too long: may not be more than {MOST_DATA} bytes"))


def require_place(key: Key, body: Object, name: str) -> None:
    """The kind, the namespace and the name of the body of an apply or a PUT are the path's."""
    version, plural, namespace, _ = key
    sent_version, kind = body.get("apiVersion", ""), body.get("kind", "")
    if (sent_version, kind) != (version, RESOURCES[version][plural]):
        raise ApiError(400, "BadRequest", f"invalid object type: {sent_version}, Kind={kind}")
    if body.get("metadata", {}).get("namespace", namespace) != namespace:
        text = "the namespace of the provided object does not match the namespace sent on the"
        raise ApiError(400, "BadRequest", f"{text} request")
    require_name(key, name)
    if name != key[3]:
        text = f"the name of the object ({name}) does not match the name on the URL ({key[3]})"
        raise ApiError(400, "BadRequest", text)


def require_name(key: Key, name: str) -> None:
    if not name and key[3]:
        text = f"the name of the object ({key[3]} based on URL) was undeterminable"
        raise ApiError(400, "BadRequest", f"{text}: name must be provided")


def require_list(store: Store, query: Query) -> None:
    """Raises ApiError for a list that cannot be served at this version or by these selectors."""
    if "continue" in query:
        text = "invalid continue token: continue key is not valid: invalid character"
        raise ApiError(400, "BadRequest", f"{text} 'i' looking for beginning of value")
    match = query.get("resourceVersionMatch")
    version = int(query.get("resourceVersion") or 0)
    if match == "Exact" and 0 < version < FIRST_VERSION:
        text = "The resourceVersion for the provided list is too old."
        raise ApiError(410, "Expired", text)
    if match == "NotOlderThan" and version > store.version:
        text = "Too large resource version"
        causes = [{"reason": "ResourceVersionTooLarge", "message": text}]
        details = {"causes": causes, "retryAfterSeconds": 1}
        message = f"Timeout: {text}: {version}, current: {store.version}"
        raise ApiError(504, "Timeout", message, details)
    field = query.get("fieldSelector", "").partition("=")[0].rstrip("!")
    if field and field not in EVENT_FIELDS and not field.startswith("involvedObject."):
        raise ApiError(400, "BadRequest", f"field label not supported: {field}")
    if query.get("labelSelector", "").startswith("!!"):
        text = "unable to parse requirement: found '!', expected: identifier"
        raise ApiError(400, "BadRequest", text)


def require_watch(query: Query) -> int:
    """The version from which to watch. Raises ApiError if it is not a number."""
    version = query.get("resourceVersion") or "0"
    if not version.isdigit():
        text = f'strconv.ParseUint: parsing "{version}": invalid syntax'
        raise ApiError(500, "", f'resourceVersion: Invalid value: "{version}": {text}')
    return int(version)


def expired_event(version: int) -> bytes:
    """The only event of a watch from a version that is compacted, which has status 200."""
    text = f"too old resource version: {version} ({FIRST_VERSION})"
    status = ApiError(410, "Expired", text).status
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


def webhook_error(address: str) -> ApiError:
    """The operator's webhook at ``address`` cannot be reached."""
    url = f"https://{address}/mutate/nvidia.com/v1beta1/dynamographdeployments?timeout=10s"
    text = (
        'failed calling webhook "mdynamographdeployment.kb.io": failed to call webhook: '
        f'Post "{url}": dial tcp {address}: connect: connection refused'
    )
    details = {"causes": [{"message": text}]}
    return ApiError(500, "InternalError", f"Internal error occurred: {text}", details)
