"""Take a release off the cluster; claims with data stay unless somebody names them.

ConfigMaps of the engines stay when a revision goes, since its pods may still start; with the
release they go.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock import helm
from penstock.cluster.api import Api
from penstock.cluster.release import Release, told
from penstock.cluster.workloads import Object
from penstock.helm import Target


def kept_claims(api: Api, target: Target, release: Release) -> tuple[Object, ...]:
    """The claims that Helm leaves: the model's cache, and what a StatefulSet made of templates."""
    made = {
        f"{template['metadata']['name']}-{o['metadata']['name']}-{number}"
        for o in release.objects
        if o["kind"] == "StatefulSet"
        for template in o["spec"].get("volumeClaimTemplates", ())
        for number in range(int(o["spec"].get("replicas", 1)))
    }
    own = {o["metadata"]["name"] for o in release.objects if o["kind"] == "PersistentVolumeClaim"}
    there = api.list("PersistentVolumeClaim")
    return tuple(claim for claim in there if claim["metadata"]["name"] in own | made)


def remove(api: Api, target: Target, claims: Sequence[Object]) -> None:
    """Raises ClusterError."""
    told(target, "be uninstalled", lambda: helm.uninstall(target))
    own = f"app.kubernetes.io/name=penstock,app.kubernetes.io/instance={target.name}"
    for manifest in (*api.list("ConfigMap", own), *claims):
        api.delete(manifest)
