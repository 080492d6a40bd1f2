"""Rules about volumes and secrets: model caches, claims, credentials in plain text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.containers import runs_as_root
from penstock.checks.rules.pods.shared_claims import mounted_claims
from penstock.engines.settings import Location
from penstock.manifests.pods import V1ALPHA1, Pod
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import WORKERS
from penstock.strict_yaml.places import looks_secret

URL = re.compile(r"://[^/\s@]+:[^/\s@]+@")  # with a user name and a password
SECRET_VALUE = re.compile(r"^(hf_[A-Za-z0-9]{20,}|nvapi-[\w-]{20,}|sk-[\w-]{20,}|ghp_\w{20,})$")


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
                            message=f"the value of {name} is a plain-text secret",
                            fix=_from_secret(name, value),
                        )
    yield from _in_triggers(deployment)


def _in_triggers(deployment: ServingDeployment) -> Iterator[RuleResult]:
    """KEDA reads credentials from a TriggerAuthentication; metadata is readable by everyone."""
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
                    message=f"{key} of a trigger is a plain-text secret",
                    fix=Fix(text="Use a TriggerAuthentication with authenticationRef."),
                )


def _is_credential(text: str) -> bool:
    return bool(SECRET_VALUE.match(text) or URL.search(text))


def _snake(key: str) -> str:
    """`apiKey` as `api_key`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(key)).lower()


def _from_secret(name: str, value: str) -> Fix:
    text = f"Remove {name} here and reference a Secret."
    if not value.startswith("hf_"):
        return Fix(text=text, replaces=name)
    secret = "hf-token-secret"  # noqa: S105  its name
    return Fix(
        text=text,
        fields={"main/envFrom": [{"secretRef": {"name": secret}}]},
        graph={"model.token_secret": secret},
        replaces=name,
    )


def _is_secret(name: str, value: str) -> bool:
    """Whether it is a token, not the name of a file or Secret, and not a number of tokens."""
    suffixes = ("TOKEN", "PASSWORD", "API_KEY", "APIKEY")
    is_reference = "/" in value or "$(" in value
    return name.endswith(suffixes) and len(value) >= 16 and not is_reference and not value.isdigit()


def no_cache(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        is_id = re.fullmatch(r"[\w.-]+/[\w.-]+", str(worker.value("model") or ""))
        claims = mounted_claims(worker.pod.spec, worker.pod.mounted.value)
        if is_id and not claims and not _host_paths(worker.pod):
            if worker.component.gpus:
                yield RuleResult(
                    location=worker.location("field", "pod", "volumes"),
                    message=f"each pod of {worker.name} downloads {worker.value('model')} when it "
                    "starts",
                    why=_download(deployment),
                    fix=Fix(
                        text="Mount a model cache.",
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


def _download(deployment: ServingDeployment) -> str:
    """The consequence for a model of known size; empty if its shape is unknown."""
    if deployment.model is None:
        return ""
    size = deployment.model.parts.total / 2**30
    return (
        f"Each start of each pod downloads {size:.0f} GiB and counts against the hub's rate limits."
    )


def _host_paths(pod: Pod) -> bool:
    volumes = pod.volumes.value if isinstance(pod.volumes.value, list) else []
    return any(
        isinstance(v, dict) and ("hostPath" in v or "nfs" in v or "csi" in v) for v in volumes
    )


def root_cache(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        if component.role not in WORKERS:
            continue
        for launch in component.launches:
            home = launch.env.get("HF_HOME", "")
            is_nvidia = component.image.startswith("nvcr.io/nvidia/ai-dynamo/")
            if (
                is_nvidia
                and home.startswith("/root")
                and not runs_as_root(deployment.pods[component.name])
            ):
                yield RuleResult(
                    location=Location(component.name, "env", ("HF_HOME",)),
                    message=f"HF_HOME is {home}, but the images run as user 1000",
                    fix=Fix(
                        text="Set HF_HOME to a writable folder.",
                        env={"HF_HOME": "/opt/model-cache"},
                    ),
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
                    message=f"a pvcs entry with create: true lacks {', '.join(missing)}",
                    fix=Fix(text=f"Add {', '.join(missing)}."),
                )
