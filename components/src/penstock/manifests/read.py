"""Manifests → `Deployment`: every DynamoGraphDeployment of a text, with its ConfigMaps.

No process, network or clock is used. All problems of a text are raised together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.errors import ManifestError, Problem, ProblemKind
from penstock.manifests import roles
from penstock.manifests.configmaps import ConfigMaps, collect
from penstock.manifests.deployment import Component, Deployment, NoConfig, Role
from penstock.manifests.documents import Cursor, Document, parse
from penstock.manifests.engine_files import read_engine_config
from penstock.manifests.launches import Expanded, Mounts, Started, read_container
from penstock.manifests.other_objects import DGD, no_deployment
from penstock.manifests.placeholders import (
    Unfilled,
    report_placeholders,
    unfilled,
    without_consequences,
)
from penstock.manifests.pods import (
    V1ALPHA1,
    V1BETA1,
    Container,
    Pod,
    claim_templates,
    pod_gpus,
    pods,
)
from penstock.manifests.scalers import Scaler, adapter_name, scalers
from penstock.strict_yaml.places import node_at

MOST_COMPONENTS = 100  # and deployments, of a text; the operator accepts 25 of one
# The image or the operator decides what these run, not the manifest.
_WITHOUT_LAUNCH = (Role.EPP, Role.PLANNER, Role.OTHER)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One deployment with the objects from which it was read."""

    deployment: Deployment
    # The DynamoGraphDeployment object.
    root: Cursor
    # By the name of the component.
    pods: Mapping[str, Pod]
    # Every object of the text.
    documents: tuple[Cursor, ...]


def read_text(text: str, source: str, *, namespace: str = "default") -> tuple[Deployment, ...]:
    """Every DynamoGraphDeployment in ``text``; ``source`` names it in messages.

    Raises ManifestError with all problems of the text.
    """
    return tuple(m.deployment for m in read_manifests(text, source, namespace=namespace))


def read_manifests(text: str, source: str, *, namespace: str = "default") -> tuple[Manifest, ...]:
    """As `read_text`, with the objects from which each deployment was read."""
    manifests, problems = read_all(text, source, namespace=namespace)
    if problems:
        raise ManifestError(*problems)
    return manifests


def read_all(
    text: str, source: str, *, namespace: str = "default"
) -> tuple[tuple[Manifest, ...], tuple[Problem, ...]]:
    """As `read_manifests`, with the problems returned: then a manifest lacks values, components or
    objects. A value of the wrong type counts as absent."""
    documents, problems = parse(text, source)
    objects = tuple(_flat(documents))
    if _has_no_deployment(objects, problems, text):
        roots, listed = (list(map(Cursor.at_root, group)) for group in (objects, documents))
        return (), (
            no_deployment(roots, [cursor for cursor in listed if _is_list(cursor)], source),
        )
    manifests = _read(objects, namespace)
    return manifests, tuple(
        sorted(without_consequences(problems), key=lambda problem: problem.line or 0)
    )


def placeholders_of(text: str, source: str) -> tuple[Unfilled, ...]:
    """Every placeholder of a text, also those with which it can be read."""
    documents, _ = parse(text, source)
    roots = [Cursor.at_root(document) for document in _flat(documents)]
    return tuple(value for root in roots if _has_values(root) for value in unfilled(root))


@dataclass(frozen=True, kw_only=True)
class _Context:
    """The other documents of the text, to which a deployment may refer."""

    maps: ConfigMaps
    claims: Mapping[str, int]
    scalers: Mapping[str, Scaler]
    namespace: str
    # Counts for all deployments of the text.
    expanded: Expanded


def _read(objects: tuple[Document, ...], namespace: str) -> tuple[Manifest, ...]:
    roots = [Cursor.at_root(document) for document in objects]
    graphs = [root for root in roots if root.mapping().get("kind") == DGD]
    for root in roots:
        if _has_values(root):
            report_placeholders(root)
    context = _Context(
        maps=collect(objects, namespace),
        claims=claim_templates(objects),
        scalers=scalers(document.value for document in objects),
        namespace=namespace,
        expanded=Expanded(),
    )
    graphs = [] if _has_too_many(graphs) else graphs
    manifests = [_manifest(root, context, tuple(roots)) for root in graphs]
    return tuple(manifest for manifest in manifests if manifest is not None)


def _has_values(root: Cursor) -> bool:
    """Whether a deployment is read from the document."""
    return root["kind"].value in (DGD, "ConfigMap")


def _has_too_many(graphs: list[Cursor]) -> bool:
    """Whether the deployments or their components are more than checks take a second for; reports
    it."""
    if len(graphs) > MOST_COMPONENTS:
        graphs[MOST_COMPONENTS].problem(
            f"the file has {len(graphs)} {DGD}s; the limit is {MOST_COMPONENTS}", "Split the file."
        )
        return True
    total = 0
    for root in graphs:
        for key in ("services", "components"):
            listed = root.at("spec", key)
            total += len(listed.value) if isinstance(listed.value, (dict, list)) else 0
            if total > MOST_COMPONENTS:
                listed.problem(
                    f"the file has {total} components up to here; the limit is {MOST_COMPONENTS}",
                    "Split the file.",
                )
                return True
    return False


def _flat(documents: Iterable[Document]) -> Iterable[Document]:
    """`kubectl get -o yaml` wraps objects in a List; a List may contain Lists."""
    for document in documents:
        root = Cursor.at_root(document)
        if not _is_list(root):
            yield document
            continue
        for item in root["items"].items():
            object_ = replace(document, value=item.value, node=node_at(document.node, item.path))
            yield from _flat([_with_kind(object_, root)])


def _is_list(root: Cursor) -> bool:
    """Whether it is a List, or a list of one kind such as DynamoGraphDeploymentList."""
    kind = root["kind"].value
    return isinstance(kind, str) and kind.endswith("List") and "items" in root.mapping()


def _with_kind(item: Document, listed: Cursor) -> Document:
    """The API server leaves out the kind of each item of a list of one kind."""
    kind = str(listed["kind"].value).removesuffix("List")
    if not isinstance(item.value, dict) or "kind" in item.value or not kind:
        return item
    head = {"apiVersion": listed["apiVersion"].value, "kind": kind}
    return replace(item, value=head | item.value)


def _has_no_deployment(objects: tuple[Document, ...], problems: list[Problem], text: str) -> bool:
    """Whether there is none, also not after an error of syntax, or in a document that is no
    mapping. Other problems of such a file do not matter."""
    values = [document.value for document in objects]
    if any(not isinstance(root, dict) or root.get("kind") == DGD for root in values):
        return False
    return not problems or (bool(values) and DGD not in text)


def _manifest(root: Cursor, context: _Context, roots: tuple[Cursor, ...]) -> Manifest | None:
    api_version = root["apiVersion"].text()
    if api_version not in (V1BETA1, V1ALPHA1):
        message = "no apiVersion" if api_version is None else f"unknown apiVersion {api_version}"
        root["apiVersion"].problem(message, f"Set {V1BETA1} or {V1ALPHA1}.")
        return None
    name = root.at("metadata", "name").text()
    if not name:
        root["metadata"].problem("no metadata.name", "Set the name of the deployment.")
    namespace = root.at("metadata", "namespace").text() or context.namespace
    root["spec"].mapping()
    components_read = tuple(pods(root["spec"], api_version))
    components = [
        replace(
            _component(pod, replace(context, namespace=namespace)),
            replicas=_replicas(pod, adapter_name(name or "", pod.name), context.scalers),
        )
        for pod in components_read
    ]
    deployment = Deployment(
        name=name or "",
        namespace=namespace,
        api_version=api_version,
        components=_with_final_roles(components),
        source=root.document.source,
    )
    by_name = {pod.name: pod for pod in components_read}
    return Manifest(deployment=deployment, root=root, pods=by_name, documents=roots)


def _component(pod: Pod, context: _Context) -> Component:
    started = [
        read_container(pod, container, context.maps, context.namespace, context.expanded)
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
        _report_no_command(pod.containers[0])
    return Component(
        name=pod.name,
        role=role,
        replicas=pod.replicas,
        gpus=pod_gpus(pod, context.claims) * pod.nodes,
        nodes=pod.nodes,
        image=pod.image,
        launches=launches,
        engine=engine,
        engine_config=config,
        grace_s=pod.grace_s,
        place=pod.cursor.place,
    )


def _replicas(pod: Pod, adapter: str, scalers: Mapping[str, Scaler]) -> int:
    """The replicas in the manifest, or else the lower bound of the component's autoscaler."""
    is_set = not pod.cursor["replicas"].is_absent
    return pod.replicas if is_set or adapter not in scalers else scalers[adapter].min_replicas


def _report_no_command(container: Container) -> None:
    """Report a container whose file does not say what runs."""
    main = container.cursor
    if main["command"].is_absent and main["args"].is_absent:
        runs = (
            "the operator runs /bin/sh -c without a script, so the container exits"
            if container.defaults_to_shell
            else "only the image decides what runs"
        )
        main.problem(
            f"no command and no args: {runs}",
            "Set command and args, so that they can be checked.",
            ProblemKind.UNDECIDED,
        )


def _mounts_of(started: list[Started], launch: object) -> Mounts:
    """The files of the container that starts ``launch``."""
    return next((s.mounts for s in started if launch in s.launches), started[0].mounts)


def _with_final_roles(components: list[Component]) -> tuple[Component, ...]:
    has_prefill = any(c.role is Role.PREFILL for c in components)
    return tuple(replace(c, role=roles.final_role(c, has_prefill=has_prefill)) for c in components)
