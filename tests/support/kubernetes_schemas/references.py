"""Check references between the objects of a chart: names must exist, selectors must match pods.

`set_problems` takes all objects of a release, custom resources included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.kubernetes_schemas.builtin import Manifest, title
from tests.support.kubernetes_schemas.every_field import matches
from tests.support.kubernetes_schemas.pods import Template, templates
from tests.support.kubernetes_schemas.syntax import Problem, under

POD_VOLUMES = {
    # volume source → (kind, field with its name)
    "configMap": ("ConfigMap", "name"),
    "secret": ("Secret", "secretName"),
    "persistentVolumeClaim": ("PersistentVolumeClaim", "claimName"),
}
REFS = {"configMap": "ConfigMap", "secret": "Secret"}
NEEDS_PODS = ("NetworkPolicy", "PodDisruptionBudget", "Service")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A reference to another object."""

    place: str
    kind: str
    name: str
    # Keys that the ConfigMap or Secret must have.
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Release:
    """All objects of a release by namespace, kind and name; ``pods``: labels of other pods."""

    manifests: Sequence[Manifest]
    externals: frozenset[str]
    pods: Sequence[Mapping[str, str]]
    namespace: str
    objects: dict[tuple[str, str, str], Manifest] = field(default_factory=dict)

    def namespace_of(self, manifest: Manifest) -> str:
        return str((manifest.get("metadata") or {}).get("namespace") or self.namespace)


def set_problems(
    manifests: Iterable[Manifest],
    *,
    externals: Iterable[str] = (),
    pods: Sequence[Mapping[str, str]] = (),
    namespace: str = "default",
) -> list[str]:
    """`Kind/name place: message` for each problem between the objects.

    ``externals``: objects that the release expects to exist, such as `Secret/hf-token`; ``pods``:
    labels of pods that an operator creates for a custom resource of the release.
    """
    release = Release(
        manifests=list(manifests), externals=frozenset(externals), pods=pods, namespace=namespace
    )
    messages = []
    for manifest in release.manifests:
        name = (manifest.get("metadata") or {}).get("name")
        key = (release.namespace_of(manifest), str(manifest.get("kind")), str(name))
        if key in release.objects:
            messages.append(f"{title(manifest)} metadata.name: second object of this name")
        release.objects[key] = manifest
    for manifest in release.manifests:
        problems = {*_unresolved(manifest, release), *_selects_nothing(manifest, release)}
        messages += [f"{title(manifest)} {place}: {message}" for place, message in sorted(problems)]
    return messages


def _unresolved(manifest: Manifest, release: Release) -> Iterator[Problem]:
    for reference in references(manifest):
        target_name = f"{reference.kind}/{reference.name}"
        if target_name in release.externals:
            continue
        key = (release.namespace_of(manifest), reference.kind, reference.name)
        target = release.objects.get(key)
        if target is None:
            yield (
                reference.place,
                f"{target_name} is neither in the release nor among the externals",
            )
            continue
        data = {*_mapping(target, "data"), *_mapping(target, "stringData")}
        for name in reference.keys:
            if name not in data | {*_mapping(target, "binaryData")}:
                yield reference.place, f"{target_name} has no key {name!r}"


def references(manifest: Manifest) -> Iterator[Reference]:
    """Every ConfigMap, Secret, claim, ServiceAccount or Role that must exist."""
    for template in templates(manifest):
        yield from _of_pod(template)
    kind, spec = manifest.get("kind"), _mapping(manifest, "spec")
    if kind == "DynamoGraphDeployment":
        yield from _of_graph(spec)
    if kind == "RoleBinding":
        yield from _of_binding(manifest)
    if kind == "Ingress":
        for index, tls in enumerate(spec.get("tls") or ()):
            if tls.get("secretName"):
                place = under("spec", "tls", index)
                yield Reference(place=place, kind="Secret", name=tls["secretName"])
    if kind in ("HorizontalPodAutoscaler", "ScaledObject"):
        target = _mapping(spec, "scaleTargetRef")
        place = "spec.scaleTargetRef"
        yield Reference(place=place, kind=str(target["kind"]), name=str(target["name"]))
    if kind == "SecurityPolicy":
        for index, key in enumerate(_mapping(spec, "apiKeyAuth").get("credentialRefs") or ()):
            place = under("spec.apiKeyAuth.credentialRefs", index)
            yield Reference(place=place, kind="Secret", name=key["name"])
    if kind == "ServiceAccount":
        for index, secret in enumerate(manifest.get("imagePullSecrets") or ()):
            place = under("imagePullSecrets", index)
            yield Reference(place=place, kind="Secret", name=secret["name"])


def _of_graph(spec: Mapping[str, Any]) -> Iterator[Reference]:
    """References of a v1beta1 graph outside of its pod templates."""
    yield from _of_environment(spec, "spec")
    for index, component in enumerate(spec.get("components") or ()):
        place = under("spec.components", index)
        claim = _mapping(component, "compilationCache").get("pvcName")
        if claim:
            where = under(place, "compilationCache", "pvcName")
            yield Reference(place=where, kind="PersistentVolumeClaim", name=claim)
        config = _mapping(_mapping(component, "eppConfig"), "configMapRef")
        if config and not config.get("optional"):
            where, keys = under(place, "eppConfig", "configMapRef"), (config["key"],)
            yield Reference(place=where, kind="ConfigMap", name=config["name"], keys=keys)


def _of_binding(manifest: Manifest) -> Iterator[Reference]:
    role = manifest["roleRef"]
    if role["kind"] == "Role":
        yield Reference(place="roleRef", kind="Role", name=role["name"])
    namespace = (manifest.get("metadata") or {}).get("namespace")
    for index, subject in enumerate(manifest.get("subjects") or ()):
        here = subject.get("namespace") in (None, namespace)
        if subject["kind"] == "ServiceAccount" and here and subject["name"] != "default":
            place = under("subjects", index)
            yield Reference(place=place, kind="ServiceAccount", name=subject["name"])


def _of_pod(template: Template) -> Iterator[Reference]:
    base = under(template.place, "spec")
    account = template.spec.get("serviceAccountName")
    if account and account != "default":
        place = under(base, "serviceAccountName")
        yield Reference(place=place, kind="ServiceAccount", name=account)
    for index, secret in enumerate(template.spec.get("imagePullSecrets") or ()):
        place = under(base, "imagePullSecrets", index)
        yield Reference(place=place, kind="Secret", name=secret["name"])
    for index, volume in enumerate(template.spec.get("volumes") or ()):
        yield from _of_volume(volume, under(base, "volumes", index))
    for place, container in template.containers:
        yield from _of_environment(container, place)


def _of_volume(volume: Mapping[str, Any], place: str) -> Iterator[Reference]:
    sources = [(volume, place)]
    for index, part in enumerate((volume.get("projected") or {}).get("sources") or ()):
        sources.append((part, under(place, "projected", "sources", index)))
    for source, where in sources:
        for key, (kind, name_field) in POD_VOLUMES.items():
            ref = source.get(key)
            if ref and not ref.get("optional"):
                keys = tuple(item["key"] for item in ref.get("items") or ())
                name = ref.get(name_field) or ref.get("name")  # a projected Secret has `name`
                yield Reference(place=under(where, key), kind=kind, name=str(name), keys=keys)


def _of_environment(container: Mapping[str, Any], place: str) -> Iterator[Reference]:
    for index, entry in enumerate(container.get("env") or ()):
        for source, kind in REFS.items():
            ref = (entry.get("valueFrom") or {}).get(f"{source}KeyRef")
            if ref and not ref.get("optional"):
                where = under(place, "env", index)
                yield Reference(place=where, kind=kind, name=ref["name"], keys=(ref["key"],))
    for index, entry in enumerate(container.get("envFrom") or ()):
        for source, kind in REFS.items():
            ref = entry.get(f"{source}Ref")
            if ref and not ref.get("optional"):
                where = under(place, "envFrom", index)
                yield Reference(place=where, kind=kind, name=ref["name"])


def _selects_nothing(manifest: Manifest, release: Release) -> Iterator[Problem]:
    kind, spec = manifest.get("kind"), _mapping(manifest, "spec")
    if kind not in NEEDS_PODS:
        return
    field_name = "podSelector" if kind == "NetworkPolicy" else "selector"
    selector = spec.get(field_name)
    if selector is None or (kind == "Service" and not selector):
        return  # a Service or a budget without a selector
    if kind == "Service":
        selector = {"matchLabels": selector}
    place = under("spec", field_name)
    chosen = [t for t in _pods(manifest, release) if matches(selector, t.labels)]
    foreign = any(matches(selector, labels) for labels in release.pods)
    if not chosen and not foreign:
        yield place, "matches no pod of the release"
    elif kind == "Service" and not foreign:
        yield from _target_ports(spec, chosen)


def _pods(manifest: Manifest, release: Release) -> Iterator[Template]:
    """The pod templates in the same namespace."""
    for other in release.manifests:
        if release.namespace_of(other) == release.namespace_of(manifest):
            yield from templates(other)


def _target_ports(spec: Mapping[str, Any], chosen: Sequence[Template]) -> Iterator[Problem]:
    known = {
        port.get("name")
        for template in chosen
        for _, container in template.containers
        for port in container.get("ports") or ()
    }
    for index, port in enumerate(spec.get("ports") or ()):
        target = port.get("targetPort")
        if isinstance(target, str) and target not in known:
            yield under("spec.ports", index), f"no pod behind it has a port {target!r}"


def _mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, Mapping) else {}
