"""v1alpha1 `services` and v1beta1 `components` as one type: a pod with its containers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.manifests.documents import Cursor, Document
from penstock.manifests.environment import EnvSources
from penstock.strict_yaml.kind import MOST_REPLICAS
from penstock.strict_yaml.places import value_at
from penstock.text.names import did_you_mean
from penstock.text.values import as_mapping

V1BETA1 = "nvidia.com/v1beta1"
V1ALPHA1 = "nvidia.com/v1alpha1"
# The enum of the v1beta1 CRD.
TYPES = ("frontend", "worker", "prefill", "decode", "planner", "epp")
_INCOMPLETE = (
    "Complete the component. If the file is a Kustomize patch, build the overlay and pass its "
    "output."
)


@dataclass(frozen=True, kw_only=True)
class Container:
    """One container of a pod."""

    cursor: Cursor
    env: EnvSources
    is_main: bool
    # Whether the operator sets `python3 -m dynamo.frontend` if there is no command.
    defaults_to_frontend: bool
    # Whether the operator sets `/bin/sh -c` if there is no command.
    defaults_to_shell: bool

    @property
    def command(self) -> tuple[str, ...]:
        """The command, or the operator's (GetBaseContainer in its component_*.go, since August
        2025); empty if the image decides."""
        if self.has_default_shell:
            return ("/bin/sh", "-c")
        written = self.cursor["command"].texts() or ()
        return tuple(written) or (("python3",) if self.defaults_to_frontend else ())

    @property
    def has_default_shell(self) -> bool:
        """Whether the args are the script of the operator's `/bin/sh -c`."""
        return self.defaults_to_shell and not self.cursor["command"].texts()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The args, or those of the operator's frontend."""
        written = self.cursor["args"].texts() or ()
        if written or self.cursor["command"].texts() or not self.defaults_to_frontend:
            return tuple(written)
        return ("-m", "dynamo.frontend")


@dataclass(frozen=True, kw_only=True)
class Pod:
    """One component of either API version."""

    name: str
    cursor: Cursor
    # `type` or `componentType`
    kind: str
    # `subComponentType`
    sub_kind: str
    image: str
    # The main container is the first.
    containers: tuple[Container, ...]
    volumes: Cursor
    # The component's own volumeMounts in v1alpha1: {name, mountPoint}.
    mounted: Cursor
    # The component's own resources in v1alpha1, besides those of its containers.
    resources: Cursor
    claims: Cursor
    grace_s: int
    replicas: int
    nodes: int

    @property
    def spec(self) -> Mapping[str, Any]:
        """The PodSpec, whichever API version it is written in; empty if the component has none."""
        return as_mapping(value_at(self.cursor.document.value, self.volumes.path[:-1]))

    @property
    def cpu(self) -> Any:
        """CPU that it requests as the file has it; the limit without a request, which Kubernetes
        uses then; None if neither is set."""
        for side in ("requests", "limits"):
            for resources in resources_of(self):
                if (amount := resources[side]["cpu"].value) is not None:
                    return amount
        return None


def resources_of(pod: Pod) -> tuple[Cursor, Cursor]:
    """The `resources` of the main container, and those of a v1alpha1 service."""
    return pod.containers[0].cursor["resources"], pod.resources


def pods(spec: Cursor, api_version: str) -> Iterator[Pod]:
    """The pods of a DynamoGraphDeployment's ``spec``; reports what is missing."""
    if api_version == V1ALPHA1:
        components = list(spec["services"].entries())
        key, other = "services", "components"
    else:
        components = _named_components(spec["components"])
        key, other = "components", "services"
    if not components:
        fix = f"Add them under spec.{key}, where {api_version} has them"
        if not spec[other].is_absent:
            fix += f"; spec.{other} belongs to the other version"
        spec.problem("no components", f"{fix}.")
    for name, cursor in components:
        read = _service if api_version == V1ALPHA1 else _component
        pod = read(name, cursor, spec)
        if pod is not None:
            yield pod


def _named_components(components: Cursor) -> list[tuple[str, Cursor]]:
    named: list[tuple[str, Cursor]] = []
    seen: set[str] = set()
    for component in components.items():
        component.mapping()
        name = component["name"].text()
        if not name:
            component.problem("a component without a name", "Set its name.")
        elif name.lower() in seen:
            component["name"].problem(
                f"duplicate component name {name}",
                "Rename one; names that differ only by case clash.",
            )
        else:
            seen.add(name.lower())
            named.append((name, component))
    return named


def _component(name: str, cursor: Cursor, spec: Cursor) -> Pod | None:
    pod_spec = cursor.at("podTemplate", "spec")
    listed = {c["name"].text(): c for c in pod_spec["containers"].items()}
    main = listed.pop("main", None)
    if main is None:
        cursor.problem("podTemplate.spec.containers has no container `main`", _INCOMPLETE)
        return None
    kind = cursor["type"].text() or ""
    if kind and kind not in TYPES:
        fix = did_you_mean(kind, TYPES) or f"Use one of {', '.join(TYPES)}."
        cursor["type"].problem(f"unknown component type {kind!r}", fix)
    sidecar = cursor["frontendSidecar"].text()
    if sidecar is not None and sidecar not in listed:
        names = ", ".join(map(str, listed)) or "none"
        cursor["frontendSidecar"].problem(
            f"the pod has no container {sidecar!r}", f"Use one of its containers: {names}."
        )
    containers = [_container(main, (spec["env"],), main_of=kind, frontend=kind == "frontend")]
    for container_name, container in listed.items():
        is_frontend = container_name == sidecar
        env = (spec["env"],) if is_frontend else ()
        containers.append(_container(container, env, frontend=is_frontend))
    return _pod(
        name,
        cursor,
        kind=kind,
        containers=tuple(containers),
        pod_spec=pod_spec,
        mounted=_absent(cursor),
        resources=_absent(cursor),
    )


def _service(name: str, cursor: Cursor, spec: Cursor) -> Pod | None:
    pod_spec = cursor["extraPodSpec"]
    main = pod_spec["mainContainer"]
    if not main.mapping():
        cursor.problem("no extraPodSpec.mainContainer, which has the image", _INCOMPLETE)
        return None
    kind = cursor["componentType"].text() or ""
    env = (spec["envs"], cursor["envs"])
    secret = (cursor["envFromSecret"],)
    is_frontend = kind == "frontend"
    containers = [_container(main, env, main_of=kind, frontend=is_frontend, secrets=secret)]
    for container in pod_spec["containers"].items():
        containers.append(_container(container, (), frontend=False))
    sidecar = cursor["frontendSidecar"]
    if sidecar.mapping():
        envs, secret = (spec["envs"], sidecar["envs"]), (sidecar["envFromSecret"],)
        containers.append(_container(sidecar, envs, frontend=True, secrets=secret))
    return _pod(
        name,
        cursor,
        kind=kind,
        containers=tuple(containers),
        pod_spec=pod_spec,
        mounted=cursor["volumeMounts"],
        resources=cursor["resources"],
    )


def _container(
    cursor: Cursor,
    env: tuple[Cursor, ...],
    *,
    main_of: str | None = None,
    frontend: bool,
    secrets: tuple[Cursor, ...] = (),
) -> Container:
    """``main_of``: the type of the component whose main container it is."""
    sources = EnvSources(env_from=cursor["envFrom"], env=(*env, cursor["env"]), secrets=secrets)
    return Container(
        cursor=cursor,
        env=sources,
        is_main=main_of is not None,
        defaults_to_frontend=frontend,
        # An endpoint picker's image has an entrypoint, which the operator keeps.
        defaults_to_shell=not frontend and main_of not in (None, "epp"),
    )


def _pod(
    name: str,
    cursor: Cursor,
    *,
    kind: str,
    containers: tuple[Container, ...],
    pod_spec: Cursor,
    mounted: Cursor,
    resources: Cursor,
) -> Pod:
    replicas = cursor["replicas"].count(most=MOST_REPLICAS)
    grace = pod_spec["terminationGracePeriodSeconds"].count()
    image = containers[0].cursor["image"].text()
    if not image:
        containers[0].cursor.problem("no image", _INCOMPLETE)
    return Pod(
        name=name,
        cursor=cursor,
        kind=kind,
        sub_kind=cursor["subComponentType"].text() or "",
        image=image or "",
        containers=containers,
        volumes=pod_spec["volumes"],
        mounted=mounted,
        resources=resources,
        claims=pod_spec["resourceClaims"],
        grace_s=60 if grace is None else grace,
        replicas=1 if replicas is None else replicas,
        nodes=_nodes(cursor["multinode"]),
    )


def _nodes(multinode: Cursor) -> int:
    """`nodeCount` defaults to 2 if `multinode` is set at all (DGD CRD)."""
    if multinode.is_absent:
        return 1
    multinode.mapping()
    count = multinode["nodeCount"].count(least=1, most=MOST_REPLICAS)
    return 2 if count is None else count


def _absent(cursor: Cursor) -> Cursor:
    return Cursor(cursor.document, None, cursor.path)


# nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.10gb, amd.com/gpu, gpu.intel.com/xe,
# habana.ai/gaudi; not nvidia.com/gpumem and similar, which count memory.
_GPU = re.compile(
    r"(nvidia\.com/(gpu|gpu\.shared|mig-.*)|amd\.com/gpu|gpu\.intel\.com/(i915|xe)|habana\.ai/gaudi)"
)
_GPU_CLASS = re.compile(r"(^|[.-])gpu([.-]|$)")


def pod_gpus(pod: Pod, templates: Mapping[str, int]) -> int:
    """GPUs of one pod, which is one node of the component; limits win over requests."""
    total = _own(pod.resources)
    in_containers = sum(_extended(c.cursor["resources"]) for c in pod.containers)
    # v1alpha1 may give the same number twice: for the component and for its container.
    total = max(total, in_containers)
    return total + _claimed(pod, templates)


def _own(resources: Cursor) -> int:
    """`resources` of v1alpha1: the key `gpu`, and `custom` for everything else."""
    for side in ("limits", "requests"):
        amounts = resources[side]
        gpus = _amount(amounts["gpu"]) + _sum(amounts["custom"])
        if gpus:
            return gpus
    return 0


def _extended(resources: Cursor) -> int:
    return _sum(resources["limits"]) or _sum(resources["requests"])


def _sum(amounts: Cursor) -> int:
    return sum(_amount(amount) for key, amount in amounts.entries() if _GPU.fullmatch(key))


def _amount(amount: Cursor) -> int:
    count = amount.value
    if isinstance(count, str) and count.isdigit():
        return int(count)
    if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
        return count
    if not amount.is_absent:
        amount.problem(f"must be an integer, got {count!r}", "Write the number of GPUs.")
    return 0


def claim_templates(documents: tuple[Document, ...]) -> dict[str, int]:
    """GPUs that each ResourceClaimTemplate of the file requests, 0 for one without GPUs."""
    gpus_by_template = {}
    for document in documents:
        root = Cursor.at_root(document)
        if root["kind"].value == "ResourceClaimTemplate":
            name = root.at("metadata", "name").text() or ""
            requests = root.at("spec", "spec", "devices", "requests")
            gpus_by_template[name] = sum(_requested(request) for request in requests.items())
    return gpus_by_template


def _requested(request: Cursor) -> int:
    """GPUs of one DRA request: v1 has it under `exactly`, v1beta1 does not; the default is 1."""
    exactly = request["exactly"] if not request["exactly"].is_absent else request
    device_class = exactly["deviceClassName"].text() or ""
    if not _GPU_CLASS.search(device_class):
        return 0
    count = exactly["count"].count()
    return 1 if count is None else count


def _claimed(pod: Pod, templates: Mapping[str, int]) -> int:
    names = [claim["resourceClaimTemplateName"].text() for claim in pod.claims.items()]
    return sum(templates.get(name or "", 0) for name in names)
