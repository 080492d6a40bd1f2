"""Rules about node labels and pod labels that no node or pod can have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.containers import mappings
from penstock.engines.settings import Location
from penstock.manifests.pods import Pod
from penstock.nearest import nearest
from penstock.serving.deployment import ServingDeployment
from penstock.serving.node_labels import all_node_labels

PRODUCT = "nvidia.com/gpu.product"
# As GPU feature discovery writes the names that nvidia-smi prints.
PRODUCTS = (
    *("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-PCIE-40GB"),
    *("NVIDIA-A100-80GB-PCIe", "NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe", "NVIDIA-H100-NVL"),
    *("NVIDIA-H200", "NVIDIA-H200-NVL", "NVIDIA-H20", "NVIDIA-H800", "NVIDIA-GH200-480GB"),
    *(
        "NVIDIA-GH200-144G-HBM3e",
        "NVIDIA-B200",
        "NVIDIA-B300",
        "NVIDIA-GB200",
        "NVIDIA-GB300",
        "NVIDIA-L4",
    ),
    *("NVIDIA-B300-SXM6-AC", "NVIDIA-L40", "NVIDIA-L40S", "NVIDIA-A10", "NVIDIA-A10G"),
    *("NVIDIA-A30", "NVIDIA-A40", "Tesla-T4", "Tesla-V100-SXM2-16GB", "Tesla-V100-SXM2-32GB"),
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
    "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition",
)
SIMILAR = 0.85
# Labels that the operator and Grove add to pods.
ADDED = ("nvidia.com/", "app.kubernetes.io/", "grove.io/", "leaderworkerset.sigs.k8s.io/")
AFFINITY = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


def mistyped_product(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        labels = all_node_labels(deployment.pods[component.name])
        for value in dict.fromkeys(value for name, value in labels if name == PRODUCT):
            name = re.sub(r"-(SHARED|MIG-.*)$", "", value)
            near = nearest(name, PRODUCTS, SIMILAR)
            is_other = near.lower() == name.lower() or _models(near) != _models(name)
            if near and not is_other:
                selector = deployment.pods[component.name].spec.get("nodeSelector")
                is_selected = as_mapping(selector).get(PRODUCT) == value
                yield RuleResult(
                    location=_field(component.name, "nodeSelector" if is_selected else "affinity"),
                    message=f"{PRODUCT} is {value}, which is not the name of a GPU",
                    fix=Fix(
                        text=f"Use {near}.",
                        fields={"pod/nodeSelector": {PRODUCT: near}} if is_selected else {},
                    ),
                )


def _models(product: str) -> list[list[str]]:
    """The letters of the words with digits, in any order: B300 is not a mistyped GB300."""
    return [sorted(word) for word in product.split("-") if re.search("[0-9]", word)]


def _field(component: str, *path: str) -> Location:
    return Location(component, "field", ("pod", *path))


def impossible_placement(deployment: ServingDeployment) -> Iterable[RuleResult]:
    labels = [_labels(deployment.pods[component.name]) for component in deployment.components]
    for component in deployment.components:
        spec = deployment.pods[component.name].spec
        for key, value in as_mapping(spec.get("nodeSelector")).items():
            if _excludes(spec, key, str(value)):
                yield RuleResult(
                    location=_field(component.name, "nodeSelector"),
                    message=f"the node selector requires {key}: {value}, which the required node "
                    "affinity excludes",
                    fix=Fix(text=f"Use the same {key} in both."),
                )
        for constraint in mappings(spec.get("topologySpreadConstraints")):
            matched = as_mapping(as_mapping(constraint.get("labelSelector")).get("matchLabels"))
            own = {k: v for k, v in matched.items() if not str(k).startswith(ADDED)}
            if own and not any(own.items() <= pod.items() for pod in labels):
                listed = ", ".join(f"{key}: {value}" for key, value in own.items())
                yield RuleResult(
                    location=_field(component.name, "topologySpreadConstraints"),
                    message=f"the topology spread counts pods with {listed}, but no pod of the "
                    "file has these labels",
                    why="Nothing is counted, so the pods may all be on one node.",
                    fix=Fix(text="Use labels of the pods, or add these labels to the pods."),
                    level=Level.WARNING,
                )


def _labels(pod: Pod) -> Mapping[str, Any]:
    """The labels that the file gives to a component's pods, in either API version."""
    cursor = pod.cursor
    sources = (
        cursor.at("podTemplate", "metadata", "labels"),
        cursor.at("extraPodMetadata", "labels"),
        cursor["labels"],
    )
    return {key: value for one in sources for key, value in as_mapping(one.value).items()}


def _excludes(spec: Mapping[str, Any], key: str, value: str) -> bool:
    """Whether each term of the required node affinity excludes the label."""
    required: Any = spec
    for step in AFFINITY:
        required = as_mapping(as_mapping(required).get(step))
    terms = list(mappings(required.get("nodeSelectorTerms")))
    return bool(terms) and all(
        any(_forbids(expression, key, value) for expression in _expressions(term)) for term in terms
    )


def _expressions(term: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from mappings(term.get("matchExpressions"))


def _forbids(expression: Mapping[str, Any], key: str, value: str) -> bool:
    if expression.get("key") != key:
        return False
    values = expression.get("values")
    listed = [str(item) for item in values] if isinstance(values, list) else []
    forbidden = {
        "In": value not in listed,
        "NotIn": value in listed,
        "DoesNotExist": True,
    }
    return forbidden.get(str(expression.get("operator")), False)
