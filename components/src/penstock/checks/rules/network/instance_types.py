"""Instance types of AWS that have GPUs but no EFA."""

from __future__ import annotations

import re

from penstock.serving.node_labels import node_labels
from penstock.serving.worker import Worker

LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
# pkg/utils/instance/instance_types.go of eksctl@99984adb, which has them from the EC2 API. The
# prefix `ml.` is that of HyperPod.
_WITHOUT_EFA = re.compile(
    r"(ml\.)?((g4dn|g5|g6|g6e|g7|g7e|gr6)\.[24]?xlarge|(g5g|g6f|gr6f)\.\d*x?large)"
)


def nodes_without_efa(worker: Worker) -> tuple[str, ...]:
    """The instance types that the pod may run on, if none of them has EFA."""
    types = tuple(dict.fromkeys(node_labels(worker.pod, LABELS)))
    return types if all(_WITHOUT_EFA.fullmatch(one) for one in types) else ()
