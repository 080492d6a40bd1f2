"""What the router weighs, its settings, and which workers publish KV events and cache prefixes."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from penstock.checks.rules.containers import Process, mappings, number_of, truth
from penstock.engines.settings import Location, Setting
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import dynamo_version
from penstock.serving.worker import Worker
from penstock.strict_yaml.loader import load, load_json

# The switch of prefix caching.
CACHING = {
    Engine.TRTLLM: "kv_cache_config.enable_block_reuse",
    Engine.VLLM: "enable-prefix-caching",
    Engine.SGLANG: "disable-radix-cache",
}
# What a cached prefix counts for; the names before 1.2 end with WEIGHT.
CREDITS = ("--router-kv-overlap-score-credit", "--router-kv-overlap-score-weight")
BUILT_IN = "dynamo-default-cost-fn"
STAGES = ("aggregated", "prefill", "decode")


def variable_of(flag: str) -> str:
    """`DYN_ROUTER_MODE` of `--router-mode`."""
    return "DYN_" + flag.removeprefix("--").removeprefix("dyn-").replace("-", "_").upper()


def router_setting(deployment: ServingDeployment, flag: str) -> Setting | None:
    """A setting of the first frontend's router, by flag or variable."""
    return deployment.router_setting(flag, variable_of(flag))


def publishes(worker: Worker) -> bool:
    """Whether the worker publishes KV events."""
    if worker.is_trtllm:
        flag = worker.flag("--publish-kv-events", "--publish-events-and-metrics")
        if flag is not None:
            return flag.value is True
        return truth(worker.env("DYN_TRTLLM_PUBLISH_KV_EVENTS")) is True
    if worker.engine in (Engine.MOCKER, Engine.LLAMACPP):
        return True
    if not worker.settings.is_complete and worker.get("kv-events-config") is None:
        return True
    publisher = events_config(worker, "publisher")
    if worker.engine is Engine.VLLM:
        enabled = str(events_config(worker, "enable_kv_cache_events")).lower() == "true"
        return enabled and publisher in (None, "zmq")
    return bool(publisher == "zmq")


def events_config(worker: Worker, key: str) -> Any:
    """A key of kv-events-config, which may be a JSON string in the engine file."""
    config = worker.get("kv-events-config")
    if isinstance(config, str):
        try:
            config = load_json(config)
        except ValueError:
            config = None
    if isinstance(config, Mapping) and key in config:
        return config[key]
    return worker.get(f"kv-events-config.{key}")


def publishing_flag(worker: Worker) -> str:
    """TensorRT-LLM workers before Dynamo 1.3 refuse the new name."""
    is_old = (dynamo_version(worker.pod) or (1, 3)) < (1, 3)
    return "--publish-events-and-metrics" if is_old else "--publish-kv-events"


def caching_key(worker: Worker) -> str:
    """The key that switches prefix caching."""
    return CACHING.get(worker.engine, "engine.enable_prefix_caching")


def caches_prefixes(worker: Worker) -> bool:
    """Whether prefix caching is enabled, which is the default."""
    key = caching_key(worker)
    return worker.get(key) is not (key == CACHING[Engine.SGLANG])


def has_choice(deployment: ServingDeployment, worker: Worker) -> bool:
    """Whether the router selects among several workers for the same prompts."""
    ranks = worker.count("data_parallel") or 1
    replicas = sum(w.component.replicas for w in deployment.pool(worker.role))
    return replicas * ranks > 1 or worker.attention_ranks > 1


def weighs_prefixes(deployment: ServingDeployment) -> bool:
    """Whether the KV router prefers workers with cached prefixes: not with --load-aware or a credit
    of 0. A policy that is not known may decide either way."""
    policy = _credits_of_policy(deployment)
    if policy is None:
        return False
    if policy:
        return any(policy)  # the policy's parameters count, not the flags
    load_aware = deployment.router_setting("--load-aware", "DYN_ROUTER_LOAD_AWARE")
    if load_aware and str(load_aware.value).lower() in ("true", "1", "yes"):
        return False
    settings = (router_setting(deployment, flag) for flag in CREDITS)
    return not any(setting and number_of(setting.value) == 0 for setting in settings)


def is_off(setting: Setting | None) -> bool:
    """Whether a switch is set and off."""
    return setting is not None and str(setting.value).lower() in ("false", "0", "no")


def expects_cached_prefixes(deployment: ServingDeployment) -> bool:
    """False where the KV router is configured to route by load alone."""
    assumes_reuse = not is_off(router_setting(deployment, "--router-assume-kv-reuse"))
    return weighs_prefixes(deployment) and (deployment.follows_kv_events or assumes_reuse)


def backend_sets_page_size(deployment: ServingDeployment, worker: Worker) -> bool:
    """Whether the attention backend overrides the page size: trtllm_mha, the default for gpt-oss
    on Blackwell, uses 64 (sglang/srt/server_args.py)."""
    keys = ("attention-backend", "decode-attention-backend", "prefill-attention-backend")
    backends = [str(worker.get(key)) for key in keys if worker.get(key) is not None]
    if not backends and deployment.model is not None and deployment.model.is_gpt_oss:
        backends = ["trtllm_mha"] if deployment.gpu is None or deployment.gpu.is_blackwell else []
    return any("mla" in name or name == "trtllm_mha" for name in backends)


def same_model_pairs(deployment: ServingDeployment) -> Iterator[tuple[Worker, Worker]]:
    """Each worker that computes prefill, after the first one of its model and role, and that one.
    Both have a known block size."""
    first: dict[str, Worker] = {}
    for worker in deployment.workers:
        flag = worker.flag("--served-model-name")
        served = flag.text if flag is not None else worker.value("model")
        is_known = served is not None and worker.count("block_size") and worker.settings.is_complete
        if worker.runs_prefill and is_known:
            other = first.setdefault(f"{served} {worker.role}", worker)
            if other.name != worker.name:
                yield worker, other


def _credits_of_policy(deployment: ServingDeployment) -> tuple[float, ...] | None:
    """The prefix credits that the policies of --router-policy-config use; empty if the flags
    decide, because there is no file or it only has queues. None if that is not known: another file
    or another policy."""
    setting = router_setting(deployment, "--router-policy-config")
    if setting is None:
        return ()
    document = _policy_document(deployment, str(setting.value))
    selection = document.get("worker_selection", {}) if document is not None else None
    if not isinstance(selection, Mapping):
        return None
    try:
        return tuple(_credits(selection))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None  # not a policy file that the frontend accepts


def _policy_document(deployment: ServingDeployment, path: str) -> Mapping[str, Any] | None:
    for _, launch, _ in deployment.frontends:
        text = launch.files.get(posixpath.normpath(posixpath.join(launch.cwd or "", path)))
        if text is None:
            continue
        try:
            document = load(text)
        except (yaml.YAMLError, ValueError):
            return None
        return document if isinstance(document, Mapping) else None
    return None


def _credits(selection: Mapping[str, Any]) -> Iterator[float]:
    """ValueError for a policy whose parameters are not known."""
    instances = {instance["name"]: instance for instance in selection.get("instances") or ()}
    for name in {selection[stage] for stage in STAGES if stage in selection}:
        if name == "default" and name not in instances:
            continue
        if instances[name]["type"] != BUILT_IN:
            raise ValueError(name)
        credit = (instances[name].get("parameters") or {}).get("overlap_score_credit")
        if credit is not None:
            yield float(credit)


def setting_of(process: Process, flag: str) -> Setting | None:
    """The text of a router setting, by flag or variable."""
    setting = process.text(flag, variable_of(flag))
    return Setting(*setting) if setting is not None else None


def router_mode_of(process: Process) -> str:
    """The router mode of a frontend or router."""
    is_load_aware = place_if_on(process, "--load-aware", "DYN_ROUTER_LOAD_AWARE")
    if process.launch.module == "dynamo.router" or is_load_aware:
        return "kv"
    mode = setting_of(process, "--router-mode")
    return str(mode.value) if mode is not None else "round-robin"


def place_if_on(process: Process, flag: str, variable: str = "") -> Location | None:
    """The place of a switch that is on."""
    variable = variable or variable_of(flag)
    argument = process.flag(flag)
    if argument is not None:
        return process.location("args", argument.spelling) if argument.value is True else None
    return process.location("env", variable) if truth(process.launch.env.get(variable)) else None


def first_router_setting(process: Process) -> Location | None:
    """The place of the first router setting that a component has itself."""
    for argument in process.flags:
        if (
            argument.spelling.startswith(("--router-", "--no-router-"))
            and argument.flag is not None
        ):
            return process.location("args", argument.spelling)
    # The first entries are those of the whole deployment, which the frontend needs.
    entries = (entry for env in process.container.env.env[1:] for entry in mappings(env.value))
    names = {str(entry.get("name")) for entry in entries}
    for name in process.launch.env:
        if name.startswith("DYN_ROUTER_") and name in names:
            return process.location("env", name)
    return None
