"""What is installed: Helm's newest revision, or what another client applied from the chart.

Argo CD runs `helm template` and applies its output, and a user may do the same with kubectl. Helm
has no record of that, but the API server keeps what each client applied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping

import yaml

from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError
from penstock.cluster.own_objects import INSTANCE, NAME
from penstock.cluster.ownership import applied
from penstock.cluster.release import (
    CHART,
    Release,
    Revision,
    helm_annotations,
    read_release,
    require_release,
)
from penstock.cluster.workloads import (
    WORKLOAD_KINDS,
    WORKLOAD_VERSIONS,
    Object,
    key_of,
    mounted_config_maps,
)
from penstock.errors import ClusterError, Problem
from penstock.helm import ReleaseTarget

RELEASE = "meta.helm.sh/release-name"


def read_installed(target: ReleaseTarget, api: Api, after: Iterable[Object] = ()) -> Release | None:
    """None if nothing is installed. ``after``: objects of the graph, which may exist already.

    Raises ClusterError.
    """
    return read_release(target) or _read_unrecorded(target, api, after)


def require_installed(target: ReleaseTarget, api: Api) -> Release:
    """Raises ClusterError if nothing is installed, or the namespace does not exist."""
    found = read_installed(target, api)
    if found is None and not _has_namespace(api):
        place, message = f"namespace {target.namespace}", "does not exist"
        fix = "Select another one with --namespace, or another cluster with --context."
        raise ClusterError(Problem(place=place, message=message, fix=fix))
    return found or require_release(target)


def _has_namespace(api: Api) -> bool:
    with contextlib.suppress(ForbiddenError):
        return api.served(f"/api/v1/namespaces/{api.namespace}") is not None
    return True


def foreign(target: ReleaseTarget, api: Api, new: Iterable[Object]) -> Iterator[Problem]:
    """Objects that exist under the names of ``new``, which the release does not have yet, and are
    not the graph's: Helm refuses them in the middle of its write."""
    for live in existing(api, new):
        if not _is_own(target, live):
            labels = live["metadata"].get("labels") or {}
            owner = _annotations(live).get(RELEASE) or labels.get(INSTANCE)
            yield Problem(
                place=f"{live['kind']} {target.namespace}/{live['metadata']['name']}",
                message=f"exists already and belongs to {owner or 'something else'}, not to "
                f"{target.name}",
                fix="Rename or delete it, or select another name with --release.",
            )


def _is_own(target: ReleaseTarget, live: Object) -> bool:
    """By the labels of the chart; Helm's annotations, if any, do not name another release."""
    labels, own = live["metadata"].get("labels") or {}, helm_annotations(target)
    annotated = {k: v for k, v in _annotations(live).items() if k in own}
    is_of_chart = (labels.get(NAME), labels.get(INSTANCE)) == (CHART, target.name)
    return is_of_chart and annotated.items() <= own.items()


def _read_unrecorded(target: ReleaseTarget, api: Api, after: Iterable[Object]) -> Release | None:
    """The graph's objects as they were applied, if one of them owns pods.

    Helm's annotations decide nothing: they stay if its records are deleted, and are set first by an
    adoption, which can fail afterwards.
    """
    workloads = _workloads(target, api)
    files = map(config_map, mounted_config_maps(workloads))
    others = (o for o in existing(api, (*files, *after)) if _is_own(target, o))
    live = {key_of(o): o for o in (*workloads, *others)}
    found = [(o["kind"], *applied(o)) for o in live.values()]
    clients = [client for kind, client, _ in found if kind in WORKLOAD_KINDS]
    if not clients:  # nothing, or the ConfigMaps that Helm keeps
        return None
    status = f"applied by {clients[0].name} without a record of Helm"
    revision = Revision(number=0, status=status, at=clients[0].at)
    return Release(revision=revision, manifest=yaml.safe_dump_all([m for _, _, m in found]))


def _workloads(target: ReleaseTarget, api: Api) -> list[Object]:
    """With the chart's labels, which the operator copies to what it creates."""
    found: list[Object] = []
    for kind, version in WORKLOAD_VERSIONS.items():
        with contextlib.suppress(ForbiddenError):
            found += api.list(kind, f"{NAME}={CHART},{INSTANCE}={target.name}", version=version)
    not_own = ("ownerReferences", "deletionTimestamp")
    return [o for o in found if not any(o["metadata"].get(field) for field in not_own)]


def config_map(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def existing(api: Api, manifests: Iterable[Object]) -> Iterator[Object]:
    """The live objects of the manifests, without those that the user may not read."""
    for manifest in manifests:
        with contextlib.suppress(ForbiddenError):
            if (found := api.get(manifest)) is not None:
                yield found


def _annotations(manifest: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = manifest["metadata"].get("annotations") or {}
    return found
