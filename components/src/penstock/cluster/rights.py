"""The rights that each verb needs: the one table behind the preflight and the roles of k8s/rbac.

Pure. `kubectl auth can-i VERB RESOURCE` asks for one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from penstock.cluster.kinds import CHART_KINDS, CREATED_KINDS, GROUPS, PLURALS
from penstock.cluster.workloads import WORKLOAD_VERSIONS, Object, key_of

SECRETS = "secrets"  # Helm's records of the revisions


class Verb(StrEnum):
    """A command that uses a cluster."""

    DIFF = "diff"
    STATUS = "status"
    HISTORY = "history"
    LOGS = "logs"
    APPLY = "apply"
    ROLLBACK = "rollback"
    SCALE = "scale"
    UNINSTALL = "uninstall"
    DRILL = "drill"
    BENCH = "bench"


@dataclass(frozen=True, order=True, kw_only=True)
class Right:
    """The permission to do something with objects of one kind."""

    # Empty for core kinds.
    group: str = ""
    # Plural, with its subresource: pods/log.
    resource: str
    verb: str
    # In all namespaces, or of a kind that has none.
    is_of_cluster: bool = False

    @property
    def what(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource

    def __str__(self) -> str:
        return f"{self.verb} {self.what}"


@dataclass(frozen=True, kw_only=True)
class Need:
    """A right that a verb uses."""

    right: Right
    # The objects that it is about; empty: not known before.
    names: frozenset[str] = frozenset()
    # What the verb omits without the right; "": it cannot work.
    loss: str = ""

    @property
    def is_required(self) -> bool:
        return not self.loss


@dataclass(frozen=True, kw_only=True)
class Role:
    """The rights of the users who run ``verbs``, as k8s/rbac grants them."""

    name: str
    about: str
    verbs: tuple[Verb, ...]


READING = (Verb.DIFF, Verb.STATUS, Verb.HISTORY)
WRITING = (Verb.LOGS, Verb.APPLY, Verb.ROLLBACK, Verb.SCALE)
ROLES = (
    Role(name="viewer", about="Reads releases: diff (without a dry run), status.", verbs=READING),
    Role(name="ci", about="Writes releases from a pipeline.", verbs=(*READING, *WRITING)),
    Role(
        name="operator",
        about="Runs every command, also uninstall, drill and bench.",
        verbs=(*Verb,),
    ),
)


def role_for(verb: Verb) -> Role:
    """The role with the fewest rights that includes the verb."""
    return next(role for role in ROLES if verb in role.verbs)


def needs_of(verb: Verb, before: Sequence[Object], after: Sequence[Object]) -> tuple[Need, ...]:
    """What the verb needs to turn the objects ``before`` into ``after``, each right once."""
    return _merged(_TABLE[verb](before, after))


def _merged(needs: Iterable[Need]) -> tuple[Need, ...]:
    merged: dict[Right, Need] = {}
    for need in needs:
        known = merged.setdefault(need.right, need)
        names = known.names | need.names if known.names and need.names else frozenset()
        loss = known.loss and need.loss
        merged[need.right] = Need(right=need.right, names=names, loss=loss)
    return tuple(merged[right] for right in sorted(merged))


def _reading(before: Sequence[Object], after: Sequence[Object]) -> Iterator[Need]:
    yield from _secrets("get", "list")
    yield from _each(("get",), (*before, *after))


def _diff(before: Sequence[Object], after: Sequence[Object]) -> Iterator[Need]:
    yield from _reading(before, after)
    yield _need("get", "", "configmaps")  # of an earlier revision


def _status(before: Sequence[Object], after: Sequence[Object]) -> Iterator[Need]:
    yield from _reading(before, after)
    yield _need("list", "", "pods", loss="the problems of pods are not shown")
    yield from _warnings((*before, *after))
    yield _need("get", "", "pods/proxy", loss="the frontends' metrics are not shown")


def _logs(before: Sequence[Object], after: Sequence[Object]) -> Iterator[Need]:
    yield _need("list", "", "pods")
    yield _need("get", "", "pods/log")


def _without_helm() -> Iterator[Need]:
    """To find what another tool installed."""
    loss = "a graph that was installed without Helm is not found"
    for kind in WORKLOAD_VERSIONS:
        yield _need("list", GROUPS[kind], PLURALS[kind], loss=loss)


def _writing(before: Sequence[Object], after: Sequence[Object]) -> Iterator[Need]:
    yield from _diff(before, after)
    yield from _secrets("create", "update", "delete")
    yield _need("patch", "", SECRETS, loss="`rollback` cannot tell which revisions were ready")
    # The API server asks for both if an apply creates the object.
    yield from _each(("create", "patch"), after)
    kept = {key_of(o) for o in after}
    removed = [o for o in before if key_of(o) not in kept]
    yield from _each(("delete",), removed)
    for manifest in after:
        if manifest["kind"] == "RoleBinding":
            role = manifest["roleRef"]
            resource = "clusterroles" if role["kind"] == "ClusterRole" else "roles"
            group = CHART_KINDS["RoleBinding"]
            lost = "the RoleBinding is refused unless you hold all rights of its role"
            yield _need("bind", group, resource, [str(role["name"])], lost)
    yield _need("create", "", "pods", loss="the dry run of pods is skipped")
    yield _need("list", "", "pods", loss="the problems of pods are not reported during the wait")
    yield from _warnings((*before, *after))
    yield _need("get", "", "pods/log", loss="the logs of failing containers are not shown")


def _uninstall(before: Sequence[Object], after: Sequence[Object]) -> Iterator[Need]:
    yield from _secrets("get", "list", "update", "delete")
    yield from _each(("get", "delete"), before)
    for verb in ("get", "list", "delete"):
        yield _need(verb, "", "configmaps")  # of all revisions
    yield _need("list", "", "persistentvolumeclaims")
    yield _need("list", "", "pods")


def claim_needs() -> tuple[Need, ...]:
    """Of `penstock uninstall --delete-cache`."""
    return tuple(_need(verb, "", "persistentvolumeclaims") for verb in ("get", "delete"))


FAULT_RIGHTS: Mapping[str, tuple[Right, ...]] = {
    "delete": (Right(verb="delete", resource="pods"),),
    "evict": (Right(verb="create", resource="pods/eviction"),),
    # Kubernetes asks for `get` of a websocket, and from 1.35 on also for `create`.
    "kill": (
        Right(verb="get", resource="pods/exec"),
        Right(verb="create", resource="pods/exec"),
    ),
    "drain": (
        Right(verb="create", resource="pods/eviction"),
        Right(verb="get", resource="nodes", is_of_cluster=True),
        Right(verb="patch", resource="nodes", is_of_cluster=True),
    ),
}
OTHER_PODS = Right(verb="list", resource="pods", is_of_cluster=True)


def needs_to_drill(
    objects: Sequence[Object], faults: Iterable[str], *, forwards: bool
) -> tuple[Need, ...]:
    """Of `penstock drill --cluster`. ``forwards``: whether a port is forwarded to the frontends."""
    return _merged(_drill(objects, faults, forwards=forwards))


def _drill(objects: Sequence[Object], faults: Iterable[str], *, forwards: bool) -> Iterator[Need]:
    yield from _reading(objects, ())
    yield _need("list", "", "pods")
    yield from _warnings(objects)
    for fault in faults:
        for right in FAULT_RIGHTS[fault]:
            yield Need(right=right)
        if fault == "drain":
            yield Need(right=OTHER_PODS, loss="other pods on the node are not listed")
    if forwards:
        yield from _forwarding()


def _bench(before: Sequence[Object], after: Sequence[Object]) -> Iterator[Need]:
    yield from _reading(before, after)
    yield _need("list", "", "pods")
    yield from _warnings((*before, *after))
    yield from _forwarding()


def _forwarding() -> Iterator[Need]:
    for verb in ("get", "create"):
        yield _need(verb, "", "pods/portforward")


_TABLE: Mapping[Verb, Callable[[Sequence[Object], Sequence[Object]], Iterator[Need]]] = {
    Verb.DIFF: lambda before, after: chain(_diff(before, after), _without_helm()),
    Verb.STATUS: lambda before, after: chain(_status(before, after), _without_helm()),
    Verb.HISTORY: lambda before, after: chain(_secrets("get", "list"), _without_helm()),
    Verb.LOGS: _logs,
    Verb.APPLY: _writing,
    Verb.ROLLBACK: _writing,
    Verb.SCALE: _writing,
    Verb.UNINSTALL: _uninstall,
    Verb.BENCH: _bench,
    # With every fault but drain, which needs rights on nodes.
    Verb.DRILL: lambda before, after: _drill(
        (*before, *after), ("delete", "evict", "kill"), forwards=True
    ),
}


def _warnings(objects: Sequence[Object]) -> Iterator[Need]:
    """Of the events about the release's objects, and of what tells whose they are."""
    yield _need("list", "", "events", loss="warnings of the cluster are not shown")
    loss = "warnings about what the controllers create are not shown"
    for kind in dict.fromkeys(manifest["kind"] for manifest in objects):
        for created in CREATED_KINDS.get(kind, ()):
            yield _need("get", GROUPS[created], PLURALS[created], loss=loss)


def _secrets(*verbs: str) -> Iterator[Need]:
    for verb in verbs:
        yield _need(verb, "", SECRETS)


def _each(verbs: Sequence[str], objects: Sequence[Object]) -> Iterator[Need]:
    for manifest in objects:
        group = str(manifest["apiVersion"]).rpartition("/")[0]
        for verb in verbs:
            names = [] if verb == "create" else [str(manifest["metadata"]["name"])]
            yield _need(verb, group, PLURALS[manifest["kind"]], names)


def _need(verb: str, group: str, resource: str, names: Sequence[str] = (), loss: str = "") -> Need:
    right = Right(verb=verb, group=group, resource=resource)
    return Need(right=right, names=frozenset(names), loss=loss)
