"""Rules about paths in a container that neither its image nor a volume provides."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import replace

from penstock.checks.finding import Fix, Level, RuleResult
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
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location
from penstock.manifests.pods import Pod
from penstock.nearest import nearest
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

# Flags whose value is a folder with a model.
MODEL_FLAGS = ("--model-path", "--model", "--tokenizer", "--tokenizer-path", "--model-name-or-path")
DRAFT_KEYS = ("speculative-config.model", "speculative_config.speculative_model")
# Flags whose value is a file, with their variables (arguments of ai-dynamo 1.6.1).
FILE_FLAGS = {
    "--extra-engine-args": "DYN_TRTLLM_EXTRA_ENGINE_ARGS",
    "--custom-jinja-template": "",
    "--chat-template": "",
    "--disagg-config": "",
    "--config": "",
    "--router-policy-config": "DYN_ROUTER_POLICY_CONFIG",
    "--tls-cert-path": "DYN_TLS_CERT_PATH",
    "--tls-key-path": "DYN_TLS_KEY_PATH",
}
# From dynamo#3793, which no longer sends the files, to dynamo#9057, which also asks the hub.
CARD_OF_PATHS = Versions(dynamo=">=0.8,<1.2")
OPERATOR_VOLUMES = (
    *("shared-memory", "hf-cache", "epp-config", "topology-labels", "gms-shared"),
    *("gms-intrapod-control", "wait-leader-script", "checkpoint-storage", "snapshot-control"),
)


def _is_provided(process: Process, path: str) -> bool:
    """Whether the image, a volume or the launch may contain the path. Of an image that is not
    NVIDIA's, nothing is known."""
    launch = process.launch
    if not NVIDIA_IMAGE.match(process.image) or launch.shell or launch.unexpanded:
        return True
    at = posixpath.normpath(path)
    written = any(is_below(file, at) for file in launch.files)
    return written or is_below(at, *IMAGE_FOLDERS, *process.mount_paths)


def _model_paths(process: Process) -> Iterator[tuple[str, Location]]:
    for name in MODEL_FLAGS:
        if (found := process.text(name)) is not None and is_plain_path(found[0]):
            yield found


def _draft_paths(deployment: ServingDeployment) -> Iterator[tuple[Worker, str, str]]:
    for worker in deployment.workers:
        for key in DRAFT_KEYS:
            if isinstance(path := worker.get(key), str) and is_plain_path(path):
                yield worker, key, path


def model_in_no_volume(deployment: ServingDeployment) -> Iterable[RuleResult]:
    drafts = list(_draft_paths(deployment))
    for process in processes(deployment):
        found = list(_model_paths(process))
        found += [
            (path, worker.config_location(key))
            for worker, key, path in drafts
            if worker.launch is process.launch
        ]
        for path, location in dict.fromkeys(found):
            if not _is_provided(process, path):
                yield RuleResult(
                    location=location,
                    message=f"{path} is neither in the image nor in a volume of the container",
                    fix=Fix(text=f"Mount the volume with the model at {path} or above it."),
                )


def file_in_no_volume(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for process in processes(deployment):
        for name, variable in FILE_FLAGS.items():
            found = process.text(name, variable)
            if found is None or not is_plain_path(found[0]) or _is_provided(process, found[0]):
                continue
            yield RuleResult(
                location=found[1],
                message=f"{found[0]} is neither in the image nor in a volume of the container",
                fix=Fix(text=f"Mount the ConfigMap or volume that has {found[0]}."),
            )


def unreadable_card(deployment: ServingDeployment) -> Iterable[RuleResult]:
    paths = sorted(
        {
            posixpath.normpath(path)
            for worker in deployment.one_worker_per_component
            if is_plain_path(path := str(worker.value("model") or ""))
            and any(
                is_below(path, mount) for mount in mount_paths(worker.pod, worker.pod.containers[0])
            )
        }
    )
    for process in processes(deployment):
        if process.launch.module != "dynamo.frontend" or not paths:
            continue
        if process.launch.shell or not NVIDIA_IMAGE.match(process.image):
            continue
        if process.text("--model-path") is not None:
            continue
        missing = [path for path in paths if not is_below(path, *process.mount_paths)]
        if missing:
            name = str(process.container.cursor["name"].value or "main")
            yield RuleResult(
                location=_mounts_location(process, name),
                message=f"the workers load {missing[0]}, which is in no volume of the frontend "
                f"(container {name})",
                fix=Fix(text=f"Mount the volume with {missing[0]} in the container {name}."),
            )


def _mounts_location(process: Process, name: str) -> Location:
    if process.container.is_main:
        return process.location("field", "main")
    at = process.container.cursor.path
    return Location("", "manifest", at) if at else process.location("field", "main")


WITHOUT_CLAIMS, WITH_CLAIMS = Versions(operator="<1.2"), Versions(operator=">=1.2")
REFUSED = "The API server rejects the pods, because a mount needs a volume of that name."


def unknown_volume(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        pod = deployment.pods[component.name]
        names = _volumes(pod)
        for container in pod.containers:
            for index, mount in enumerate(mappings(container.cursor["volumeMounts"].value)):
                name = mount.get("name")
                if not isinstance(name, str) or name in names or _is_claim(deployment, name):
                    continue
                near = nearest(name, [one for one in names if one not in OPERATOR_VOLUMES])
                if not near and _is_mounted_by_main(pod, name):
                    continue  # a claim that exists only in the cluster
                path = (*container.cursor["volumeMounts"].path, index)
                result = RuleResult(
                    location=Location("", "manifest", path),
                    message=f"the pod has no volume {name}",
                    fix=Fix(text=f"Use {near}." if near else f"Declare the volume {name}."),
                )
                refused = replace(result, why=REFUSED, level=Level.ERROR)
                if _is_mounted_by_main(pod, name):
                    yield replace(refused, versions=WITHOUT_CLAIMS)
                    yield replace(result, versions=WITH_CLAIMS)
                else:
                    yield refused


def _volumes(pod: Pod) -> tuple[str, ...]:
    """The pod's volumes, and those that the operator adds (graph.go, component_epp.go)."""
    own = [str(volume.get("name")) for volume in mappings(pod.volumes.value)]
    own += [str(mount.get("name")) for mount in mappings(pod.mounted.value)]
    return (*own, *OPERATOR_VOLUMES)


def _is_mounted_by_main(pod: Pod, name: str) -> bool:
    mounts = mappings(pod.containers[0].cursor["volumeMounts"].value)
    return any(mount.get("name") == name for mount in mounts)


def _is_claim(deployment: ServingDeployment, name: str) -> bool:
    """Whether the file or v1alpha1's `pvcs` has a claim of that name."""
    declared = {str(one.get("name")) for one in mappings(deployment.spec.get("pvcs"))}
    return name in declared or any(
        root["kind"].value == "PersistentVolumeClaim" and root.at("metadata", "name").value == name
        for root in deployment.documents
    )
