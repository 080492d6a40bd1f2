"""Helm's record of a release: what it applied last.

Through the Helm SDK, so that a release of `helm install` and one of `penstock apply` are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from penstock import helm
from penstock.manifests.render import Loader


@dataclass(frozen=True, kw_only=True)
class Release:
    """``status`` is Helm's word: deployed, failed, pending-upgrade, uninstalled …"""

    name: str
    revision: int
    status: str
    chart: str
    objects: tuple[dict[str, Any], ...]


def current(
    name: str, namespace: str, kubeconfig: Path | None, context: str | None
) -> Release | None:
    """The release as it is now; None where there is none."""
    found = helm.release(name, namespace=namespace, kubeconfig=kubeconfig, context=context)
    if found is None:
        return None
    objects = [o for o in yaml.load_all(str(found["manifest"]), Loader) if o]
    return Release(
        name=name,
        revision=int(found["revision"]),
        status=str(found["status"]),
        chart=str(found["chart_name"]),
        objects=tuple(objects),
    )
