"""Secrets, tokens of the Hugging Face hub, and the users that run in containers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from penstock.checks.rules.containers import Process, mappings, security_context, truth
from penstock.checks.rules.pods.pod_containers import containers_of
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker
from penstock.strict_yaml.places import looks_secret
from penstock.text.values import as_mapping

URL = re.compile(r"://[^/\s@]+:[^/\s@]+@")  # with a user name and a password
SECRET_VALUE = re.compile(r"^(hf_[A-Za-z0-9]{20,}|nvapi-[\w-]{20,}|sk-[\w-]{20,}|ghp_\w{20,})$")
# Repositories that the Hugging Face hub serves only with a token (2026-11).
GATED = re.compile(
    r"(meta-llama/(Llama-2-|Meta-Llama-3-|(Meta-)?Llama-3\.[1-3]-|Llama-4-|(Meta-)?Llama-Guard).*"
    r"|google/gemma-(2b|7b|1\.1|2-|3-|3n).*|google/(codegemma|paligemma|medgemma|shieldgemma).*"
    r"|mistralai/(Mistral-7B-v0\.1|Mistral-Large-Instruct-24(07|11)|Ministral-8B-Instruct-2410"
    r"|Codestral-22B-v0\.1)|CohereForAI/.*|CohereLabs/.*|databricks/dbrx-.*)"
)
TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "HF_TOKEN_PATH")
# In which the frontend downloads tokenizer and configuration itself.
FRONTEND_DOWNLOADS = Versions(dynamo=">=0.7,<1.4")
# Each of them names a folder for the caches of a user without a home folder.
CACHES = ("HOME", "HF_HOME", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")
MOST_USERS = 65535  # larger UIDs are those that OpenShift assigns, which no image has


def plain_secrets(deployment: ServingDeployment) -> Iterator[tuple[str, str | None, Location]]:
    """(name, text, place) of the secrets in plain text: those of variables of all containers, and
    without their text those of KEDA's triggers."""
    for container in containers_of(deployment):
        for entries in container.container.env.env:
            for entry in mappings(entries.value):
                name, text = str(entry.get("name")), entry.get("value")
                if isinstance(text, str) and (_is_credential(text) or _is_secret(name, text)):
                    yield name, text, container.location("env", name)
    yield from ((key, None, place) for key, place in _trigger_secrets(deployment))


def _is_credential(text: str) -> bool:
    return bool(SECRET_VALUE.match(text) or URL.search(text))


def _is_secret(name: str, text: str) -> bool:
    """Whether it is a token, not the name of a file or Secret, and not a number of tokens."""
    if not looks_secret(name) or not name.endswith(("TOKEN", "PASSWORD", "API_KEY", "APIKEY")):
        return False
    return len(text) >= 16 and not ("/" in text or "$(" in text or text.isdigit())


def _trigger_secrets(deployment: ServingDeployment) -> Iterator[tuple[str, Location]]:
    """KEDA reads credentials from a TriggerAuthentication; metadata is readable by everyone."""
    for index, root in enumerate(deployment.documents):
        if root["kind"].value != "ScaledObject":
            continue
        target = str(root.at("spec", "scaleTargetRef", "name").value)
        names = [c.name for c in deployment.components if target.endswith(f"-{c.name}")]
        place = Location("", "document", (index, "spec", "triggers"))
        if names:
            place = Location(names[0], "field", ("scalingAdapter",))
        for trigger in mappings(root["spec"]["triggers"].value):
            for key, text in as_mapping(trigger.get("metadata")).items():
                name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(key)).lower()  # apiKey as api_key
                if looks_secret(name) or _is_credential(str(text)):
                    yield key, place


def may_have_token(process: Process) -> bool:
    """Whether a process may get a token, or finds the model without the hub."""
    launch = process.launch
    has_token = any(name in launch.env or name in launch.unknown_variables for name in TOKENS)
    is_offline = any(truth(launch.env.get(n)) for n in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    has_server = any(n.startswith("MODEL_EXPRESS") or n == "HF_ENDPOINT" for n in launch.env)
    is_unknown = bool(launch.secrets) or launch.has_unread_variables or launch.shell
    return has_token or is_offline or has_server or is_unknown or bool(process.mount_paths)


def user_of(worker: Worker) -> int | None:
    """The user of the main container; None if the image or the cluster decides."""
    uid = security_context(worker.pod).get("runAsUser")
    if uid is None:
        uid = as_mapping(worker.pod.spec.get("securityContext")).get("runAsUser")
    return uid if isinstance(uid, int) and not isinstance(uid, bool) else None
