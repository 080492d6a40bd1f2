"""Containers of pods, what they request of nodes, and which nodes their pods select."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.checks.rules.containers import mappings
from penstock.engines.settings import Location
from penstock.manifests.deployment import WORKERS, Component, Engine, Role
from penstock.manifests.documents import Cursor
from penstock.manifests.pods import Container, Pod, resources_of
from penstock.serving.deployment import ServingDeployment
from penstock.text.names import nearest
from penstock.text.numbers import plain_number
from penstock.text.quantities import quantity_of
from penstock.text.values import as_mapping

MIB, GIB, TIB = 2**20, 2**30, 2**40
SHM = "/dev/shm"  # noqa: S108  a volume of the pod
DEFAULT_SHM = 8 * GIB  # the operator's default
SMALL_SHM = GIB  # NCCL with several GPUs has failed below this
LEAST_PROCESS = 64 * MIB  # less than a Python process that has imported nothing heavy
LEAST_GPU_WORKER = GIB  # CUDA alone maps more host memory
MOST_MEMORY, MOST_CORES = 64 * TIB, 2048  # of any node
PRODUCT = "nvidia.com/gpu.product"
# As GPU feature discovery writes the names that nvidia-smi prints.
PRODUCTS = (
    *("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-PCIE-40GB"),
    *("NVIDIA-A100-80GB-PCIe", "NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe", "NVIDIA-H100-NVL"),
    *("NVIDIA-H200", "NVIDIA-H200-NVL", "NVIDIA-H20", "NVIDIA-H800", "NVIDIA-GH200-480GB"),
    *("NVIDIA-GH200-144G-HBM3e", "NVIDIA-B200", "NVIDIA-B300", "NVIDIA-GB200", "NVIDIA-GB300"),
    *("NVIDIA-B300-SXM6-AC", "NVIDIA-L4", "NVIDIA-L40", "NVIDIA-L40S", "NVIDIA-A10"),
    *("NVIDIA-A10G", "NVIDIA-A30", "NVIDIA-A40", "Tesla-T4"),
    *("Tesla-V100-SXM2-16GB", "Tesla-V100-SXM2-32GB"),
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
    "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition",
)
SIMILAR_PRODUCT = 0.85
# Labels that the operator and Grove add to pods.
ADDED_LABELS = ("nvidia.com/", "app.kubernetes.io/", "grove.io/", "leaderworkerset.sigs.k8s.io/")
AFFINITY = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


@dataclass(frozen=True, kw_only=True)
class PodContainer:
    """A container with its pod and its component."""

    component: Component
    pod: Pod
    container: Container

    @property
    def cursor(self) -> Cursor:
        return self.container.cursor

    def location(self, what: str, *path: str | int) -> Location:
        return Location(self.component.name, what, path)


def containers_of(deployment: ServingDeployment) -> Iterator[PodContainer]:
    """Every container of every component."""
    for component in deployment.components:
        pod = deployment.pods[component.name]
        for container in pod.containers:
            yield PodContainer(component=component, pod=pod, container=container)


def indexed(listed: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(index, mapping) of each mapping in a list."""
    for index, entry in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(entry, Mapping):
            yield index, entry


def memory_of(text: Any) -> float | None:
    """Bytes of a quantity in a unit that memory is written in, else None."""
    is_usual = re.fullmatch(r"[0-9]+(\.[0-9]+)?([kMGTP]i?|Ki)?", str(text))
    return quantity_of(text) if is_usual else None


def gib(size: float) -> str:
    """Bytes as a quantity in GiB."""
    return f"{plain_number(round(size / GIB, 2))}Gi"


def shared_memory_setting(pod: Pod) -> Any:
    """The size of /dev/shm as the file has it in either API version; None if unset."""
    size, alpha = pod.cursor["sharedMemorySize"], pod.cursor["sharedMemory"]["size"]
    return alpha.value if size.is_absent else size.value


def shared_memory(pod: Pod) -> float | None:
    """Bytes of /dev/shm: 0 if disabled, the operator's default if unset, None if unreadable."""
    if pod.cursor["sharedMemory"]["disabled"].value is True:
        return 0.0
    setting = shared_memory_setting(pod)
    return float(DEFAULT_SHM) if setting is None else memory_of(setting)


def memory_limit(pod: Pod) -> float | None:
    """Bytes that the main container may use; None if unset or unreadable."""
    for resources in resources_of(pod):
        if (limit := resources["limits"]["memory"].value) is not None:
            return memory_of(limit)
    return None


def amounts(deployment: ServingDeployment) -> Iterator[tuple[Component, str, Any, str]]:
    """(component, name, amount, field) of cpu, memory and shared memory."""
    for component in deployment.components:
        pod = deployment.pods[component.name]
        for resources in resources_of(pod):
            for side in ("limits", "requests"):
                for name in ("cpu", "memory"):
                    amount = as_mapping(resources[side].value).get(name)
                    yield component, name, amount, f"main/resources/{side}/{name}"
        yield component, "shared memory", shared_memory_setting(pod), "sharedMemorySize"


def least_amount(component: Component, name: str) -> int:
    """The fewest bytes with which a process can run."""
    if name != "memory" or component.role is Role.OTHER:
        return MIB
    uses_gpu = component.gpus and component.engine is not Engine.MOCKER
    return LEAST_GPU_WORKER if uses_gpu and component.role in WORKERS else LEAST_PROCESS


def with_unit(name: str, amount: Any) -> str:
    """The amount that was meant if its unit is missing or wrong; empty if none is likely."""
    if name == "cpu":
        return f"{amount}m" if str(amount).isdigit() else ""
    digits = re.match("[0-9]*[1-9][0-9]*", str(amount))
    return f"{digits[0]}Gi" if digits and (quantity_of(amount) or 0) < MIB else ""


def corrected(amount: Any) -> str:
    """`64GB` and `64 gb` as 64Gi; empty if the amount is not written in such a way."""
    parts = re.fullmatch(r"([0-9.]+)\s*([KMGT])i?[bB]?", str(amount), re.IGNORECASE)
    return f"{parts[1]}{parts[2].upper()}i" if parts else ""


def nearest_product(product: str) -> str:
    """The GPU product that a misspelled label means; empty if it is none, or another product."""
    name = re.sub(r"-(SHARED|MIG-.*)$", "", product)
    near = nearest(name, PRODUCTS, SIMILAR_PRODUCT)
    # The letters of the words with digits, in any order: B300 is not a mistyped GB300.
    models = [
        [sorted(w) for w in text.split("-") if re.search("[0-9]", w)] for text in (name, near)
    ]
    return near if models[0] == models[1] and near.lower() != name.lower() else ""


def impossible_labels(deployment: ServingDeployment) -> Iterator[tuple[str, str, str]]:
    """(component, field of its pod, labels): those of a node selector that the node affinity
    excludes, and those of a topology spread that no pod of the file has."""
    labels = [_labels(deployment.pods[component.name]) for component in deployment.components]
    for component in deployment.components:
        spec = deployment.pods[component.name].spec
        for key, value in as_mapping(spec.get("nodeSelector")).items():
            if _excludes(spec, key, str(value)):
                yield component.name, "nodeSelector", f"{key}: {value}"
        for constraint in mappings(spec.get("topologySpreadConstraints")):
            matched = as_mapping(as_mapping(constraint.get("labelSelector")).get("matchLabels"))
            written = {k: v for k, v in matched.items() if not str(k).startswith(ADDED_LABELS)}
            if written and not any(written.items() <= pod.items() for pod in labels):
                listed = ", ".join(f"{key}: {value}" for key, value in written.items())
                yield component.name, "topologySpreadConstraints", listed


def _labels(pod: Pod) -> dict[str, Any]:
    """The labels that the file gives to a component's pods, in either API version."""
    paths = (("podTemplate", "metadata", "labels"), ("extraPodMetadata", "labels"), ("labels",))
    return {k: v for path in paths for k, v in as_mapping(pod.cursor.at(*path).value).items()}


def _excludes(spec: Mapping[str, Any], key: str, value: str) -> bool:
    """Whether each term of the required node affinity excludes the label."""
    required: Any = spec
    for step in AFFINITY:
        required = as_mapping(required).get(step)
    terms = list(mappings(as_mapping(required).get("nodeSelectorTerms")))
    return bool(terms) and all(
        any(_forbids(part, key, value) for part in mappings(term.get("matchExpressions")))
        for term in terms
    )


def _forbids(expression: Mapping[str, Any], key: str, value: str) -> bool:
    values = expression.get("values")
    listed = [str(text) for text in values] if isinstance(values, list) else []
    forbids = {"In": value not in listed, "NotIn": value in listed, "DoesNotExist": True}
    return expression.get("key") == key and forbids.get(str(expression.get("operator")), False)
