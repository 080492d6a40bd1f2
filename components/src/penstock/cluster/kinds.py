"""The kinds of objects that the chart renders and that controllers create from them."""

from __future__ import annotations

from collections.abc import Mapping

# Resource name by kind: the kinds the chart renders, and the ones their controllers create.
PLURALS = {
    "BackendTrafficPolicy": "backendtrafficpolicies",
    "ClientTrafficPolicy": "clienttrafficpolicies",
    "ComputeDomain": "computedomains",
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "EnvoyExtensionPolicy": "envoyextensionpolicies",
    "Event": "events",
    "Gateway": "gateways",
    "HTTPRoute": "httproutes",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "DynamoComponentDeployment": "dynamocomponentdeployments",
    "DynamoGraphDeployment": "dynamographdeployments",
    "Job": "jobs",
    "LeaderWorkerSet": "leaderworkersets",
    "NetworkPolicy": "networkpolicies",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Pod": "pods",
    "PodClique": "podcliques",
    "PodCliqueScalingGroup": "podcliquescalinggroups",
    "PodCliqueSet": "podcliquesets",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "PodMonitor": "podmonitors",
    "ReplicaSet": "replicasets",
    "RoleBinding": "rolebindings",
    "ScaledObject": "scaledobjects",
    "Secret": "secrets",
    "SecurityPolicy": "securitypolicies",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "StatefulSet": "statefulsets",
}

# The kinds that the chart can render, with their API groups.
CHART_KINDS: Mapping[str, str] = {
    "BackendTrafficPolicy": "gateway.envoyproxy.io",
    "ClientTrafficPolicy": "gateway.envoyproxy.io",
    "ComputeDomain": "resource.nvidia.com",
    "ConfigMap": "",
    "Deployment": "apps",
    "DynamoGraphDeployment": "nvidia.com",
    "EnvoyExtensionPolicy": "gateway.envoyproxy.io",
    "Gateway": "gateway.networking.k8s.io",
    "HTTPRoute": "gateway.networking.k8s.io",
    "HorizontalPodAutoscaler": "autoscaling",
    "Job": "batch",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io",
    "NetworkPolicy": "networking.k8s.io",
    "PersistentVolumeClaim": "",
    "PodDisruptionBudget": "policy",
    "PodMonitor": "monitoring.coreos.com",
    "RoleBinding": "rbac.authorization.k8s.io",
    "ScaledObject": "keda.sh",
    "SecurityPolicy": "gateway.envoyproxy.io",
    "Service": "",
    "ServiceAccount": "",
    "StatefulSet": "apps",
}
# The kinds that the controllers create between an object of the chart and its pods.
CREATED_KINDS: Mapping[str, tuple[str, ...]] = {
    "Deployment": ("ReplicaSet",),
    "LeaderWorkerSet": ("StatefulSet",),
    "DynamoGraphDeployment": (
        "Deployment",
        "DynamoComponentDeployment",
        "LeaderWorkerSet",
        "PodClique",
        "PodCliqueScalingGroup",
        "PodCliqueSet",
        "ReplicaSet",
        "StatefulSet",
    ),
}
GROUPS: Mapping[str, str] = {
    **CHART_KINDS,
    "DynamoComponentDeployment": "nvidia.com",
    "PodClique": "grove.io",
    "PodCliqueScalingGroup": "grove.io",
    "PodCliqueSet": "grove.io",
    "ReplicaSet": "apps",
}
