"""Rules about variables that Services set, and about users without a home folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.containers import NVIDIA_IMAGE
from penstock.checks.rules.pods.shared_claims import may_share_namespace
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

# Variables that vLLM converts to a number when it starts (vllm/envs.py 0.10 to 0.33), and the key
# of the worker without which it does not read them.
NUMBERS = {
    "VLLM_PORT": "",
    "VLLM_DP_MASTER_PORT": "",
    "VLLM_NIXL_SIDE_CHANNEL_PORT": "kv-transfer-config",
}
VALIDATION = "fail-on-environ-validation"
# Each of them names a folder for the caches of a user without a home folder.
CACHES = ("HOME", "HF_HOME", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")
TMP = "/tmp"  # noqa: S108  a folder of the container
USERS = (0, 1000)  # of NVIDIA's images
MOST_USERS = 65535  # larger UIDs are those that OpenShift assigns, which no image has


def _services(deployment: ServingDeployment) -> Iterator[tuple[str, Location]]:
    """(name, place) of the Services of the file and of the operator, which has one for each
    component. A headless Service sets no variables."""
    of_pods = as_mapping(deployment.root.value)
    for index, root in enumerate(deployment.documents):
        name, spec = root.at("metadata", "name").value, root["spec"]
        is_headless = spec["clusterIP"].value == "None"
        is_external = spec["type"].value == "ExternalName"
        is_near = may_share_namespace(as_mapping(root.value), of_pods)
        is_set = is_near and not is_headless and not is_external
        if root["kind"].value == "Service" and is_set:
            yield str(name), Location("", "document", (index, "metadata", "name"))
    for component in deployment.components:
        name = f"{deployment.name}-{component.name}".lower()
        yield name, Location("", "manifest", ("metadata", "name"))


def service_variable(deployment: ServingDeployment) -> Iterable[RuleResult]:
    services = dict(reversed([*_services(deployment)]))
    for worker in deployment.one_worker_per_component:
        if worker.engine is not Engine.VLLM or worker.pod.spec.get("enableServiceLinks") is False:
            continue
        for name, location in services.items():
            variable = f"{name.upper().replace('-', '_')}_PORT"
            if worker.env(variable) is None and _is_refused(worker, variable):
                yield RuleResult(
                    location=location,
                    message=f"the Service {name} sets {variable} in the pods of {worker.name} to "
                    "tcp://…, which vLLM refuses",
                    fix=Fix(
                        text=f"Rename {name}, or set enableServiceLinks to false in {worker.name}."
                    ),
                )


def _is_refused(worker: Worker, variable: str) -> bool:
    if variable in NUMBERS:
        key = NUMBERS[variable]
        return not key or "nixl" in str(worker.get(key)).lower()
    return variable.startswith("VLLM_") and worker.get(VALIDATION) is True


def user_without_home(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        uid, launch = _uid(worker), worker.launch
        known = {*launch.env, *launch.unknown_variables}
        if uid is None or launch.has_unread_variables or known & {*CACHES}:
            continue
        is_of_nvidia = NVIDIA_IMAGE.match(worker.pod.image) is not None
        if uid > MOST_USERS or (is_of_nvidia and uid not in USERS):
            yield RuleResult(
                location=worker.location("env", "HOME"),
                message=f"{worker.name} runs as user {uid}, which has no home folder in the image",
                fix=Fix(text=f"Set HOME to a writable folder, such as {TMP}.", env={"HOME": TMP}),
            )


def _uid(worker: Worker) -> int | None:
    """The user of the main container; None if the image or the cluster decides."""
    own = worker.pod.containers[0].cursor["securityContext"]["runAsUser"].value
    of_pod = worker.pod.spec.get("securityContext")
    uid = own if own is not None or not isinstance(of_pod, dict) else of_pod.get("runAsUser")
    return uid if isinstance(uid, int) and not isinstance(uid, bool) else None
