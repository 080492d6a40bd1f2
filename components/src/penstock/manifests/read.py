"""Manifests to `Deployment`: every DynamoGraphDeployment of a text, with the ConfigMaps beside it.

Pure: no process, no network, no clock. All problems of a text are raised together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.errors import ManifestError, Problem
from penstock.manifests import roles
from penstock.manifests.configmaps import ConfigMaps, collect
from penstock.manifests.cursor import Cursor
from penstock.manifests.deployment import Component, Deployment, NoConfig, Role
from penstock.manifests.documents import Document, parse
from penstock.manifests.engine_files import read_engine_config
from penstock.manifests.gpus import claim_templates, pod_gpus
from penstock.manifests.launches import Started, read_container
from penstock.manifests.mounts import Mounts
from penstock.manifests.placeholders import find_placeholders
from penstock.manifests.pods import V1ALPHA1, V1BETA1, Pod, pods
from penstock.manifests.scalers import Scaler, adapter_name, scalers
from penstock.strict_yaml.nodes import node_at

_KIND = "DynamoGraphDeployment"
# What these run lies in the image or comes from the operator, not from the manifest.
_WITHOUT_LAUNCH = (Role.EPP, Role.PLANNER, Role.OTHER)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One deployment beside what it was read from: ``root`` is its object, ``pods`` those of its
    components by name, ``documents`` all objects of the text."""

    deployment: Deployment
    root: Cursor
    pods: Mapping[str, Pod]
    documents: tuple[Cursor, ...]


def read_text(text: str, source: str, *, namespace: str = "default") -> tuple[Deployment, ...]:
    """Every DynamoGraphDeployment in ``text``; ``source`` names it in messages.

    Raises ManifestError with all problems of the text.
    """
    return tuple(m.deployment for m in read_manifests(text, source, namespace=namespace))


def read_manifests(text: str, source: str, *, namespace: str = "default") -> tuple[Manifest, ...]:
    """As `read_text`, with the objects beside their typed view."""
    documents, problems = parse(text, source)
    return _read(documents, problems, source, namespace)


@dataclass(frozen=True, kw_only=True)
class _Surroundings:
    """What a deployment may refer to: the other documents of its text."""

    maps: ConfigMaps
    claims: Mapping[str, int]
    scalers: Mapping[str, Scaler]
    namespace: str


def _read(
    documents: tuple[Document, ...], problems: list[Problem], source: str, namespace: str
) -> tuple[Manifest, ...]:
    documents = tuple(_flat(documents))
    roots = [Cursor.at_root(document) for document in documents]
    graphs = [root for root in roots if root.mapping().get("kind") == _KIND]
    if not graphs and not problems:
        problems.append(_nothing_here(roots, source))
    for root in roots:
        if root["kind"].value in (_KIND, "ConfigMap"):
            find_placeholders(root)
    surroundings = _Surroundings(
        maps=collect(documents, namespace),
        claims=claim_templates(documents),
        scalers=scalers(document.value for document in documents),
        namespace=namespace,
    )
    manifests = [_manifest(root, surroundings, tuple(roots)) for root in graphs]
    if problems:
        raise ManifestError(*sorted(problems, key=lambda problem: problem.line or 0))
    return tuple(manifest for manifest in manifests if manifest is not None)


def _flat(documents: Iterable[Document]) -> Iterable[Document]:
    """`kubectl get -o yaml` wraps objects in a List."""
    for document in documents:
        root = Cursor.at_root(document)
        if isinstance(document.value, dict) and document.value.get("kind") == "List":
            for item in root["items"].items():
                yield replace(document, value=item.value, node=node_at(document.node, item.path))
        else:
            yield document


def _nothing_here(roots: list[Cursor], source: str) -> Problem:
    if not roots:
        return Problem(file=source, message="empty: no YAML document", fix=f"give it a {_KIND}")
    kinds = [str(root["kind"].value or "a document without kind") for root in roots]
    held = ", ".join(dict.fromkeys(kinds))
    return Problem(
        file=source,
        line=roots[0].line,
        message=f"no {_KIND} here, only: {held}",
        fix="point at the file that holds the deployment, or build the overlay first",
    )


def _manifest(
    root: Cursor, surroundings: _Surroundings, roots: tuple[Cursor, ...]
) -> Manifest | None:
    api_version = root["apiVersion"].text()
    if api_version not in (V1BETA1, V1ALPHA1):
        shown = "no apiVersion" if api_version is None else f"unknown apiVersion {api_version}"
        root["apiVersion"].problem(shown, f"{_KIND} is {V1BETA1} or {V1ALPHA1}")
        return None
    name = root.at("metadata", "name").text()
    if not name:
        root["metadata"].problem("no metadata.name", "name the deployment")
    namespace = root.at("metadata", "namespace").text() or surroundings.namespace
    root["spec"].mapping()
    found = tuple(pods(root["spec"], api_version))
    components = [
        replace(
            _component(pod, replace(surroundings, namespace=namespace)),
            replicas=_replicas(pod, adapter_name(name or "", pod.name), surroundings.scalers),
        )
        for pod in found
    ]
    deployment = Deployment(
        name=name or "",
        namespace=namespace,
        api_version=api_version,
        components=_settled(components),
        source=root.document.source,
    )
    by_name = {pod.name: pod for pod in found}
    return Manifest(deployment=deployment, root=root, pods=by_name, documents=roots)


def _component(pod: Pod, surroundings: _Surroundings) -> Component:
    started = [
        read_container(pod, container, surroundings.maps, surroundings.namespace)
        for container in pod.containers
    ]
    launches = started[0].launches + tuple(
        launch
        for sidecar in started[1:]
        for launch in sidecar.launches
        if (launch.module or "").startswith("dynamo.")
    )
    engine, launch = roles.engine_of(launches)
    mounts = _mounts_of(started, launch)
    config = read_engine_config(launch, engine, mounts, pod.cursor) if launch else NoConfig()
    role = roles.role_of(pod.kind, pod.sub_kind, launches, engine, config)
    if not launches and role not in _WITHOUT_LAUNCH:
        _report_no_command(pod.containers[0].cursor)
    return Component(
        name=pod.name,
        role=role,
        replicas=pod.replicas,
        gpus=pod_gpus(pod, surroundings.claims) * pod.nodes,
        nodes=pod.nodes,
        image=pod.image,
        launches=launches,
        engine=engine,
        engine_config=config,
        grace_s=pod.grace_s,
        place=pod.cursor.place,
    )


def _replicas(pod: Pod, adapter: str, scalers: Mapping[str, Scaler]) -> int:
    """The manifest's, or the fewest that what scales its adapter goes down to."""
    is_said = not pod.cursor["replicas"].is_absent
    return pod.replicas if is_said or adapter not in scalers else scalers[adapter].least


def _report_no_command(main: Cursor) -> None:
    """A script that starts nothing has its own problem already."""
    if main["command"].is_absent and main["args"].is_absent:
        main.problem("no command and no args: what it runs lies in the image", "name the command")


def _mounts_of(started: list[Started], launch: object) -> Mounts:
    """The files of the container that starts ``launch``."""
    return next((s.mounts for s in started if launch in s.launches), started[0].mounts)


def _settled(components: list[Component]) -> tuple[Component, ...]:
    has_prefill = any(c.role is Role.PREFILL for c in components)
    return tuple(replace(c, role=roles.settle(c, has_prefill=has_prefill)) for c in components)
