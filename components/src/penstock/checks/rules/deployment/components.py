"""Components: their names, types and roles, and where their GPUs come from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from packaging.version import Version

from penstock.engines.releases import RELEASES
from penstock.manifests.deployment import Component, Engine, Role
from penstock.manifests.pods import TYPES, V1ALPHA1, Pod
from penstock.manifests.roles import configured_role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import dynamo_version, possible_releases
from penstock.serving.worker import Worker
from penstock.text.names import KEY_CUTOFF, nearest

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_OWN_ROLES = ("encode", "encoder")  # similar to `decode`, with another meaning


def is_name(text: str) -> bool:
    """Whether Kubernetes takes it as the name of a Service."""
    return len(text) <= 63 and _NAME.fullmatch(text) is not None


def similar_type(kind: str, known: Iterable[str]) -> str:
    """The type of a component that was probably meant; empty if none is similar."""
    return "" if kind in _OWN_ROLES else nearest(kind, known, KEY_CUTOFF)


def is_unknown_type(deployment: ServingDeployment, pod: Pod) -> bool:
    """Whether the component of v1alpha1, which accepts any text, has a type that the operator does
    not know."""
    # The types of v1beta1, the operator's name for a component without a type
    # (ComponentTypeDefault in consts.go), and `main`: the comment of the field has this example,
    # and old recipes use it.
    known = ("", *TYPES, "default", "main")
    return deployment.api_version == V1ALPHA1 and (pod.kind or "") not in known


def commanded_role(worker: Worker) -> Role | None:
    """The role that the command or the engine's configuration states."""
    component = worker.component
    return configured_role(worker.launch, component.engine, component.engine_config)


def lacks_partner(deployment: ServingDeployment, worker: Worker) -> bool:
    """Whether prefill workers wait for this decode worker, which registers as aggregated."""
    prefill = deployment.pool(Role.PREFILL) if worker.role is Role.DECODE else ()
    return any(commanded_role(other) is Role.PREFILL for other in prefill)


def mode_arguments(deployment: ServingDeployment, worker: Worker) -> tuple[str, ...]:
    """The arguments that set the role. vLLM's worker has --disaggregation-mode since 1.0."""
    if worker.engine is Engine.VLLM and worker.role is Role.PREFILL:
        newest = RELEASES[possible_releases(deployment)[-1]].dynamo
        if (dynamo_version(worker.pod) or Version(newest).release[:2]) < (1, 0):
            return ("--is-prefill-worker",)
    return ("--disaggregation-mode", str(worker.role))


def gets_gpus_by_claims_only(component: Component, pod: Pod) -> bool:
    """Whether it has GPUs, and none of them is a resource of a container."""
    if not component.gpus or pod.claims.is_absent:
        return False
    resources = [pod.resources, *(c.cursor["resources"] for c in pod.containers)]
    amounts = [r[side] for r in resources for side in ("limits", "requests")]
    return not any("gpu" in key for amount in amounts for key, _ in amount.entries())


def extra_clients(pod: Pod) -> Mapping[str, int]:
    """The containers that share the GPU memory service, and how often each is named."""
    names = pod.cursor["experimental"]["gpuMemoryService"]["extraClientContainers"].value
    return Counter(map(str, names if isinstance(names, list) else ()))
