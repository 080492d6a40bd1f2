"""What a change starts from: a file, or what a cluster holds now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from penstock.cluster.api import Api
from penstock.cluster.drift import Drift, drift
from penstock.cluster.release import Revision, current
from penstock.cluster.workloads import DGD, Object, workloads
from penstock.errors import ManifestError, Problem
from penstock.graph.load import load_graph, read_text_file
from penstock.helm import ReleaseTarget
from penstock.manifests.source import is_manifest, render_graph
from penstock.strict_yaml.loader import SafeLoader


@dataclass(frozen=True, kw_only=True)
class CurrentState:
    """``replicas``: those that are there by component, for a file none; ``refused``: what the API
    server would refuse of the new manifests, where one was asked; ``revision``: the release's, None
    for a file and where nothing is installed."""

    what: str
    objects: tuple[Object, ...]
    replicas: Mapping[str, int] = field(default_factory=dict)
    drift: tuple[Drift, ...] = ()
    refused: tuple[str, ...] = ()
    revision: Revision | None = None


def of_file(path: Path, name: str, namespace: str) -> CurrentState:
    """A graph, rendered as the same release, or manifests. Raises as `open_source`."""
    text = read_text_file(path)
    if not is_manifest(text):
        rendered = render_graph(load_graph(path), namespace, name=name)
        return CurrentState(what=str(path), objects=rendered.objects)
    try:
        documents = list(yaml.load_all(text, SafeLoader))
    except yaml.YAMLError as error:
        raise ManifestError(Problem(file=str(path), message=f"is no YAML: {error}")) from None
    return CurrentState(what=str(path), objects=tuple(_objects(documents, path)))


def _objects(documents: Sequence[Any], path: Path) -> Iterator[Object]:
    """Kubernetes objects, of Lists too. Raises ManifestError for what is none."""
    for number, document in enumerate(documents, start=1):
        if document is None:
            continue
        whole = isinstance(document, dict) and isinstance(document.get("kind"), str)
        if whole and document["kind"].endswith("List") and "items" in document:
            yield from _objects(document["items"], path)
            continue
        named = whole and isinstance((document.get("metadata") or {}).get("name"), str)
        if not named:
            problem = Problem(
                file=str(path),
                message=f"document {number} has no kind or no metadata.name",
                fix="compare with what `penstock render` or `helm get manifest` prints",
            )
            raise ManifestError(problem)
        if document["kind"] == DGD and "services" in (document.get("spec") or {}):
            raise ManifestError(
                Problem(
                    file=str(path),
                    place=f"document {number}",
                    message="is v1alpha1, and graphs are rendered as v1beta1",
                    fix="read it from the cluster as v1beta1: kubectl get dgd.v1beta1.nvidia.com",
                )
            )
        yield document


def of_cluster(target: ReleaseTarget, api: Api, after: Sequence[Object]) -> CurrentState:
    """What the release's objects are on the cluster now. Raises ClusterError."""
    release = current(target)
    asked = release.objects if release else ()
    live = tuple(found for o in asked if (found := api.get(o)) is not None)
    tried = _with_the_scaled(after, live)
    refused = _told_once([(_place(o), text) for o in tried for text in api.refusals(o)])
    if release is None:
        return CurrentState(what="nothing: no such release", objects=(), refused=refused)
    return CurrentState(
        what=f"revision {release.revision.number} ({release.revision.status})",
        objects=_those_there(release.objects, live),
        replicas={name: w.replicas for name, w in workloads(live).items()},
        drift=drift(release.objects, live),
        refused=refused,
        revision=release.revision,
    )


def _told_once(refusals: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """One line a reason: a namespace that is missing is the same one for every object."""
    places: dict[str, list[str]] = {}
    for place, text in refusals:
        places.setdefault(text, []).append(place)
    return tuple(
        f"{found[0]}{f' and {len(found) - 1} more' if found[1:] else ''}: {text}"
        for text, found in places.items()
    )


def _with_the_scaled(after: Sequence[Object], live: Sequence[Object]) -> Iterator[Object]:
    """``after`` as `upgrade` writes it: the numbers of replicas that autoscalers get are kept."""
    scaled = {name for name, workload in workloads(after).items() if workload.scaler}
    counts = {name: w.replicas for name, w in workloads(live).items() if name in scaled}
    for manifest in after:
        if manifest["kind"] == DGD:
            kept = [
                {**c, "replicas": counts[c["name"]]} if c["name"] in counts else c
                for c in manifest["spec"]["components"]
            ]
            yield {**manifest, "spec": {**manifest["spec"], "components": kept}}
        else:
            yield manifest


def _those_there(asked: Sequence[Object], live: Sequence[Object]) -> tuple[Object, ...]:
    """What was asked for, of the objects that are there.

    The live objects themselves hold defaults and status that no graph names; what differs from what
    was asked is drift, and is told apart from the change.
    """
    there = {(o["kind"], o["metadata"]["name"]) for o in live}
    return tuple(o for o in asked if (o["kind"], o["metadata"]["name"]) in there)


def _place(manifest: Object) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def kv_tokens(objects: Sequence[Object]) -> Mapping[str, int]:
    """KV cache of one replica by pool, in tokens, where GPU and model are known."""
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
