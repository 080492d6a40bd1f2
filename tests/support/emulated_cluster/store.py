"""The objects of the emulated API server, and the errors that it returns."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.emulated_cluster import fields

Object = dict[str, Any]
Key = tuple[str, str, str, str]  # apiVersion, plural, namespace, name

RESOURCES = {
    "v1": {
        "namespaces": "Namespace",
        "configmaps": "ConfigMap",
        "secrets": "Secret",
        "services": "Service",
        "serviceaccounts": "ServiceAccount",
        "persistentvolumeclaims": "PersistentVolumeClaim",
        "pods": "Pod",
        "events": "Event",
        "resourcequotas": "ResourceQuota",
        "limitranges": "LimitRange",
        "nodes": "Node",
    },
    "apps/v1": {
        "deployments": "Deployment",
        "replicasets": "ReplicaSet",
        "statefulsets": "StatefulSet",
    },
    "batch/v1": {"jobs": "Job"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
    "rbac.authorization.k8s.io/v1": {
        "clusterrolebindings": "ClusterRoleBinding",
        "clusterroles": "ClusterRole",
        "rolebindings": "RoleBinding",
        "roles": "Role",
    },
    "nvidia.com/v1beta1": {
        "dynamographdeployments": "DynamoGraphDeployment",
        "dynamocomponentdeployments": "DynamoComponentDeployment",
        "dynamographdeploymentscalingadapters": "DynamoGraphDeploymentScalingAdapter",
    },
    "resource.nvidia.com/v1beta1": {"computedomains": "ComputeDomain"},
    "monitoring.coreos.com/v1": {"podmonitors": "PodMonitor"},
    "leaderworkerset.x-k8s.io/v1": {"leaderworkersets": "LeaderWorkerSet"},
    "autoscaling/v2": {"horizontalpodautoscalers": "HorizontalPodAutoscaler"},
    "gateway.networking.k8s.io/v1": {"gateways": "Gateway", "httproutes": "HTTPRoute"},
    "gateway.envoyproxy.io/v1alpha1": {
        "backendtrafficpolicies": "BackendTrafficPolicy",
        "clienttrafficpolicies": "ClientTrafficPolicy",
        "envoyextensionpolicies": "EnvoyExtensionPolicy",
        "securitypolicies": "SecurityPolicy",
    },
    "scheduling.k8s.io/v1": {"priorityclasses": "PriorityClass"},
    "keda.sh/v1alpha1": {"scaledobjects": "ScaledObject"},
}
CLUSTER_SCOPED = ("namespaces", "nodes", "clusterroles", "clusterrolebindings", "priorityclasses")


class ApiError(Exception):
    """An error response of the API."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None):
        super().__init__(message)
        self.code = code
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": details,
            "code": code,
        }
        self.status = {name: value for name, value in status.items() if value not in ("", None)}


def invalid(kind: str, name: str, *problems: tuple[str, str], prefix: str = "") -> ApiError:
    """422. ``kind`` with its group, as `Deployment.apps`; (place, message) of each problem.

    A message begins with its type, such as `Invalid value` or `Required value`.
    """
    causes = [
        {"reason": _reason(message), "message": message, "field": place}
        for place, message in problems
    ]
    singular, _, group = kind.partition(".")
    details = {"name": name, "group": group, "kind": singular, "causes": causes}
    lines = [f"{place}: {message}" for place, message in problems]
    text = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    details_set = {field: value for field, value in details.items() if value}
    return ApiError(422, "Invalid", f'{prefix}{kind} "{name}" is invalid: {text}', details_set)


def _reason(message: str) -> str:
    known = {
        "Duplicate value": "Duplicate",
        "Forbidden": "Forbidden",
        "Not found": "NotFound",
        "Required value": "Required",
        "Too long": "TooLong",
        "Unsupported value": "NotSupported",
    }
    return f"FieldValue{known.get(message.partition(':')[0], 'Invalid')}"


def full_kind(key: Key) -> str:
    """The kind with its group: `Deployment.apps`, `Pod`."""
    return _with_group(RESOURCES[key[0]][key[1]], key)


def resource(key: Key) -> str:
    """The plural with its group: `deployments.apps`, `pods`."""
    return _with_group(key[1], key)


def _with_group(name: str, key: Key) -> str:
    group = key[0].rpartition("/")[0]
    return f"{name}.{group}" if group else name


def details(key: Key) -> Object:
    """What an error says of the object that it is about."""
    group = key[0].rpartition("/")[0]
    return {"name": key[3], **({"group": group} if group else {}), "kind": key[1]}


def not_found(key: Key) -> ApiError:
    return ApiError(404, "NotFound", f'{resource(key)} "{key[3]}" not found', details(key))


@dataclass
class Store:
    """The objects, and a log of their changes."""

    objects: dict[Key, Object] = field(default_factory=dict)
    log: list[tuple[int, str, Key, Object]] = field(default_factory=list)
    version: int = 100
    lock: threading.Condition = field(default_factory=threading.Condition)
    # Called with the new and the old object of a write, unless it is ``trusted``; may modify the
    # new object, or raise ApiError.
    admission: list[Callable[[Object, Object | None], None]] = field(default_factory=list)

    def write(
        self, key: Key, new: Object, *, dry_run: bool = False, trusted: bool = False
    ) -> Object:
        with self.lock:
            old = self.objects.get(key)
            manifest = fields.copied(new)
            for admit in () if trusted else self.admission:
                admit(manifest, old)
            meta = manifest.setdefault("metadata", {})
            meta |= {"name": key[3]} | ({"namespace": key[2]} if key[2] else {})
            was = old["metadata"] if old else {"uid": str(uuid.uuid4()), "generation": 0}
            meta["uid"] = was["uid"]
            meta.setdefault("creationTimestamp", "2026-11-21T00:00:00Z")
            changed = old is None or old.get("spec") != manifest.get("spec")
            meta["generation"] = was["generation"] + changed
            if old is not None and manifest == old:
                return old
            meta["resourceVersion"] = str(self.version + 1)
            if not dry_run:
                self.version += 1
                self.objects[key] = manifest
                self._log_event("MODIFIED" if old else "ADDED", key, manifest)
            return manifest

    def remove(self, key: Key) -> Object:
        with self.lock:
            removed = self.objects.pop(key)
            self.version += 1
            self._log_event("DELETED", key, removed)
            return removed

    def _log_event(self, kind: str, key: Key, manifest: Object) -> None:
        self.log.append((self.version, kind, key, fields.copied(manifest)))
        self.lock.notify_all()

    def existing(self, key: Key) -> Object:
        """The object. Raises ApiError (404)."""
        if key not in self.objects:
            raise not_found(key)
        return self.objects[key]

    def set_status(self, manifest: Object, status: Object) -> None:
        """Write the status of a controller, if it has changed."""
        if manifest.get("status") != status:
            self.write(key_of(manifest), {**manifest, "status": status}, trusted=True)

    def of_kind(self, kind: str, owner: Object | None = None) -> list[Object]:
        """Copies of the objects of a kind, oldest first; of one owner only, if given."""
        with self.lock:
            return [
                fields.copied(o)
                for o in self.objects.values()
                if o.get("kind") == kind and (owner is None or _is_owned(o, owner))
            ]

    def events_after(self, version: int, until: float) -> Iterator[tuple[str, Key, Object]]:
        """Changes after ``version`` as they happen, until the clock reaches ``until``."""
        while (left := until - time.monotonic()) > 0:
            with self.lock:
                fresh = [entry for entry in self.log if entry[0] > version]
                if not fresh:
                    self.lock.wait(min(left, 0.2))
            for number, kind, key, manifest in fresh:
                version = number
                yield kind, key, manifest


def key_of(manifest: Object) -> Key:
    meta, version = manifest["metadata"], manifest["apiVersion"]
    plural = next(p for p, kind in RESOURCES[version].items() if kind == manifest["kind"])
    return version, plural, meta["namespace"], meta["name"]


def _is_owned(manifest: Object, owner: Object) -> bool:
    meta, uid = manifest["metadata"], owner["metadata"]["uid"]
    is_here = meta.get("namespace") == owner["metadata"].get("namespace")
    return is_here and any(r["uid"] == uid for r in meta.get("ownerReferences") or ())
