"""What is checked of the fields of an object at any depth: labels, selectors and fixed values.

Kubernetes' published schemas do not check the values of these fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.support.kubernetes_schemas.syntax import (
    Problem,
    annotation_problems,
    label_problems,
    under,
)

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
AT_LEAST_ZERO = (
    "activeDeadlineSeconds", "backoffLimit", "completions", "initialDelaySeconds",
    "minReadySeconds", "parallelism", "periodSeconds", "replicas", "revisionHistoryLimit",
    "runAsGroup", "runAsUser", "timeoutSeconds", "ttlSecondsAfterFinished",
)  # fmt: skip
# Numbers by field: the least value.
LEAST: Mapping[str, int] = {
    **dict.fromkeys(AT_LEAST_ZERO, 0),
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
TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}
FOR_SETS = ("In", "NotIn")


def field_problems(manifest: Mapping[str, Any]) -> Iterator[Problem]:
    """Of all fields of an object, those in templates and selectors too."""
    for place, key, content in entries(manifest):
        if key in ("labels", "matchLabels", "nodeSelector"):
            yield from label_problems(content, place)
        elif key == "annotations":
            yield from annotation_problems(content, place)
        elif key == "matchExpressions" and "nodeAffinity" not in place:
            for index, expression in enumerate(content or ()):
                yield from _expression(expression, under(place, index))
        elif key in ENUMS:
            for element in content if isinstance(content, list) else [content]:
                yield from _among(element, ENUMS[key], place)
        elif key in LEAST and isinstance(content, int) and content < LEAST[key]:
            yield place, f"must be greater than or equal to {LEAST[key]}"
    kind, spec = manifest["kind"], manifest.get("spec") or {}
    if kind == "Service":
        yield from _among(spec.get("type"), SERVICE_TYPES, "spec.type")
    if kind in STRATEGIES:
        field, allowed = STRATEGIES[kind]
        yield from _among((spec.get(field) or {}).get("type"), allowed, f"spec.{field}.type")


def entries(content: Any, place: str = "") -> Iterator[tuple[str, str, Any]]:
    """(place, key, content) of every entry of a mapping; not below keys that are chosen freely."""
    if isinstance(content, list):
        for index, element in enumerate(content):
            yield from entries(element, under(place, index))
    elif isinstance(content, Mapping):
        for key, inner in content.items():
            where = under(place, str(key))
            yield where, key, inner
            if key not in FREE:
                yield from entries(inner, where)


def matches(selector: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    """An empty selector matches everything, as in a NetworkPolicy."""
    match_labels = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()
    return all(labels.get(key) == value for key, value in match_labels.items()) and all(
        TESTS[e["operator"]](labels.get(e["key"]), e.get("values") or ())
        for e in expressions
        if e["operator"] in TESTS
    )


def _expression(expression: Mapping[str, Any], place: str) -> Iterator[Problem]:
    operator, values = expression.get("operator"), expression.get("values")
    if operator not in TESTS:
        yield f"{place}.operator", f"operator {operator!r} is not one of {', '.join(TESTS)}"
    elif bool(values) != (operator in FOR_SETS):
        yield (
            f"{place}.values",
            f"{operator} {'needs' if operator in FOR_SETS else 'takes no'} values",
        )


def _among(value: Any, allowed: set[str], place: str) -> Iterator[Problem]:
    if value is not None and value not in allowed:
        yield place, f"{value!r} is not one of {', '.join(sorted(allowed))}"
