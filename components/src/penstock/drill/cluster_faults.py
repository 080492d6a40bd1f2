"""The faults of `penstock drill --cluster`, and which of them a release can have now. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.cluster.pods import Pod
from penstock.cluster.rights import FAULT_RIGHTS
from penstock.drill.faults import Fault, split_choices
from penstock.errors import UsageError
from penstock.manifests.deployment import Role
from penstock.nearest import did_you_mean

NODE = "node"  # the target of drain
DRAIN = "drain"
KINDS: Mapping[str, str] = {
    "delete": "delete a pod",
    "evict": "evict a pod, which a disruption budget may refuse",
    "kill": "send SIGTERM to process 1 of a pod's container, which the kubelet then restarts",
    DRAIN: "cordon a node, evict the release's pods on it, and uncordon it",
}
DEFAULT = ("delete", "evict", "kill")  # drain needs rights in the whole cluster
DRAIN_S = 300.0  # how long a node stays cordoned if its pods do not become ready elsewhere
assert KINDS.keys() == FAULT_RIGHTS.keys()


@dataclass(frozen=True, order=True, kw_only=True)
class ClusterChoice:
    """A fault, and the component or the node that it is restricted to."""

    kind: str
    target: str | None = None

    def __str__(self) -> str:
        return self.kind + (f":{self.target}" if self.target else "")


def choose(text: str) -> list[ClusterChoice]:
    """The choices in ``KIND[:POOL],…``; for drain ``drain[:NODE]``. Raises UsageError."""
    if text == "default":
        return [ClusterChoice(kind=kind) for kind in DEFAULT]
    return [ClusterChoice(kind=kind, target=target) for kind, target in split_choices(text, KINDS)]


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """What can be injected now, and why the rest cannot."""

    # Kind, and component or node.
    possible: tuple[tuple[str, str], ...]
    # One line for each target that is left out.
    skipped: tuple[str, ...]


def candidates(
    choices: Sequence[ClusterChoice],
    pods: Sequence[Pod],
    components: Sequence[str],
    *,
    may_remove_last: bool,
) -> Candidates:
    """Without ``may_remove_last``, a component keeps a ready pod. Raises UsageError for a target
    that does not exist or that is not possible although it is named."""
    possible: list[tuple[str, str]] = []
    skipped: dict[str, None] = {}
    nodes = sorted({pod.node for pod in pods if pod.node and pod.is_ready})
    for choice in choices:
        known = nodes if choice.kind == DRAIN else list(components)
        if choice.target and choice.target not in known:
            raise UsageError(_unknown(choice, known))
        for target in [choice.target] if choice.target else known:
            reason = "" if may_remove_last else _last(choice.kind, target, pods)
            if not reason:
                possible.append((choice.kind, target))
            elif choice.target:
                raise UsageError(
                    f"--faults {choice}: {reason}. Raise its replicas, or pass --remove-last. "
                    "Nothing was touched."
                )
            else:
                skipped[f"skipped {choice.kind}:{target}: {reason}"] = None
    return Candidates(possible=tuple(dict.fromkeys(possible)), skipped=tuple(skipped))


def _unknown(choice: ClusterChoice, known: Sequence[str]) -> str:
    what = "node with ready pods of the release" if choice.kind == DRAIN else "component"
    near = did_you_mean(str(choice.target), known) or f"It has {', '.join(known) or 'none'}."
    return f"--faults {choice}: the release has no {what} `{choice.target}`. {near}"


def _last(kind: str, target: str, pods: Sequence[Pod]) -> str:
    """Why the fault would leave a component without a ready pod; "" if it would not."""
    ready = Counter(pod.component for pod in pods if pod.is_ready)
    if kind != DRAIN:
        return f"{target} has {ready[target]} ready pod(s)" if ready[target] < 2 else ""
    there = Counter(pod.component for pod in pods if pod.is_ready and pod.node == target)
    left = [name for name, count in there.items() if ready[name] == count]
    return f"all ready pods of {', '.join(sorted(left))} are on it" if left else ""


def fault_on(kind: str, victims: Sequence[Pod], pods: Sequence[Pod]) -> Fault:
    """A fault whose victims are pods of one component, or the pods of one node."""
    first = victims[0]
    names = {pod.component for pod in victims}
    uids = {pod.uid for pod in victims}
    survivors = {pod.component for pod in pods if pod.is_ready and pod.uid not in uids}
    is_drain = kind == DRAIN
    return Fault(
        kind=kind,
        target=f"{NODE}.{first.node}" if is_drain else f"{first.component}.{first.name}",
        role=Role.FRONTEND if Role.FRONTEND in names else None if is_drain else _role(first),
        has_survivor=names <= survivors,
        lasts_s=DRAIN_S if is_drain else 0.0,
        is_replaced=True,
    )


def _role(pod: Pod) -> Role:
    known: Iterator[Role] = (role for role in Role if role == pod.component)
    return next(known, Role.WORKER)
