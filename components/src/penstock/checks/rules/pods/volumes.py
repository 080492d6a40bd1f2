"""Rules of volumes and secrets: where the model lies, and who may read what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.pods.pod_template import one_each
from penstock.engines.settings import Location
from penstock.manifests.deployment import Component
from penstock.manifests.pods import V1ALPHA1, Pod
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import WORKERS
from penstock.strict_yaml.places import looks_secret

URL = re.compile(r"://[^/\s@]+:[^/\s@]+@")  # with a name and a password
SECRET_VALUE = re.compile(r"^(hf_[A-Za-z0-9]{20,}|nvapi-[\w-]{20,}|sk-[\w-]{20,}|ghp_\w{20,})$")


@rule(
    id="PS710",
    title="a secret in the manifest",
    level=Level.WARNING,
    cause="A token stands as a plain value of a variable, or of a trigger of KEDA's.",
    effect="It is in Git, in `kubectl get`, and in every log of the manifest.",
    remedy="Take it from a Secret.",
    source="Kubernetes, secrets; dynamo#14078",
)
def secret_in_plain(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        for container in deployment.pods[component.name].containers:
            for entries in container.env.env:
                for entry in entries.value if isinstance(entries.value, list) else []:
                    if not isinstance(entry, dict) or not isinstance(entry.get("value"), str):
                        continue
                    name, value = str(entry.get("name")), entry["value"]
                    if _is_credential(value) or (looks_secret(name) and _is_secret(name, value)):
                        yield RuleResult(
                            location=Location(component.name, "env", (name,)),
                            message=f"{name} stands in the manifest",
                            fix=_from_secret(name, value),
                        )
    yield from _in_triggers(deployment)


def _in_triggers(deployment: ServingDeployment) -> Iterator[RuleResult]:
    """KEDA takes credentials from a TriggerAuthentication; metadata is for all to read."""
    for index, root in enumerate(deployment.documents):
        triggers = root["spec"]["triggers"].value if root["kind"].value == "ScaledObject" else None
        target = str(root.at("spec", "scaleTargetRef", "name").value)
        for trigger in triggers if isinstance(triggers, list) else ():
            metadata = trigger.get("metadata") if isinstance(trigger, dict) else None
            for key, value in metadata.items() if isinstance(metadata, dict) else ():
                if not (looks_secret(_snake(key)) or _is_credential(str(value))):
                    continue
                components = deployment.components
                names = [c.name for c in components if target.endswith(f"-{c.name}")]
                yield RuleResult(
                    location=Location(names[0], "field", ("scalingAdapter",))
                    if names
                    else Location("", "document", (index, "spec", "triggers")),
                    message=f"{key} of a trigger stands in the manifest",
                    fix=Fix(text="take it from a TriggerAuthentication: authenticationRef"),
                )


def _is_credential(text: str) -> bool:
    return bool(SECRET_VALUE.match(text) or URL.search(text))


def _snake(key: str) -> str:
    """`apiKey` as `api_key`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(key)).lower()


def _from_secret(name: str, value: str) -> Fix:
    words = "take it from a Secret, and remove it here"
    if not value.startswith("hf_"):
        return Fix(text=words, replaces=name)
    secret = "hf-token-secret"  # noqa: S105  its name
    return Fix(
        text=words,
        fields={"main/envFrom": [{"secretRef": {"name": secret}}]},
        graph={"model.token_secret": secret},
        replaces=name,
    )


def _is_secret(name: str, value: str) -> bool:
    """A token, and not the name of a file or a Secret, nor a number of tokens."""
    words = ("TOKEN", "PASSWORD", "API_KEY", "APIKEY")
    refers = "/" in value or "$(" in value
    return name.endswith(words) and len(value) >= 16 and not refers and not value.isdigit()


@rule(
    id="PS713",
    title="a volume for one node, mounted by many pods",
    level=Level.ERROR,
    cause="The claim is ReadWriteOnce.",
    effect="Multi-Attach error: pods on other nodes stay ContainerCreating.",
    remedy="ReadWriteMany.",
    source="dynamo#4964; Kubernetes, persistent volumes",
)
def one_node_volume(deployment: ServingDeployment) -> Iterable[RuleResult]:
    modes = {}
    for root in deployment.documents:
        if root["kind"].value == "PersistentVolumeClaim":
            modes[root.at("metadata", "name").value] = root.at("spec", "accessModes").value
    pods: dict[str, int] = {}
    where: dict[str, str] = {}
    for component in deployment.components:
        for claim in _claims(deployment, component):
            if "kubernetes.io/hostname" in (
                deployment.pods[component.name].spec.get("nodeSelector") or {}
            ):
                continue  # all on one node, where ReadWriteOnce is enough
            pods[claim] = pods.get(claim, 0) + component.replicas * component.nodes
            where.setdefault(claim, component.name)
    for claim, count in pods.items():
        mode = modes.get(claim)
        if (
            isinstance(mode, list)
            and count > 1
            and not {"ReadWriteMany", "ReadOnlyMany"} & set(mode)
        ):
            yield RuleResult(
                location=Location(where[claim], "field", ("pod", "volumes")),
                message=f"{claim} is {', '.join(map(str, mode))}, and {count} pods mount it",
                fix=Fix(text="make it ReadWriteMany"),
            )


def _claims(deployment: ServingDeployment, component: Component) -> Iterator[str]:
    pod = deployment.pods[component.name]
    for volume in pod.volumes.value if isinstance(pod.volumes.value, list) else []:
        claim = volume.get("persistentVolumeClaim") if isinstance(volume, dict) else None
        if isinstance(claim, dict) and isinstance(claim.get("claimName"), str):
            yield claim["claimName"]
    for mount in pod.mounted.value if isinstance(pod.mounted.value, list) else []:
        if isinstance(mount, dict) and isinstance(mount.get("name"), str):
            yield mount["name"]


@rule(
    id="PS714",
    title="every pod downloads the model",
    level=Level.NOTE,
    cause="The model is named by its id and no volume holds it.",
    effect="61 GiB for gpt-oss-120b at each start of each pod; the hub's limits on top.",
    remedy="model.cache, with a claim that is filled once.",
    source="docs/kubernetes/model-caching.md; recipes/gpt-oss-120b/model-cache",
)
def no_cache(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in one_each(deployment):
        is_id = re.fullmatch(r"[\w.-]+/[\w.-]+", str(worker.value("model") or ""))
        if is_id and not any(_claims(deployment, worker.component)) and not _host_paths(worker.pod):
            if worker.component.gpus:
                yield RuleResult(
                    location=worker.location("field", "pod", "volumes"),
                    message=f"each pod of {worker.name} downloads {worker.value('model')} at "
                    "its start",
                    fix=Fix(
                        text="mount a model cache",
                        graph={"model.cache": {"pvc": "model-cache"}},
                        fields={
                            "pod/volumes": [
                                {
                                    "name": "model-cache",
                                    "persistentVolumeClaim": {"claimName": "model-cache"},
                                }
                            ]
                        },
                    ),
                )


def _host_paths(pod: Pod) -> bool:
    volumes = pod.volumes.value if isinstance(pod.volumes.value, list) else []
    return any(
        isinstance(v, dict) and ("hostPath" in v or "nfs" in v or "csi" in v) for v in volumes
    )


@rule(
    id="PS715",
    title="a cache where the user cannot write",
    level=Level.WARNING,
    cause="HF_HOME is below /root, and the images run as user 1000.",
    effect="PermissionError at the first download.",
    remedy="Another folder, with fsGroup.",
    source="dynamo#3935",
)
def root_cache(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        if component.role not in WORKERS:
            continue
        for launch in component.launches:
            home = launch.env.get("HF_HOME", "")
            if home.startswith("/root") and not _runs_as_root(deployment, component.name):
                yield RuleResult(
                    location=Location(component.name, "env", ("HF_HOME",)),
                    message=f"HF_HOME={home}, and the images run as user 1000",
                    fix=Fix(text="use a folder of its own", env={"HF_HOME": "/opt/model-cache"}),
                )


def _runs_as_root(deployment: ServingDeployment, component: str) -> bool:
    """What the container says, or else the pod; unsaid it is the image's user, 1000."""
    pod = deployment.pods[component]
    container = pod.containers[0].cursor["securityContext"]["runAsUser"].value
    of_pod = pod.spec.get("securityContext")
    return (of_pod or {}).get("runAsUser") == 0 if container is None else container == 0


@rule(
    id="PS721",
    title="a claim to create without its size",
    level=Level.ERROR,
    cause="v1alpha1 pvcs with create: true need name, size, storageClass and access mode.",
    effect="Refused at admission.",
    remedy="Add them.",
    source="dynamo#4416; v1alpha1 CRD@01cc1c3b",
)
def alpha_volumes(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if deployment.api_version != V1ALPHA1:
        return
    claims = deployment.root["spec"]["pvcs"]
    values = claims.value if isinstance(claims.value, list) else []
    for index, claim in enumerate(values):
        if isinstance(claim, dict) and claim.get("create") is True:
            names = ("name", "size", "storageClass", "volumeAccessMode")
            missing = [name for name in names if not claim.get(name)]
            if missing:
                yield RuleResult(
                    location=Location("", "manifest", ("spec", "pvcs", index)),
                    message=f"pvcs with create: true lacks {', '.join(missing)}",
                    fix=Fix(text="add them"),
                )
