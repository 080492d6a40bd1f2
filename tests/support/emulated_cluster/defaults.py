"""Defaults that the API server fills in, also inside atomic fields.

The tables follow the recordings of Kubernetes 1.36 in ../shared/real-cluster/defaulting and cover
the kinds that the chart renders. Keyed by OpenAPI type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.support.emulated_cluster import topology
from tests.support.emulated_cluster.topology import Schema

Object = dict[str, Any]
CORE = "io.k8s.api.core.v1"

PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
CONSTANT: Mapping[str, Object] = {
    f"{CORE}.ObjectFieldSelector": {"apiVersion": "v1"},
    f"{CORE}.ContainerPort": {"protocol": "TCP"},
    f"{CORE}.ServicePort": {"protocol": "TCP"},
    f"{CORE}.HTTPGetAction": {"scheme": "HTTP"},
    f"{CORE}.Probe": PROBE,
    f"{CORE}.ConfigMapVolumeSource": {"defaultMode": 420},
    f"{CORE}.SecretVolumeSource": {"defaultMode": 420},
    f"{CORE}.Container": {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    },
    f"{CORE}.PodSpec": {
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    },
    f"{CORE}.PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
    f"{CORE}.ServiceSpec": {
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "sessionAffinity": "None",
        "type": "ClusterIP",
    },
    "io.k8s.api.apps.v1.DeploymentSpec": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    "io.k8s.api.apps.v1.StatefulSetSpec": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "podManagementPolicy": "OrderedReady",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    },
    "io.k8s.api.batch.v1.JobSpec": {
        "completionMode": "NonIndexed",
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": 6,
        "manualSelector": False,
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    },
    "io.k8s.api.networking.v1.NetworkPolicyPort": {"protocol": "TCP"},
    "io.k8s.api.autoscaling.v2.HPAScalingRules": {"selectPolicy": "Max"},
}


def _image_pull_policy(container: Object) -> None:
    image = str(container.get("image", ""))
    is_latest = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    container.setdefault("imagePullPolicy", "Always" if is_latest else "IfNotPresent")


def _account(pod: Object) -> None:
    if account := pod.get("serviceAccountName"):
        pod.setdefault("serviceAccount", account)


def _strategy(deployment: Object) -> None:
    strategy = deployment.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", "25%")
        rolling.setdefault("maxUnavailable", "25%")


def _target_port(port: Object) -> None:
    port.setdefault("targetPort", port.get("port"))


def _claim_templates(stateful_set: Object) -> None:
    for claim in stateful_set.get("volumeClaimTemplates") or ():
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        claim.setdefault("status", {"phase": "Pending"})


def _scale_up(behavior: Object) -> None:
    if "scaleUp" in behavior:
        behavior["scaleUp"].setdefault("stabilizationWindowSeconds", 0)


def _cluster_ip(service: Object) -> None:
    service.setdefault("clusterIP", "10.96.0.0")
    service.setdefault("clusterIPs", [service["clusterIP"]])


COMPUTED: Mapping[str, Callable[[Object], None]] = {
    f"{CORE}.Container": _image_pull_policy,
    f"{CORE}.PodSpec": _account,
    f"{CORE}.ServicePort": _target_port,
    f"{CORE}.ServiceSpec": _cluster_ip,
    "io.k8s.api.apps.v1.DeploymentSpec": _strategy,
    "io.k8s.api.apps.v1.StatefulSetSpec": _claim_templates,
    "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerBehavior": _scale_up,
}


def fill_in(manifest: Object) -> None:
    """Add the missing defaults to the object itself."""
    kind = str(manifest.get("kind"))
    if kind in CUSTOM:
        CUSTOM[kind](manifest.get("spec") or {})
    if kind == "DynamoGraphDeployment":  # by the operator's webhook
        annotations = manifest["metadata"].setdefault("annotations", {})
        annotations.setdefault("nvidia.com/dynamo-operator-origin-version", "1.6.1")
        annotations.setdefault("nvidia.com/workload-provider", "component")
    if kind == "PersistentVolumeClaim":
        manifest["metadata"].setdefault("finalizers", ["kubernetes.io/pvc-protection"])
        manifest.setdefault("spec", {}).setdefault("storageClassName", "standard")
    if kind == "Pod":
        manifest.setdefault("status", {"phase": "Pending"})
    if kind not in topology.CUSTOM:  # the API server does not default pod templates in them
        _fill(manifest, topology.of(str(manifest.get("apiVersion")), kind))


def _fill(value: Any, schema: Schema) -> None:
    name = topology.definition(schema)
    schema = topology.resolved(schema)
    if isinstance(value, list):
        for element in value:
            _fill(element, schema.get("items") or {})
    if not isinstance(value, dict):
        return
    if name in COMPUTED:
        COMPUTED[name](value)
    for key, default in CONSTANT.get(name or "", {}).items():
        value.setdefault(key, dict(default) if isinstance(default, dict) else default)
    for key, inner in list(value.items()):
        if inner == []:  # as Go leaves it out
            del value[key]
        _fill(inner, topology.child(schema, key))


def _replicas_of_components(spec: Object) -> None:
    for component in spec.get("components") or ():
        component.setdefault("replicas", 1)


def _relabelings(spec: Object) -> None:
    for endpoint in spec.get("podMetricsEndpoints") or ():
        for rule in endpoint.get("relabelings") or ():
            rule.setdefault("action", "replace")


def _partition(spec: Object) -> None:
    rolling = (spec.get("rolloutStrategy") or {}).get("rollingUpdateConfiguration")
    if rolling is not None:
        rolling.setdefault("partition", 0)


CUSTOM: Mapping[str, Callable[[Object], None]] = {
    "DynamoGraphDeployment": _replicas_of_components,
    "PodMonitor": _relabelings,
    "LeaderWorkerSet": _partition,
}
