"""What is installed: Helm's newest revision, or what another client applied from the chart.

Argo CD runs `helm template` and applies its output, and a user may do the same with kubectl. Helm
has no record of that, but the API server keeps what each client applied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

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


def _read_unrecorded(target: ReleaseTarget, api: Api, after: Iterable[Object]) -> Release | None:
    """Objects with the chart's labels and without Helm's annotations, as they were applied."""
    workloads = _workloads(target, api)
    files = map(_config_map, mounted_config_maps(workloads))
    live = {key_of(o): o for o in (*workloads, *_existing(api, (*files, *after)))}
    own = helm_annotations(target).items()
    others = [o for o in live.values() if not own <= (_annotations(o)).items()]
    found = [(o["kind"], *applied(o)) for o in others]
    clients = [client for kind, client, _ in found if kind in WORKLOAD_KINDS]
    if not clients:  # the ConfigMaps that Helm keeps, or objects that only have the same name
        return None
    revision = Revision(
        number=0, status=f"applied by {clients[0].name} without Helm", at=clients[0].at
    )
    return Release(revision=revision, manifest=yaml.safe_dump_all([m for _, _, m in found]))


def _workloads(target: ReleaseTarget, api: Api) -> list[Object]:
    """With the chart's labels, which the operator copies to what it creates."""
    found: list[Object] = []
    for kind, version in WORKLOAD_VERSIONS.items():
        with contextlib.suppress(ForbiddenError):
            found += api.list(kind, f"{NAME}={CHART},{INSTANCE}={target.name}", version=version)
    return [o for o in found if not o["metadata"].get("ownerReferences")]


def _config_map(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def _existing(api: Api, manifests: Iterable[Object]) -> Iterator[Object]:
    for manifest in manifests:
        with contextlib.suppress(ForbiddenError):
            if (found := api.get(manifest)) is not None:
                yield found


def _annotations(manifest: Object) -> dict[str, str]:
    return manifest["metadata"].get("annotations") or {}
