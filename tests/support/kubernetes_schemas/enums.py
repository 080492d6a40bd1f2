"""Fields with fixed values or a least one, which Kubernetes' published schemas do not check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.kubernetes_schemas.syntax import Problem, under

ACCESS_MODES = {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"}
ENUMS: Mapping[str, set[str]] = {
    "accessModes": ACCESS_MODES,
    "concurrencyPolicy": {"Allow", "Forbid", "Replace"},
    "dnsPolicy": {"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"},
    "externalTrafficPolicy": {"Cluster", "Local"},
    "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
    "internalTrafficPolicy": {"Cluster", "Local"},
    "pathType": {"Exact", "Prefix", "ImplementationSpecific"},
    "podManagementPolicy": {"OrderedReady", "Parallel"},
    "policyTypes": {"Ingress", "Egress"},
    "protocol": {"TCP", "UDP", "SCTP"},
    "restartPolicy": {"Always", "OnFailure", "Never"},
    "scheme": {"HTTP", "HTTPS"},
    "sessionAffinity": {"ClientIP", "None"},
    "terminationMessagePolicy": {"File", "FallbackToLogsOnError"},
    "unhealthyPodEvictionPolicy": {"IfHealthyBudget", "AlwaysAllow"},
    "volumeMode": {"Block", "Filesystem"},
    "whenUnsatisfiable": {"DoNotSchedule", "ScheduleAnyway"},
}
# Numbers by field: the least value.
LEAST: Mapping[str, int] = {
    **dict.fromkeys(
        (
            "activeDeadlineSeconds",
            "backoffLimit",
            "completions",
            "initialDelaySeconds",
            "minReadySeconds",
            "parallelism",
            "periodSeconds",
            "replicas",
            "revisionHistoryLimit",
            "runAsGroup",
            "runAsUser",
            "timeoutSeconds",
            "ttlSecondsAfterFinished",
        ),
        0,
    ),
    **dict.fromkeys(("failureThreshold", "successThreshold"), 1),
}
SERVICE_TYPES = {"ClusterIP", "ExternalName", "LoadBalancer", "NodePort"}
STRATEGIES = {
    "DaemonSet": ("updateStrategy", {"OnDelete", "RollingUpdate"}),
    "Deployment": ("strategy", {"Recreate", "RollingUpdate"}),
    "StatefulSet": ("updateStrategy", {"OnDelete", "RollingUpdate"}),
}
# The keys below these fields are chosen freely.
FREE = ("annotations", "binaryData", "data", "labels", "matchLabels", "nodeSelector", "stringData")


def enum_problems(manifest: Mapping[str, Any]) -> Iterator[Problem]:
    yield from _walk(manifest, "")
    kind, spec = manifest["kind"], manifest.get("spec") or {}
    if kind == "Service":
        yield from _among(spec.get("type"), SERVICE_TYPES, "spec.type")
    if kind in STRATEGIES:
        field, allowed = STRATEGIES[kind]
        yield from _among((spec.get(field) or {}).get("type"), allowed, f"spec.{field}.type")


def _walk(value: Any, place: str) -> Iterator[Problem]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, under(place, index))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            where = under(place, str(key))
            if key in ENUMS:
                for element in item if isinstance(item, list) else [item]:
                    yield from _among(element, ENUMS[key], where)
            elif key in LEAST and isinstance(item, int) and item < LEAST[key]:
                yield where, f"must be greater than or equal to {LEAST[key]}"
            elif key not in FREE:
                yield from _walk(item, where)


def _among(value: Any, allowed: set[str], place: str) -> Iterator[Problem]:
    if value is not None and value not in allowed:
        yield place, f"{value!r} is not one of {', '.join(sorted(allowed))}"
