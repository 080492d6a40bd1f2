"""The chart and the values of a stored revision, from Helm's record of it.

Helm's own rollback writes the revision's manifest as it is. To write it with a change, the chart
that made it is needed, which may be another than the installed penstock's.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from penstock.cluster.api import Api
from penstock.cluster.release import record_name
from penstock.errors import ClusterError, Problem
from penstock.files import write_file
from penstock.helm import ReleaseTarget


@contextmanager
def stored_chart(api: Api, target: ReleaseTarget, revision: int) -> Iterator[tuple[Path, Any]]:
    """The revision's chart in a folder that exists within the block, and its values.

    Raises ClusterError if the record cannot be read.
    """
    name = record_name(target, revision)
    secret = api.get({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
    if secret is None:
        message = f"Helm's record of revision {revision} is not a Secret of this namespace"
        fix = "Use Helm's default storage, Secrets: unset HELM_DRIVER."
        raise ClusterError(Problem(place=f"release {target}", message=message, fix=fix))
    packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
    record = json.loads(gzip.decompress(packed))
    chart = record["chart"]
    with TemporaryDirectory(prefix="penstock-chart-") as folder:
        root = Path(folder) / "chart"
        root.mkdir()
        write_file(root / "Chart.yaml", yaml.safe_dump(chart["metadata"]))
        write_file(root / "values.yaml", yaml.safe_dump(chart.get("values") or {}))
        if schema := chart.get("schema"):
            write_file(root / "values.schema.json", base64.b64decode(schema))
        for file in (*(chart.get("templates") or ()), *(chart.get("files") or ())):
            _write(root, str(file["name"]), base64.b64decode(file["data"]))
        yield root, record.get("config") or {}


def _write(root: Path, name: str, content: bytes) -> None:
    """Raises ClusterError for a name outside the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        message = f"the chart in Helm's record has a file outside its folder: {name}"
        raise ClusterError(Problem(message=message))
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, content)
