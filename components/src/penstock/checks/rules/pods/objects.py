"""Objects of the file that pods use, and the paths that images and mounts provide."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.checks.rules.containers import (
    IMAGE_FOLDERS,
    NVIDIA_IMAGE,
    Process,
    is_below,
    is_plain_path,
    mappings,
    mount_paths,
    processes,
)
from penstock.checks.rules.pods.pod_containers import containers_of, indexed
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location, Path
from penstock.manifests.documents import Cursor
from penstock.manifests.other_objects import DGD
from penstock.manifests.pods import Container, Pod
from penstock.serving.deployment import ServingDeployment
from penstock.text.names import nearest, nearest_name
from penstock.text.values import as_mapping

SEVERAL_NODES = {"ReadWriteMany", "ReadOnlyMany"}
# Kind of an object that starts equal pods → the key of their number.
NUMBERS_OF_PODS = {
    **dict.fromkeys(("Deployment", "StatefulSet", "ReplicaSet"), "replicas"),
    "Job": "parallelism",
}
# Field that names an object → its key with the name, and the kind of the object.
REFERENCES = {
    "configMap": ("name", "ConfigMap"),
    "configMapRef": ("name", "ConfigMap"),
    "configMapKeyRef": ("name", "ConfigMap"),
    "secret": ("secretName", "Secret"),
    "secretRef": ("name", "Secret"),
    "secretKeyRef": ("name", "Secret"),
    "persistentVolumeClaim": ("claimName", "PersistentVolumeClaim"),
}
SIMILAR = 0.8
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")  # the id of a model on the hub


def may_share_namespace(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether both may be in one namespace: `kubectl apply -n` sets that of an object without."""
    names = [as_mapping(each.get("metadata")).get("namespace") for each in (first, second)]
    return None in names or names[0] == names[1]


def near_objects(deployment: ServingDeployment) -> Iterator[tuple[int, str, str]]:
    """(index, kind, name) of the documents that may be in the deployment's namespace."""
    for index, root in enumerate(deployment.documents):
        if may_share_namespace(as_mapping(root.value), as_mapping(deployment.root.value)):
            yield index, str(root["kind"].value), str(root.at("metadata", "name").value)


def shared_claims(deployment: ServingDeployment) -> Iterator[tuple[str, list[Any], int, Location]]:
    """(name, access modes, pods, first place of the deployment) of each claim for one node that
    several pods of the file mount. Of several graphs, only the first one has the claim."""
    objects = [root.value for root in deployment.documents if isinstance(root.value, Mapping)]
    started = [
        (document, count, mounted_claims(spec, mounted))
        for document in objects
        for spec, count, mounted in _pods(document, deployment)
        if "kubernetes.io/hostname" not in as_mapping(spec.get("nodeSelector"))  # on one node
    ]
    for volume in objects:
        modes = as_mapping(volume.get("spec")).get("accessModes")
        if volume.get("kind") != "PersistentVolumeClaim" or not isinstance(modes, list):
            continue
        claim = str(as_mapping(volume.get("metadata")).get("name"))
        mounting = [
            (document, count)
            for document, count, claims in started
            if claim in claims and may_share_namespace(document, volume)
        ]
        graphs = [document for document, _ in mounting if document.get("kind") == DGD]
        # A Job may release its volumes before other pods start.
        lasting = sum(count for document, count in mounting if document.get("kind") != "Job")
        is_for_one = not SEVERAL_NODES & {str(mode) for mode in modes}
        if is_for_one and lasting > 1 and graphs and graphs[0] is deployment.root.value:
            if (place := _place(deployment, claim)) is not None:
                yield claim, modes, sum(count for _, count in mounting), place


def _place(deployment: ServingDeployment, claim: str) -> Location | None:
    for name, pod in ((c.name, deployment.pods[c.name]) for c in deployment.components):
        for index, mount in indexed(pod.mounted.value):
            if mount.get("name") == claim:
                return Location(name, "field", ("volumeMounts", index))
        if claim in mounted_claims(pod.spec, None):
            return Location(name, "field", ("pod", "volumes"))
    return None


def _pods(
    document: Mapping[str, Any], deployment: ServingDeployment
) -> Iterator[tuple[Mapping[str, Any], int, Any]]:
    """(PodSpec, pods, `volumeMounts` of a v1alpha1 service) of what an object starts."""
    if document is deployment.root.value:
        for component in deployment.components:  # their replicas are those after scaling
            pod = deployment.pods[component.name]
            yield pod.spec, component.replicas * component.nodes, pod.mounted.value
        return
    spec, kind = as_mapping(document.get("spec")), str(document.get("kind"))
    if kind == DGD:
        listed = [*as_mapping(spec.get("services")).values()]
        for part in (*mappings(listed), *mappings(spec.get("components"))):
            pod_spec = as_mapping(as_mapping(part.get("podTemplate")).get("spec"))
            count = _count(part.get("replicas")) * _nodes(part)
            yield as_mapping(part.get("extraPodSpec")) or pod_spec, count, part.get("volumeMounts")
    elif kind == "Pod":
        yield spec, 1, None
    elif kind in NUMBERS_OF_PODS:
        template = as_mapping(as_mapping(spec.get("template")).get("spec"))
        yield template, _count(spec.get(NUMBERS_OF_PODS[kind])), None


def _nodes(component: Mapping[str, Any]) -> int:
    """`nodeCount` defaults to 2 if `multinode` is set at all (DGD CRD)."""
    multinode = component.get("multinode")
    return 1 if multinode is None else _count(as_mapping(multinode).get("nodeCount"), unset=2)


def _count(count: object, unset: int = 1) -> int:
    return count if isinstance(count, int) else unset


def mounted_claims(spec: Mapping[str, Any], mounted: object) -> list[str]:
    """The claims in a PodSpec, and in the ``volumeMounts`` of a v1alpha1 service."""
    sources = (volume.get("persistentVolumeClaim") for volume in mappings(spec.get("volumes")))
    names = [as_mapping(source).get("claimName") for source in sources]
    names += [mount.get("name") for mount in mappings(mounted)]
    return [name for name in names if isinstance(name, str)]


def has_cache(pod: Pod) -> bool:
    """Whether a volume may contain the model."""
    kinds = {kind for volume in mappings(pod.volumes.value) for kind in volume}
    claims = mounted_claims(pod.spec, pod.mounted.value)
    return bool(claims) or not kinds.isdisjoint(("hostPath", "nfs", "csi"))


def misspelled_objects(deployment: ServingDeployment) -> Iterator[tuple[str, str, str, Location]]:
    """(kind, name, name in the file, place) of each object that a pod names and the file does not
    have, if it has one of a similar name that nothing uses."""
    objects = {(kind, name) for _, kind, name in near_objects(deployment)}
    used: set[str] = set()
    for component in deployment.components:
        cursor = deployment.pods[component.name].cursor
        seen = set(objects)
        for path, kind, name in _references(cursor):
            names = {written for of, written in objects if of == kind}
            if (kind, name) in seen or not names:
                continue
            seen.add((kind, name))
            used = used or {
                text
                for root in deployment.documents
                for at, text in _walk(root.value, ())
                if isinstance(text, str) and at[-2:] != ("metadata", "name")
            }
            if near := nearest_name(name, sorted(names - used), SIMILAR):
                yield kind, name, near, Location("", "manifest", path)


def _references(cursor: Cursor) -> Iterator[tuple[Path, str, str]]:
    """(path, kind, name) of each object that must exist."""
    for path, node in _walk(cursor.value, cursor.path):
        if path[-1] in REFERENCES and isinstance(node, Mapping) and not node.get("optional"):
            key, kind = REFERENCES[str(path[-1])]
            name = node.get(key)
            # Other texts are placeholders of a template.
            if isinstance(name, str) and name.replace("-", "").replace(".", "").isalnum():
                yield (*path, key), kind, name


def _walk(node: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """(path, value) of a value and of all those in it."""
    yield path, node
    steps = enumerate(node) if isinstance(node, list) else as_mapping(node).items()
    for step, inner in steps:
        yield from _walk(inner, (*path, step))


def services_of(deployment: ServingDeployment) -> Mapping[str, Location]:
    """The name and place of each Service of the file and of the operator, which has one for each
    component. A headless Service sets no variables."""
    at = Location("", "manifest", ("metadata", "name"))
    services = {f"{deployment.name}-{c.name}".lower(): at for c in reversed(deployment.components)}
    for index, kind, name in reversed([*near_objects(deployment)]):
        spec = deployment.documents[index]["spec"]
        is_headless = spec["clusterIP"].value == "None"
        is_external = spec["type"].value == "ExternalName"
        if kind == "Service" and not is_headless and not is_external:
            services[name] = Location("", "document", (index, "metadata", "name"))
    return services


# Flags whose value is a folder with a model.
MODEL_FLAGS = ("--model-path", "--model", "--tokenizer", "--tokenizer-path", "--model-name-or-path")
DRAFT_KEYS = ("speculative-config.model", "speculative_config.speculative_model")
# Flags whose value is a file, with their variables (arguments of ai-dynamo 1.6.1).
FILE_FLAGS = {
    "--extra-engine-args": "DYN_TRTLLM_EXTRA_ENGINE_ARGS",
    **dict.fromkeys(("--custom-jinja-template", "--chat-template"), ""),
    **dict.fromkeys(("--disagg-config", "--config"), ""),
    "--router-policy-config": "DYN_ROUTER_POLICY_CONFIG",
    "--tls-cert-path": "DYN_TLS_CERT_PATH",
    "--tls-key-path": "DYN_TLS_KEY_PATH",
}
OPERATOR_VOLUMES = (
    *("shared-memory", "hf-cache", "epp-config", "topology-labels", "gms-shared"),
    *("gms-intrapod-control", "wait-leader-script", "checkpoint-storage", "snapshot-control"),
)
# Whether the operator assumes a claim for a mount without a volume.
WITHOUT_CLAIMS, WITH_CLAIMS = Versions(operator="<1.2"), Versions(operator=">=1.2")
# Python, the dynamic linker and bash run code from the paths in these variables.
CODE_VARIABLES = (
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"),
    *("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "BASH_ENV"),
)
# Python runs these at every start, wherever they are on its path.
STARTUP_FILES = ("sitecustomize.py", "usercustomize.py")
PACKAGES = {"site-packages", "dist-packages"}


def is_provided(process: Process, path: str) -> bool:
    """Whether the image, a volume or the launch may contain the path. Of an image that is not
    NVIDIA's, nothing is known."""
    launch = process.launch
    if not NVIDIA_IMAGE.match(process.image) or launch.shell or launch.unexpanded:
        return True
    is_written = any(is_below(file, posixpath.normpath(path)) for file in launch.files)
    return is_written or is_below(path, *IMAGE_FOLDERS, *process.mount_paths)


def model_paths(deployment: ServingDeployment, process: Process) -> Iterator[tuple[str, Location]]:
    """(path, place) of each model, tokenizer and draft model that a process gets as a path."""
    named = [text for name in MODEL_FLAGS if (text := process.text(name)) is not None]
    for worker in deployment.workers:
        if worker.launch is process.launch:
            drafts = [(worker.get(key), worker.config_location(key)) for key in DRAFT_KEYS]
            named += [(path, place) for path, place in drafts if isinstance(path, str)]
    return ((path, place) for path, place in dict.fromkeys(named) if is_plain_path(path))


def flag_files(process: Process) -> Iterator[tuple[str, Location]]:
    """(path, place) of each of `FILE_FLAGS`."""
    texts = (process.text(name, variable) for name, variable in FILE_FLAGS.items())
    return (text for text in texts if text is not None and is_plain_path(text[0]))


def mounted_models(deployment: ServingDeployment) -> list[str]:
    """The paths below mounts from which the workers load the model."""
    paths = {
        posixpath.normpath(path)
        for worker in deployment.one_worker_per_component
        if is_plain_path(path := str(worker.value("model") or ""))
        and is_below(path, *mount_paths(worker.pod, worker.pod.containers[0]))
    }
    return sorted(paths)


def unknown_mounts(deployment: ServingDeployment) -> Iterator[tuple[str, str, Location, bool]]:
    """(name, volume of a similar name, place, whether the main container has it) of each mount of
    a volume that the pod does not have. Claims that exist only in the cluster are left out."""
    claims = [entry.get("name") for entry in mappings(deployment.spec.get("pvcs"))]
    for root in deployment.documents:
        if root["kind"].value == "PersistentVolumeClaim":
            claims.append(root.at("metadata", "name").value)
    for container in containers_of(deployment):
        pod, mounts = container.pod, container.cursor["volumeMounts"]
        listed = (*mappings(pod.volumes.value), *mappings(pod.mounted.value))
        volumes = [str(volume.get("name")) for volume in listed]
        known = (*volumes, *OPERATOR_VOLUMES, *claims)
        of_main = mappings(pod.containers[0].cursor["volumeMounts"].value)
        names_of_main = [mount.get("name") for mount in of_main]
        for index, mount in indexed(mounts.value):
            name = mount.get("name")
            if isinstance(name, str) and name not in known:
                near = nearest(name, [n for n in volumes if n not in OPERATOR_VOLUMES])
                if near or name not in names_of_main:
                    place = Location("", "manifest", (*mounts.path, index))
                    yield name, near, place, name in names_of_main


@dataclass(frozen=True, kw_only=True)
class ConfigMapMount:
    """A mount of a ConfigMap whose content the file has."""

    name: str
    folder: str
    sub_path: str
    # The paths of its files below the volume.
    files: tuple[str, ...]
    location: Location

    def has(self, path: str) -> bool:
        """Whether it has a file or folder at a path of the container."""
        inner = posixpath.relpath(path, self.folder)
        at = posixpath.normpath(posixpath.join(self.sub_path, inner))
        return at == "." or any(is_below(file, at) for file in self.files)


def missing_files(
    deployment: ServingDeployment,
) -> Iterator[tuple[ConfigMapMount, str, Location, str]]:
    """(mount, key, place, flag) of each key that a mount or a process names and that its ConfigMap
    does not have. The flag is empty if none names it."""
    keys = {
        name: tuple(
            str(key)
            for part in ("data", "binaryData")
            for key in as_mapping(deployment.documents[index][part].value)
        )
        for index, kind, name in near_objects(deployment)
        if kind == "ConfigMap"
    }
    for container in containers_of(deployment) if keys else ():
        for mount in _config_map_mounts(container.pod, container.container, keys):
            if mount.sub_path and not mount.has(mount.folder):
                yield mount, mount.sub_path, mount.location, ""
    for process in processes(deployment) if keys else ():
        mounts = tuple(_config_map_mounts(process.pod, process.container, keys))
        reported = {*process.launch.files}
        for path, location, flag in _named_files(process):
            at = posixpath.normpath(path)
            above = [folder for folder in process.mount_paths if is_below(at, folder)]
            deepest = max(above, key=len, default="")
            lacking = [m for m in mounts if m.folder == deepest and not m.has(at)]
            if lacking and not lacking[0].sub_path and at not in reported:
                reported.add(at)
                yield lacking[0], posixpath.relpath(at, lacking[0].folder), location, flag


def _named_files(process: Process) -> Iterator[tuple[str, Location, str]]:
    """(path, place, flag) of each file that a process names; the flag is empty if none names it."""
    for argument in process.flags:
        if argument.text is not None and is_plain_path(argument.text):
            yield argument.text, process.location("args", argument.spelling), argument.spelling
    yield from ((path, location, "") for path, location in flag_files(process))
    for word in process.launch.argv:
        if is_plain_path(word):
            yield word, process.location("args", word), ""


def _config_map_mounts(
    pod: Pod, container: Container, keys: Mapping[str, tuple[str, ...]]
) -> Iterator[ConfigMapMount]:
    volumes = {str(volume.get("name")): volume for volume in mappings(pod.volumes.value)}
    mounts = container.cursor["volumeMounts"]
    for index, mount in indexed(mounts.value):
        source = as_mapping(volumes.get(str(mount.get("name")), {}).get("configMap"))
        name, folder = str(source.get("name")), mount.get("mountPath")
        if name in keys and isinstance(folder, str) and "subPathExpr" not in mount:
            paths = [str(entry.get("path")) for entry in mappings(source.get("items"))]
            yield ConfigMapMount(
                name=name,
                folder=posixpath.normpath(folder),
                sub_path=str(mount.get("subPath") or ""),
                files=tuple(paths) or keys[name],
                location=Location("", "manifest", (*mounts.path, index)),
            )


def mounted_code(deployment: ServingDeployment) -> Iterator[tuple[str, str, str]]:
    """(component, variable, path) of code in ConfigMaps and Secrets that the variable loads. If it
    is empty, Python loads the path itself."""
    for component in deployment.components:
        folders = _code_folders(deployment.pods[component.name])
        for launch in component.launches:
            for variable in CODE_VARIABLES:
                for path in re.split("[: ]", launch.env.get(variable, "")):
                    if path and is_below(path, *folders):
                        yield component.name, variable, path
            for path in launch.files:
                *parents, name = path.split("/")
                if name in STARTUP_FILES or PACKAGES & {*parents}:
                    yield component.name, "", path


def _code_folders(pod: Pod) -> list[str]:
    """Where the main container, which runs the launches, mounts ConfigMaps and Secrets."""
    sources = [
        volume.get("name")
        for volume in mappings(pod.volumes.value)
        if any(volume.get(kind) is not None for kind in ("configMap", "secret", "projected"))
    ]
    mounts = mappings(pod.containers[0].cursor["volumeMounts"].value)
    paths = [mount.get("mountPath") for mount in mounts if mount.get("name") in sources]
    return [posixpath.normpath(path) for path in paths if isinstance(path, str) and path]
