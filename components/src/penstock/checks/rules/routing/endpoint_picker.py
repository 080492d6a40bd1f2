"""Rules about the endpoint picker (EPP) of the inference gateway, and the frontends behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.containers import (
    Process,
    mappings,
    plain_variables,
    processes,
)
from penstock.engines.settings import Location
from penstock.manifests.deployment import Component, Engine, Role
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


def _pickers(deployment: ServingDeployment) -> Iterator[tuple[Component, dict[str, str]]]:
    """The endpoint pickers with the variables that the manifest gives them."""
    for component in deployment.with_role(Role.EPP):
        yield component, plain_variables(deployment.pods[component.name].containers[0])


def _block_size(deployment: ServingDeployment, worker: Worker) -> int | None:
    """The worker's block size in tokens; None if it depends on what the file does not state."""
    if own := worker.count("block_size"):
        return own
    if not worker.settings.is_complete or worker.settings.common("block_size") is not None:
        return None
    gpu = deployment.gpu
    if worker.engine is Engine.SGLANG and not (gpu and gpu.is_blackwell):
        backend = worker.get("attention-backend") or worker.get("decode-attention-backend")
        return None if backend else 1  # some backends need larger pages
    return None


def _served_name(worker: Worker) -> str | None:
    for name in ("served-model-name", "served_model_name"):
        if isinstance(found := worker.get(name), (str, list)):
            return str(found[0]) if isinstance(found, list) and found else str(found)
    given = worker.flag("--served-model-name")
    if given is not None:
        return given.text
    return None


def picker_block_size(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for picker, env in _pickers(deployment):
        given = positive_int(env.get(BLOCK_SIZE))
        for worker in deployment.one_worker_per_component:
            own = _block_size(deployment, worker)
            if not given or not own or own == given or worker.role is Role.DECODE:
                continue
            is_standalone = env.get("DYN_EPP_MODE", "").strip() == "standalone"
            unset = " by default" if worker.settings.common("block_size") is None else ""
            yield RuleResult(
                location=Location(picker.name, "env", (BLOCK_SIZE,)),
                message=f"{BLOCK_SIZE} is {given}, but {worker.name} has blocks of {own} "
                f"{'token' if own == 1 else 'tokens'}{unset}",
                fix=Fix(text=f"Set the block size of the workers to {given}.")
                if unset
                else Fix(text=f"Set {BLOCK_SIZE} to {own}.", env={BLOCK_SIZE: str(own)}),
                level=Level.ERROR if is_standalone else None,
            )
            break


def picker_model_name(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for picker, env in _pickers(deployment):
        given = env.get(MODEL_NAME, "").strip()
        names = {_served_name(worker) for worker in deployment.one_worker_per_component}
        if not given or "$" in given or None in names or not names or given in names:
            continue
        name = min(map(str, names))
        if "$" in name:
            continue
        is_standalone = env.get("DYN_EPP_MODE", "").strip() == "standalone"
        yield RuleResult(
            location=Location(picker.name, "env", (MODEL_NAME,)),
            message=f"{MODEL_NAME} is {given}, but the workers serve {name}",
            fix=Fix(text=f"Set {MODEL_NAME} to {name}.", env={MODEL_NAME: name}),
            level=Level.ERROR if is_standalone else None,
        )


def standalone_picker(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for picker, env in _pickers(deployment):
        mode = env.get("DYN_EPP_MODE", "").strip()
        main = deployment.pods[picker.name].containers[0]
        declared = {str(e.get("name")) for es in main.env.env for e in mappings(es.value)}
        place = Location(picker.name, "env", ("DYN_EPP_MODE",))
        if mode not in ("", "dynamo", "standalone") and "$" not in mode:
            yield RuleResult(
                location=place,
                message=f"DYN_EPP_MODE is {mode}, which is neither dynamo nor standalone",
                fix=Fix(text="Use dynamo or standalone."),
            )
        missing = [name for name in REQUIRED if name not in declared]
        if mode == "standalone" and missing and main.cursor["envFrom"].is_absent:
            yield RuleResult(
                location=place,
                message=f"the endpoint picker lacks {', '.join(missing)}",
                fix=Fix(text=f"Set {', '.join(missing)}."),
            )


def small_prefix_blocks(deployment: ServingDeployment) -> Iterable[RuleResult]:
    sizes = [_block_size(deployment, w) for w in deployment.one_worker_per_component]
    known = [size for size in sizes if size]
    for picker in deployment.with_role(Role.EPP):
        cursor = deployment.pods[picker.name].cursor.at("eppConfig", "config", "plugins")
        for index, plugin in enumerate(mappings(cursor.value)):
            parameters = plugin.get("parameters")
            if plugin.get("type") not in PREFIX_PLUGINS or not isinstance(parameters, Mapping):
                continue
            given = positive_int(parameters.get("blockSizeTokens"))
            if not given or not known or given >= min(known) or parameters.get("autoTune") is True:
                continue
            steps = (*cursor.path, index, "parameters", "blockSizeTokens")
            yield RuleResult(
                location=Location("", "manifest", steps),
                message=f"blockSizeTokens is {given}, but the workers have blocks of {min(known)} "
                "tokens",
                fix=Fix(text=f"Set blockSizeTokens to {min(known)}."),
            )


def routing_twice(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if not deployment.with_role(Role.EPP):
        return
    for process in processes(deployment):
        if process.launch.module != "dynamo.frontend" or process.container.is_main:
            continue
        mode = process.text("--router-mode", "DYN_ROUTER_MODE")
        if (mode[0] if mode else "round-robin") == "direct" or process.launch.unexpanded:
            continue
        yield RuleResult(
            location=mode[1] if mode else _sidecar(process),
            message=f"the frontend sidecar of {process.component.name} has router mode "
            f"{mode[0] if mode else 'round-robin'}",
            fix=Fix(text="Set --router-mode direct on the sidecar."),
        )


def _sidecar(process: Process) -> Location:
    return Location("", "manifest", process.container.cursor.path)
