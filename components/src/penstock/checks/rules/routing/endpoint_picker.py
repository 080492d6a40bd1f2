"""The endpoint picker (EPP) of the inference gateway, and what it assumes about the workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.checks.rules.containers import mappings, plain_variables
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Role
from penstock.manifests.pods import Container
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

BLOCK_SIZE, MODEL_NAME = "DYN_KV_CACHE_BLOCK_SIZE", "DYN_MODEL_NAME"
# What a picker in standalone mode stops without (epp_standalone_config.rs).
REQUIRED = (
    *("DYN_EPP_INFERENCE_POOL_NAME", MODEL_NAME, BLOCK_SIZE),
    *("DYN_EPP_TOKENIZER_SERVICE_URL", "DYN_EPP_TOKENIZER_PROTOCOL"),
)
PREFIX_PLUGINS = ("prefix-cache-scorer", "prefix-cache-plugin")


@dataclass(frozen=True, kw_only=True)
class Picker:
    """An endpoint picker with the variables that the manifest gives it."""

    name: str
    env: Mapping[str, str]
    container: Container

    @property
    def mode(self) -> str:
        return self.env.get("DYN_EPP_MODE", "").strip()

    @property
    def is_standalone(self) -> bool:
        return self.mode == "standalone"

    @property
    def block_size(self) -> int | None:
        return positive_int(self.env.get(BLOCK_SIZE))

    @property
    def model_name(self) -> str:
        return self.env.get(MODEL_NAME, "").strip()

    @property
    def missing(self) -> list[str]:
        """The required variables that it lacks; empty if a ConfigMap or Secret may have them."""
        entries = (entry for env in self.container.env.env for entry in mappings(env.value))
        declared = {str(entry.get("name")) for entry in entries}
        is_listed = self.container.cursor["envFrom"].is_absent
        return [name for name in REQUIRED if name not in declared] if is_listed else []

    def location(self, variable: str) -> Location:
        return Location(self.name, "env", (variable,))


def pickers(deployment: ServingDeployment) -> Iterator[Picker]:
    """The endpoint pickers."""
    for component in deployment.with_role(Role.EPP):
        container = deployment.pods[component.name].containers[0]
        yield Picker(name=component.name, env=plain_variables(container), container=container)


def block_size(deployment: ServingDeployment, worker: Worker) -> int | None:
    """The worker's block size in tokens; None if it depends on what the file does not state."""
    if size := worker.count("block_size"):
        return size
    if not worker.settings.is_complete or worker.settings.common("block_size") is not None:
        return None
    gpu = deployment.gpu
    if worker.engine is Engine.SGLANG and not (gpu and gpu.is_blackwell):
        backend = worker.get("attention-backend") or worker.get("decode-attention-backend")
        return None if backend else 1  # some backends need larger pages
    return None


def smallest_block(deployment: ServingDeployment) -> int | None:
    """The smallest block size of the workers that is known."""
    sizes = (block_size(deployment, worker) for worker in deployment.one_worker_per_component)
    return min(filter(None, sizes), default=None)


def first_with_other_block_size(
    deployment: ServingDeployment, picker: Picker
) -> tuple[Worker, int] | None:
    """The first worker that computes prefill with another block size than the picker's."""
    for worker in deployment.one_worker_per_component:
        size = block_size(deployment, worker)
        if size and picker.block_size and size != picker.block_size and worker.runs_prefill:
            return worker, size
    return None


def served_names(deployment: ServingDeployment) -> list[str]:
    """The names under which the workers serve the model; empty if one is not known."""
    names = {_served_name(worker) for worker in deployment.one_worker_per_component}
    return [] if None in names else sorted(map(str, names))


def _served_name(worker: Worker) -> str | None:
    for name in ("served-model-name", "served_model_name"):
        if isinstance(names := worker.get(name), (str, list)):
            return str(names[0]) if isinstance(names, list) and names else str(names)
    flag = worker.flag("--served-model-name")
    return flag.text if flag is not None else None


def prefix_plugins(deployment: ServingDeployment) -> Iterator[tuple[Location, int]]:
    """The place and the tokens of `blockSizeTokens` of each plugin that keeps a prefix index."""
    for picker in deployment.with_role(Role.EPP):
        cursor = deployment.pods[picker.name].cursor.at("eppConfig", "config", "plugins")
        for index, plugin in enumerate(mappings(cursor.value)):
            parameters = plugin.get("parameters")
            if plugin.get("type") not in PREFIX_PLUGINS or not isinstance(parameters, Mapping):
                continue
            size = positive_int(parameters.get("blockSizeTokens"))
            if size and parameters.get("autoTune") is not True:
                steps = (*cursor.path, index, "parameters", "blockSizeTokens")
                yield Location("", "manifest", steps), size
