"""Whether the cluster serves Dynamo's custom resources, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError
from penstock.cluster.workloads import DGD, Object
from penstock.errors import ClusterError, Problem
from penstock.files import page

GROUP = "nvidia.com"
VERSION = f"{GROUP}/v1beta1"  # that the chart renders
GRAPHS = "dynamographdeployments"
# The operator creates objects of these for each graph, in any served version.
OF_OPERATOR = ("dynamocomponentdeployments", "dynamographdeploymentscalingadapters")
INSTALL = f"Install the Dynamo operator with its CRDs: see {page('cluster')}."


def require_crds(api: Api, objects: Iterable[Object]) -> None:
    """Raises ClusterError if ``objects`` contain a graph and one of Dynamo's CRDs is missing.

    Users who may not read the discovery documents are not checked.
    """
    if not any(o["kind"] == DGD for o in objects):
        return
    try:
        versions = _versions(api)
        served = {version: _resources(api, version) for version in versions}
    except ForbiddenError:
        return
    if GRAPHS not in served.get(VERSION, ()):
        others = [version for version, names in served.items() if GRAPHS in names]
        only = f"; it serves only {', '.join(others)}" if others else ""
        fix = f"Upgrade the Dynamo operator and its CRDs to 1.6: see {page('cluster')}."
        message = f"the cluster has no kind {DGD} ({VERSION}){only}"
        raise ClusterError(Problem(place=DGD, message=message, fix=fix if others else INSTALL))
    existing = {name for names in served.values() for name in names}
    if missing := [name for name in OF_OPERATOR if name not in existing]:
        names = " and ".join(f"{name}.{GROUP}" for name in missing)
        problem = f"the CRDs of Dynamo are installed only in part: {names} is missing"
        if missing[1:]:
            problem = problem.replace(" is missing", " are missing")
        raise ClusterError(Problem(place=DGD, message=problem, fix=INSTALL))


def _versions(api: Api) -> list[str]:
    group = api.served(f"/apis/{GROUP}") or {}
    return [str(version["groupVersion"]) for version in group.get("versions", ())]


def _resources(api: Api, version: str) -> set[str]:
    listed = api.served(f"/apis/{version}") or {}
    return {str(resource["name"]) for resource in listed.get("resources", ())}
