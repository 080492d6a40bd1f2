"""The state that a change is compared with: a file, or the release on a cluster.

On a cluster, a dry run by the API server also tells whether the change is possible: of each object
and, as controllers create the pods only after Helm has succeeded, of one pod per component.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from penstock.cluster.api import Api, DryRun
from penstock.cluster.api_errors import ForbiddenError
from penstock.cluster.compare import FieldChange, without_defaults
from penstock.cluster.diff import EXISTS, Drift, drift, has_surge
from penstock.cluster.generations import RollingUpdate, is_updating, rolling_update
from penstock.cluster.ownership import HELM
from penstock.cluster.progress import read_objects
from penstock.cluster.release import Release, Revision, config_map, existing, foreign
from penstock.cluster.workloads import (
    DGD,
    POD_GRAPH,
    Object,
    key_of,
    mounted_config_maps,
    pod_templates,
    workloads,
)
from penstock.errors import ClusterError, ManifestError, Problem
from penstock.files import page
from penstock.graph.load import load_graph
from penstock.graph.text_file import read_text_file
from penstock.helm import ReleaseTarget
from penstock.manifests.source import MOST_BYTES, is_manifest, render_graph
from penstock.strict_yaml.loader import load_all

CONFIG_MAP = "ConfigMap"
CRD_GROUP = "nvidia.com"
CRD_VERSION = f"{CRD_GROUP}/v1beta1"  # that the chart renders
GRAPHS = "dynamographdeployments"
# The operator creates objects of these for each graph, in any served version.
OF_OPERATOR = ("dynamocomponentdeployments", "dynamographdeploymentscalingadapters")
INSTALL = f"Install the Dynamo operator with its CRDs: see {page('cluster')}."
POD_FIX = (
    "Change the graph (cluster.security, resources) or the namespace's policy, quota or limits"
)
QUOTA = "exceeded quota"
# Of a namespace that was created a moment ago: Kubernetes creates the account soon after it.
NEW_NAMESPACE = 'serviceaccount "default" not found'


@dataclass(frozen=True, kw_only=True)
class CurrentState:
    """The objects before a change; the fields with defaults are set for a cluster only."""

    # The file, or the release's revision, as it is printed.
    description: str
    objects: tuple[Object, ...]
    # The live number by component.
    replicas: Mapping[str, int] = field(default_factory=dict)
    drift: tuple[Drift, ...] = ()
    # Objects of others that have the name of a new one.
    foreign: tuple[Problem, ...] = ()
    # Why the API server would reject the new manifests.
    rejected: tuple[str, ...] = ()
    # Why the API server could not check them: missing rights.
    unchecked: tuple[Problem, ...] = ()
    # The same for pods, which the controllers create: apply does not need these rights.
    unchecked_pods: tuple[Problem, ...] = ()
    # Why live objects could not be read: missing rights. They are taken to be as released.
    unread: tuple[Problem, ...] = ()
    # Helm's; None if it has no record.
    revision: Revision | None = None
    # How the graph was installed without Helm; "" if it was not.
    installer: str = ""
    # The field manager that applied it last.
    manager: str = HELM
    # The operator's, if one is in progress.
    update: RollingUpdate | None = None


def read_file_state(path: Path, name: str, namespace: str) -> CurrentState:
    """A graph, rendered as the same release, or manifests. Raises as `open_source` does."""
    text = read_text_file(path, MOST_BYTES)
    if not is_manifest(text):
        rendered = render_graph(load_graph(path), namespace, name=name)
        return CurrentState(description=str(path), objects=rendered.objects)
    try:
        documents = load_all(text)
    except yaml.YAMLError as error:
        raise ManifestError(f"is not valid YAML: {error}", file=str(path)) from None
    return CurrentState(description=str(path), objects=tuple(_objects(documents, path)))


def _objects(documents: Sequence[Any], path: Path) -> Iterator[Object]:
    """The documents as Kubernetes objects, with Lists expanded. Raises ManifestError for a document
    that is not an object."""
    for number, document in enumerate(documents, start=1):
        if document is None:
            continue
        has_kind = isinstance(document, dict) and isinstance(document.get("kind"), str)
        if has_kind and document["kind"].endswith("List") and "items" in document:
            yield from _objects(document["items"], path)
            continue
        has_name = has_kind and isinstance((document.get("metadata") or {}).get("name"), str)
        if not has_name:
            problem = Problem(
                file=str(path),
                message=f"document {number} has no kind or no metadata.name",
                fix="Pass the output of `penstock render` or `helm get manifest`.",
            )
            raise ManifestError(problem)
        if document["kind"] == DGD and "services" in (document.get("spec") or {}):
            raise ManifestError(
                "is v1alpha1, but graphs are rendered as v1beta1",
                file=str(path),
                place=f"document {number}",
                fix="Read it from the cluster as v1beta1: `kubectl get dgd.v1beta1.nvidia.com "
                "NAME -o yaml`",
            )
        yield document


def read_cluster_state(
    target: ReleaseTarget, api: Api, release: Release | None, after: Sequence[Object]
) -> CurrentState:
    """The release on the cluster, and a dry run of ``after``. Raises ClusterError."""
    require_crds(api, after)
    released = release.objects if release else ()
    live: list[Object] = []
    unread: list[Problem] = []
    for manifest, current in read_objects(api, released):
        if isinstance(current, ForbiddenError):
            unread += current.problems
            live.append(manifest)  # taken to be as released
        else:
            live.append(current)
    api.follow(live)
    dry_runs = DryRuns(api, live)
    errors: list[tuple[str, str]] = []
    forbidden: list[Problem] = []
    for manifest in after:
        try:
            dry_run = dry_runs.apply(manifest)
        except ForbiddenError as error:
            forbidden += error.problems
        else:
            errors += [(_kind_and_name(manifest), text) for text in dry_run.errors]
    known = {key_of(o) for o in released}
    of_others = tuple(foreign(target, api, (o for o in after if key_of(o) not in known)))
    replicas = {name: w.replicas for name, w in workloads(live).items()}
    before = _existing(released, live)
    pod_errors, unchecked_pods = pod_refusals(api, before, after, replicas)
    state = CurrentState(
        description="no installed release",
        objects=(),
        foreign=of_others,
        rejected=_group_by_reason([*errors, *pod_errors]),
        unchecked=tuple(forbidden),
        unchecked_pods=unchecked_pods,
    )
    if release is None:
        return state
    is_recorded = release.revision.is_recorded
    if not is_recorded:
        release = replace(release, manifest=_declared(release.objects, after, dry_runs))
    deleted = _deleted_config_maps(release.objects, live)
    with_files = (*live, *_unrecorded_config_maps(api, live), *deleted)
    return replace(
        state,
        description=str(release.revision) if is_recorded else f"objects {release.revision}",
        objects=(*_existing(release.objects, live), *deleted),
        replicas=replicas,
        drift=(
            *drift(release.objects, with_files, dry_runs.expected(release.objects), api.manager),
            *map(_deletion, deleted),
        ),
        unread=tuple(unread),
        revision=release.revision if is_recorded else None,
        installer="" if is_recorded else release.revision.status,
        manager=api.manager,
        update=read_update(api, target, live),
    )


def _declared(objects: Sequence[Object], after: Sequence[Object], dry_runs: DryRuns) -> str:
    """Objects that are known from the cluster only, as a manifest would declare them: in fields
    that are applied as a unit, such as `fieldRef`, they have the API server's defaults."""
    declared = {key_of(o): o for o in after}
    expected = {key_of(o): o for o in dry_runs.expected(after)}
    keys = map(key_of, objects)
    return yaml.safe_dump_all(
        without_defaults(o, expected.get(key), declared.get(key))
        for o, key in zip(objects, keys, strict=True)
    )


class DryRuns:
    """The API server's responses to an apply of manifests, each asked for once."""

    def __init__(self, api: Api, live: Iterable[Object]) -> None:
        self._api = api
        self._live = {key_of(o): o for o in live}
        self._found: dict[str, DryRun] = {}

    def apply(self, manifest: Object) -> DryRun:
        """Raises ForbiddenError if the user may not apply it."""
        manifest = self._with_live_replicas(manifest)
        text = json.dumps(manifest, sort_keys=True, default=str)
        if text not in self._found:
            live = self._live.get(key_of(manifest))
            self._found[text] = self._api.dry_run(manifest, live)
        return self._found[text]

    def expected(self, released: Iterable[Object]) -> Iterator[Object]:
        """What the live objects of the release would be after an apply of it, as far as the user
        may ask."""
        for manifest in released:
            if key_of(manifest) in self._live:
                with contextlib.suppress(ForbiddenError):
                    if (applied := self.apply(manifest).result) is not None:
                        yield applied

    def _with_live_replicas(self, manifest: Object) -> Object:
        """The manifest as `upgrade` writes it: pools with an autoscaler keep their number."""
        live = self._live.get(key_of(manifest))
        if manifest["kind"] != DGD or live is None:
            return manifest
        scaled = {name for name, workload in workloads([manifest]).items() if workload.scaler}
        counts = {name: w.replicas for name, w in workloads([live]).items() if name in scaled}
        kept = [
            {**c, "replicas": counts[c["name"]]} if c["name"] in counts else c
            for c in manifest["spec"]["components"]
        ]
        return {**manifest, "spec": {**manifest["spec"], "components": kept}}


def read_update(api: Api, target: ReleaseTarget, live: Iterable[Object]) -> RollingUpdate | None:
    """The rolling update of the graph among the live objects. Raises ClusterError."""
    graph = next((o for o in live if o["kind"] == DGD), None)
    if graph is None or not is_updating(graph):
        return None
    try:
        pods: list[Object] | None = list(api.list("Pod", labels=f"{POD_GRAPH}={target.name}"))
    except ForbiddenError:
        pods = None
    return rolling_update(graph, pods)


def _group_by_reason(errors: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """One line per reason; a missing namespace, say, is the same reason for every object."""
    objects_by_reason: dict[str, list[str]] = {}
    for kind_and_name, reason in errors:
        objects_by_reason.setdefault(reason, []).append(kind_and_name)
    return tuple(
        f"{objects[0]}{f' and {len(objects) - 1} more' if objects[1:] else ''}: {reason}"
        for reason, objects in objects_by_reason.items()
    )


def _existing(released: Sequence[Object], live: Sequence[Object]) -> tuple[Object, ...]:
    """The released manifests of the objects that exist on the cluster.

    The live objects themselves carry defaults and status that no graph sets. Where they differ from
    the release, that is drift, which is reported apart from the change.
    """
    existing = {key_of(o) for o in live}
    return tuple(o for o in released if key_of(o) in existing)


def _unrecorded_config_maps(api: Api, live: Sequence[Object]) -> Iterator[Object]:
    """ConfigMaps that live pod templates mount and the release does not contain, such as those of
    the revision before after a failed write."""
    known = {o["metadata"]["name"] for o in live if o["kind"] == CONFIG_MAP}
    yield from existing(api, map(config_map, sorted(mounted_config_maps(live) - known)))


def _deleted_config_maps(released: Sequence[Object], live: Sequence[Object]) -> tuple[Object, ...]:
    """Running pods still have their content, so it counts as unchanged."""
    existing = {o["metadata"]["name"] for o in live if o["kind"] == CONFIG_MAP}
    maps = (o for o in released if o["kind"] == CONFIG_MAP)
    return tuple(o for o in maps if o["metadata"]["name"] not in existing)


def _deletion(manifest: Object) -> Drift:
    change = FieldChange(path=EXISTS, before=True, after=False)
    return Drift(component=_kind_and_name(manifest), change=change)


def _kind_and_name(manifest: Object) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def kv_tokens(objects: Sequence[Object]) -> Mapping[str, int]:
    """KV cache of one replica by pool, in tokens; only pools whose GPU and model are known."""
    from penstock.manifests.read import read_manifests
    from penstock.manifests.source import Source
    from penstock.serving.memory import memory_budgets
    from penstock.serving.understand import Hints, understand

    if not any(o["kind"] == DGD for o in objects):
        return {}
    text = yaml.safe_dump_all([dict(o) for o in objects])
    try:
        manifest, *_ = read_manifests(text, "the release")
    except ManifestError:
        return {}
    deployment = understand(Source(manifest=manifest, text=text, loaded=None), Hints())
    return {
        worker.name: budget.kv_tokens * budget.inputs.attention_ranks * budget.inputs.data_parallel
        for worker, budget in memory_budgets(deployment)
    }


def _served_resources(api: Api) -> Mapping[str, set[str]]:
    """The resources of Dynamo's group by served version."""
    group = api.served(f"/apis/{CRD_GROUP}") or {}
    versions = [str(version["groupVersion"]) for version in group.get("versions", ())]
    documents = {version: api.served(f"/apis/{version}") or {} for version in versions}
    return {
        version: {str(resource["name"]) for resource in document.get("resources", ())}
        for version, document in documents.items()
    }


def require_crds(api: Api, objects: Iterable[Object]) -> None:
    """Raises ClusterError if ``objects`` contain a graph and one of Dynamo's CRDs is missing.

    Users who may not read the discovery documents are not checked.
    """
    if not any(o["kind"] == DGD for o in objects):
        return
    try:
        served = _served_resources(api)
    except ForbiddenError:
        return
    if GRAPHS not in served.get(CRD_VERSION, ()):
        other_versions = [version for version, names in served.items() if GRAPHS in names]
        only = f"; it serves only {', '.join(other_versions)}" if other_versions else ""
        fix = f"Upgrade the Dynamo operator and its CRDs to 1.6: see {page('cluster')}."
        message = f"the cluster has no kind {DGD} ({CRD_VERSION}){only}"
        raise ClusterError(message, place=DGD, fix=fix if other_versions else INSTALL)
    existing = {name for names in served.values() for name in names}
    if missing := [name for name in OF_OPERATOR if name not in existing]:
        names = " and ".join(f"{name}.{CRD_GROUP}" for name in missing)
        verb = "are" if missing[1:] else "is"
        message = f"the CRDs of Dynamo are installed only in part: {names} {verb} missing"
        raise ClusterError(message, place=DGD, fix=INSTALL)


def pod_refusals(
    api: Api, before: Sequence[Object], after: Sequence[Object], replicas: Mapping[str, int]
) -> tuple[list[tuple[str, str]], tuple[Problem, ...]]:
    """Why the pods that a change to ``after`` creates would be refused: ("pods of COMPONENT",
    reason); and the missing rights to check that. Raises ClusterError.

    ``replicas``: the current number by component. What the Dynamo operator adds to a pod (probes,
    volumes, variables, its ServiceAccount) is not checked, and of a quota only whether one more pod
    fits.
    """
    old, new = workloads(before), workloads(after)
    accounts = {o["metadata"]["name"] for o in after if o["kind"] == "ServiceAccount"}
    errors: list[tuple[str, str]] = []
    for name, template in pod_templates(after):
        if name not in new:
            continue  # not a component, such as etcd
        existing = old.get(name)
        replaces = existing is not None and new[name].replicas <= replicas.get(name, 0)
        if existing and replaces and new[name].spec == existing.spec:
            continue  # creates no pod
        try:
            errors_of_pod = api.pod_errors(_pod(name, template, accounts))
            reasons = [reason for reason in errors_of_pod if NEW_NAMESPACE not in reason]
        except ForbiddenError as error:
            return errors, error.problems
        # Without surge an old pod is deleted first, which frees its share of the quota.
        kept = (r for r in reasons if QUOTA not in r or not replaces or has_surge(after))
        errors += [(f"pods of {name}", f"{reason}. Fix: {POD_FIX}") for reason in kept]
    return list(dict.fromkeys(errors)), ()


def _pod(component: str, template: Object, accounts: set[str]) -> Object:
    """A pod of the template. A ServiceAccount of the release may not exist yet, and a missing one
    would hide the other reasons."""
    spec = {
        field: value
        for field, value in template["spec"].items()
        if field != "serviceAccountName" or value not in accounts
    }
    metadata = {**(template.get("metadata") or {}), "name": f"{component}-dry-run"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
