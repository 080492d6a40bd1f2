"""Validate LeaderWorkerSets: what a cluster rejects, or accepts although it is broken.

Knows the fields of kubernetes-sigs/lws, api/leaderworkerset/v1/leaderworkerset_types.go, that the
chart uses; add others from there. Templates are checked as pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator

from tests.support.kubernetes_schemas import builtin
from tests.support.kubernetes_schemas.builtin import Manifest, title
from tests.support.kubernetes_schemas.structure import structural_problems
from tests.support.kubernetes_schemas.syntax import LABEL_1035, Problem, name_fault

KIND = "LeaderWorkerSet"
TEMPLATES = ("leaderTemplate", "workerTemplate")
# Workers' StatefulSets are named NAME-GROUP; with a hash of 11 characters that is a label value.
LONGEST = 63 - 11 - len("-99")


def _closed(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


POSITIVE = {"type": "integer", "minimum": 1}
COUNT = {"type": "integer", "minimum": 0}
SCHEMA = _closed(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "leaderworkerset.x-k8s.io/v1"},
    kind={"const": KIND},
    metadata={"type": "object"},
    status={"type": "object"},
    spec=_closed(
        ("leaderWorkerTemplate",),
        replicas=COUNT,
        startupPolicy={"enum": ["LeaderCreated", "LeaderReady"]},
        rolloutStrategy=_closed(
            ("type",),
            type={"const": "RollingUpdate"},
            rollingUpdateConfiguration=_closed(
                maxSurge=COUNT, maxUnavailable=COUNT, partition=COUNT
            ),
        ),
        leaderWorkerTemplate=_closed(
            ("workerTemplate",),
            size=POSITIVE,
            restartPolicy={"enum": ["RecreateGroupOnPodRestart", "None"]},
            leaderTemplate={"type": "object"},
            workerTemplate={"type": "object"},
        ),
    ),
)


def problems(manifest: Manifest, version: str) -> list[str]:
    """`Kind/name place: message` for each problem; ``version`` of Kubernetes, such as `1.33`."""
    return [f"{title(manifest)} {place}: {message}" for place, message in faults(manifest, version)]


def faults(manifest: Manifest, version: str) -> list[Problem]:
    """(place, message) of each problem."""
    texts = list(structural_problems(Draft202012Validator(SCHEMA), manifest))
    return texts or [*_content(manifest), *_pods(manifest, version)]


def _content(manifest: Manifest) -> Iterator[Problem]:
    if fault := name_fault(manifest["metadata"].get("name"), LABEL_1035, LONGEST):
        yield "metadata.name", fault
    strategy = manifest["spec"].get("rolloutStrategy") or {}
    rolling = strategy.get("rollingUpdateConfiguration")
    if rolling and not rolling.get("maxSurge", 0) and not rolling.get("maxUnavailable", 1):
        place = "spec.rolloutStrategy.rollingUpdateConfiguration"
        yield place, "maxSurge and maxUnavailable are both 0"


def _pods(manifest: Manifest, version: str) -> Iterator[Problem]:
    group = manifest["spec"]["leaderWorkerTemplate"]
    for key in TEMPLATES:
        template = group.get(key) or {}
        metadata = {"name": "pod", **(template.get("metadata") or {})}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        for problem in builtin.problems(pod, version):
            yield f"spec.leaderWorkerTemplate.{key}", problem
