"""Instance types of AWS that have GPUs but no EFA, or too few EFA devices."""

from __future__ import annotations

import re

from penstock.serving.node_labels import all_node_labels, node_labels
from penstock.serving.worker import Worker

LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
# pkg/utils/instance/instance_types.go of eksctl@99984adb, which has them from the EC2 API. The
# prefix `ml.` is that of HyperPod.
_WITHOUT_EFA = re.compile(
    r"(ml\.)?((g4dn|g5|g6|g6e|g7|g7e|gr6)\.[24]?xlarge|(g5g|g6f|gr6f)\.\d*x?large)"
)
_TYPE = re.compile(r"(ml\.)?[a-z0-9-]+\.([0-9]*x?large|metal)")
# Their sizes with several GPUs have EFA, but fewer devices than GPUs.
_WITH_LITTLE_EFA = re.compile(r"(ml\.)?(g4dn|g5|g6e?|g7e?)\.((12|24|48)xlarge|metal)")
# Their families, as the label of a family or the name of a node pool has them.
_FAMILY = re.compile(r"(^|[^a-z0-9])(g4dn|g5g?|g6[ef]?|g7e?|gr6f?)([^a-z0-9]|$)", re.IGNORECASE)
# Labels of Karpenter and of EKS, and those that people give to the nodes of a pool.
_OF_NODES = re.compile(r"instance|node-?(pool|group)|provisioner", re.IGNORECASE)
_CATEGORY = re.compile(r"/instance-category$")


def nodes_without_efa(worker: Worker) -> tuple[str, ...]:
    """The instance types that the pod may run on, if none of them has EFA."""
    types = tuple(dict.fromkeys(node_labels(worker.pod, LABELS)))
    return types if all(_WITHOUT_EFA.fullmatch(one) for one in types) else ()


def nodes_with_little_efa(worker: Worker) -> tuple[str, ...]:
    """The values of labels by which the pod may run only on types or families with little EFA."""
    by_label: dict[str, list[str]] = {}
    for name, value in all_node_labels(worker.pod):
        by_label.setdefault(name, []).append(value)
    for name, values in by_label.items():
        is_category = _CATEGORY.search(name) and set(values) == {"g"}
        is_little = _OF_NODES.search(name) and all(map(_has_little_efa, values))
        if is_category or is_little:
            return tuple(dict.fromkeys(values))
    return ()


def _has_little_efa(value: str) -> bool:
    if _TYPE.fullmatch(value):
        return bool(_WITHOUT_EFA.fullmatch(value) or _WITH_LITTLE_EFA.fullmatch(value))
    return bool(_FAMILY.search(value))
