"""The number of GPUs that one pod requests: extended resources of any vendor, and DRA claims."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.manifests.documents import Cursor, Document
from penstock.manifests.pods import Pod

# nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.10gb, amd.com/gpu, gpu.intel.com/xe,
# habana.ai/gaudi; not nvidia.com/gpumem and similar, which count memory.
_GPU = re.compile(
    r"(nvidia\.com/(gpu|gpu\.shared|mig-.*)|amd\.com/gpu|gpu\.intel\.com/(i915|xe)|habana\.ai/gaudi)"
)
_GPU_CLASS = re.compile(r"(^|[.-])gpu([.-]|$)")


def pod_gpus(pod: Pod, templates: Mapping[str, int]) -> int:
    """GPUs of one pod, which is one node of the component; limits win over requests."""
    total = _own(pod.resources)
    in_containers = sum(_extended(c.cursor["resources"]) for c in pod.containers)
    # v1alpha1 may give the same number twice: for the component and for its container.
    total = max(total, in_containers)
    return total + _claimed(pod, templates)


def _own(resources: Cursor) -> int:
    """`resources` of v1alpha1: the key `gpu`, and `custom` for everything else."""
    for side in ("limits", "requests"):
        amounts = resources[side]
        gpus = _amount(amounts["gpu"]) + _sum(amounts["custom"])
        if gpus:
            return gpus
    return 0


def _extended(resources: Cursor) -> int:
    return _sum(resources["limits"]) or _sum(resources["requests"])


def _sum(amounts: Cursor) -> int:
    return sum(_amount(value) for key, value in amounts.entries() if _GPU.fullmatch(key))


def _amount(amount: Cursor) -> int:
    value = amount.value
    if isinstance(value, str) and value.isdigit():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if not amount.is_absent:
        amount.problem(f"must be an integer, got {value!r}", "Write the number of GPUs.")
    return 0


def claim_templates(documents: tuple[Document, ...]) -> dict[str, int]:
    """GPUs that each ResourceClaimTemplate of the file requests, 0 for one without GPUs."""
    gpus_by_template = {}
    for document in documents:
        root = Cursor.at_root(document)
        if root["kind"].value == "ResourceClaimTemplate":
            name = root.at("metadata", "name").text() or ""
            requests = root.at("spec", "spec", "devices", "requests")
            gpus_by_template[name] = sum(_requested(request) for request in requests.items())
    return gpus_by_template


def _requested(request: Cursor) -> int:
    """GPUs of one DRA request: v1 has it under `exactly`, v1beta1 does not; the default is 1."""
    exactly = request["exactly"] if not request["exactly"].is_absent else request
    device_class = exactly["deviceClassName"].text() or ""
    if not _GPU_CLASS.search(device_class):
        return 0
    count = exactly["count"].count()
    return 1 if count is None else count


def _claimed(pod: Pod, templates: Mapping[str, int]) -> int:
    names = [claim["resourceClaimTemplateName"].text() for claim in pod.claims.items()]
    return sum(templates.get(name or "", 0) for name in names)
