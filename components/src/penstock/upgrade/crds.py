"""Whether a cluster has all of Dynamo's CRDs: an interrupted upgrade leaves a part of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.cluster.api import Api
from penstock.cluster.connect import SELECT
from penstock.errors import ClusterError, Problem
from penstock.helm import ReleaseTarget
from penstock.upgrade.steps import CRDS

Definition = Mapping[str, Any]
GRAPHS = "dynamographdeployments.nvidia.com"
API_VERSION = "v1beta1"
SELECT_HERE = "Set KUBECONFIG or --kubeconfig, or omit --cluster."
FIX = "Upgrade the operator's chart again with upgradeCRD: true, and wait until its pod is ready."


def connect(target: ReleaseTarget) -> Api:
    """As `Api.connect`, with a fix for this verb where no cluster is configured."""
    try:
        return Api.connect(target)
    except ClusterError as error:
        found = [replace(p, fix=SELECT_HERE) if p.fix == SELECT else p for p in error.problems]
        raise ClusterError(*found) from None


def require_crds(api: Api) -> None:
    """ClusterError when a CRD is missing or not in use, with every problem."""
    problems = [*crd_problems({name: api.definition(name) for name in CRDS})]
    if problems:
        raise ClusterError(*problems)


def crd_problems(definitions: Mapping[str, Definition | None]) -> Iterator[Problem]:
    """The problems of the definitions by name; None: it does not exist."""
    missing = [name for name, found in definitions.items() if found is None]
    if len(missing) == len(definitions):
        message = "Dynamo's CRDs are not installed"
        yield Problem(message=message, fix="Install the operator first: see k8s/README.md.")
        return
    for name, found in definitions.items():
        if found is None:
            count = f"{len(definitions) - len(missing)} of {len(definitions)}"
            message = f"is missing: {count} of Dynamo's CRDs are installed"
            yield Problem(place=f"CRD {name}", message=message, fix=FIX)
            continue
        conditions = (found.get("status") or {}).get("conditions") or ()
        if not any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
            reason = next((c.get("message") for c in conditions if c["status"] == "False"), None)
            message = f"is not established{f': {reason}' if reason else ''}"
            yield Problem(place=f"CRD {name}", message=message, fix=FIX)
        served = [v["name"] for v in found["spec"]["versions"] if v.get("served")]
        if name == GRAPHS and API_VERSION not in served:
            message = f"serves {', '.join(served) or 'no version'}, and not {API_VERSION}"
            yield Problem(place=f"CRD {name}", message=message, fix=FIX)
