"""Files and keys of other tools: Helm charts, Compose, Dynamo manifests, engines, KServe, llm-d.

One message says what a file is if it is not a graph; `explain.py` gives the place of a key in a
graph, or says why there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

import yaml

from penstock.errors import GraphError, Problem, ProblemKind
from penstock.strict_yaml.document import Document
from penstock.strict_yaml.events import position_of_event
from penstock.strict_yaml.loader import DEEPEST_OBJECT, SafeLoader
from penstock.strict_yaml.places import Path, place_of
from penstock.text.names import nearest

# Every Kubernetes object has both at its top level; a graph has neither.
_MANIFEST = (
    re.compile(r"^apiVersion\s*:", re.MULTILINE),
    re.compile(r"^kind\s*:\s*[\"']?(?P<kind>[\w.-]*)", re.MULTILINE),
)
# An object that lacks its apiVersion or its kind.
_DYNAMO = re.compile(r"Dynamo[A-Z]|nvidia\.com/")
DEPLOYMENT = "DynamoGraphDeployment"
START = "Write a graph with `penstock init`, or copy one with `penstock init --example quickstart`."
OVERLAY = "Build the overlay with `kubectl kustomize DIR > FILE`, then pass FILE."
REQUIRED = ("model", "engine")
SIMILAR = 0.75  # `modle` is `model`; `node` is not


class OtherFile(NamedTuple):
    """A kind of file, which has at least ``least`` of the keys, or one of the names."""

    kind: str
    fix: str
    keys: str
    least: int = 1
    names: tuple[str, ...] = ()

    def describes(self, keys: set[str], source: str) -> bool:
        is_named = PurePath(source).name in self.names
        return is_named or len(keys & set(self.keys.split())) >= self.least


OTHER_FILES = (
    OtherFile(
        "the Chart.yaml of a Helm chart",
        "Render the chart with `helm template DIR > FILE`, then pass FILE.",
        "apiVersion appVersion version",
        least=2,
    ),
    OtherFile(
        "a kustomization.yaml",
        OVERLAY,
        "bases patches patchesStrategicMerge patchesJson6902 namePrefix nameSuffix commonLabels"
        " configMapGenerator secretGenerator generatorOptions replacements",
        names=("kustomization.yaml", "kustomization.yml"),
    ),
    OtherFile("a Compose file", START, "services"),
    OtherFile("the values file of another Helm chart", START, "modelArtifacts"),
    OtherFile("a workflow of GitHub Actions", START, "jobs on", least=2),
    OtherFile(
        "the config.json of a model",
        "Name its folder in `model.path` of a graph.",
        "architectures model_type hidden_size vocab_size",
        least=2,
    ),
    OtherFile(
        "a workload",
        "Pass it to `penstock simulate` or `penstock plan` with --workload.",
        "requests input output arrival trace prefix conversation",
        least=2,
    ),
    OtherFile(
        "the values file of another Helm chart",
        START,
        "replicaCount image service ingress resources serviceAccount servingEngineSpec nameOverride"
        " fullnameOverride imagePullSecrets podAnnotations tolerations affinity",
        least=2,
    ),
    OtherFile(
        "the configuration of an engine",
        "Put it under `engine.config` of a graph.",
        "tensor_parallel_size tensor-parallel-size max_num_seqs max-num-seqs max_batch_size"
        " max_num_tokens max_model_len max-model-len kv_cache_config enable_chunked_prefill"
        " gpu_memory_utilization gpu-memory-utilization moe_config cuda_graph_config",
    ),
)


def kind_of_manifest(text: str) -> str | None:
    """The first `kind` of a file of Kubernetes objects; None if it is not one."""
    header = _header(text)
    return header[0] if header else None


def _header(text: str) -> tuple[str, int] | None:
    """The first `kind` of a file of Kubernetes objects, and the line of its apiVersion."""
    version, kind = (pattern.search(text) for pattern in _MANIFEST)
    if version and kind:
        return kind["kind"], text.count("\n", 0, version.start()) + 1
    if "apiVersion" not in text and _DYNAMO.search(text) is None:
        return None  # most graphs; the others are parsed twice
    keys = _top_level(text)
    version_event, kind_event = keys.get("apiVersion"), keys.get("kind")
    is_both = version_event is not None and kind_event is not None
    first = version_event or kind_event
    texts = [event.value for event in (version_event, kind_event) if event is not None]
    if first is None or not (is_both or any(map(_DYNAMO.match, texts))):
        return None
    return kind_event.value if kind_event else "", position_of_event(first).line


def _top_level(text: str) -> dict[str, yaml.ScalarEvent]:
    """The scalars at the top level of the first document: also of JSON, whose keys are quoted."""
    scalars: dict[str, yaml.ScalarEvent] = {}
    key: yaml.Event | None = None
    depth = 0
    try:
        for event in yaml.parse(text, SafeLoader):
            if isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
                if depth == 0:
                    break
            elif isinstance(event, yaml.NodeEvent):
                if depth == 1 and key is None:
                    key = event
                elif depth == 1:
                    if isinstance(key, yaml.ScalarEvent) and isinstance(event, yaml.ScalarEvent):
                        scalars[key.value] = event
                    key = None
                depth += isinstance(event, yaml.CollectionStartEvent)
                if depth > DEEPEST_OBJECT:
                    break  # libyaml takes minutes for 50,000 levels
    except yaml.YAMLError:
        pass  # the reader reports it
    return scalars


def require_no_manifest(text: str, source: str) -> None:
    """GraphError for Kubernetes objects, where only a graph will do."""
    header = _header(text)
    if header is None:
        return
    kind, line = header
    fix = "Name the graph YAML."
    # Objects such as ConfigMaps may precede the deployment.
    deployment = next((m for m in _MANIFEST[1].finditer(text) if m["kind"] == DEPLOYMENT), None)
    if deployment is not None:
        kind, line = DEPLOYMENT, text.count("\n", 0, deployment.start()) + 1
    if kind == DEPLOYMENT:
        fix = "Name the graph YAML; `penstock check`, `explain` and `up` also read a manifest."
    message = f"is a Kubernetes manifest ({kind}), and this command needs a graph"
    raise GraphError(message, file=source, line=line, place="kind", fix=fix)


def _is_compose(values: Mapping[str, Any]) -> bool:
    """Whether the services are those of Compose, which has `model` and `models`, too."""
    services = values.get("services")
    return (
        "engine" not in values
        and isinstance(services, Mapping)
        and any(isinstance(s, Mapping) and {"image", "build"} & set(s) for s in services.values())
    )


def require_graph_keys(document: Document, known: Iterable[str], source: str) -> None:
    """GraphError for a mapping that is not a graph at all, instead of one for each key."""
    values: Mapping[str, Any] = document.values
    # First the files that have keys of a known format, then those that have no key of a graph.
    # A mistyped `modle` or `Engine` is an unknown key, for which a name is suggested.
    has_required = any(nearest(str(key), REQUIRED, SIMILAR) for key in values)
    if (has_required and not _is_compose(values)) or not values:
        return
    row = next(
        (
            row
            for row in OTHER_FILES
            if len(set(row.keys.split()) & set(values)) >= row.least
            or PurePath(source).name in row.names
        ),
        None,
    )
    place, fix = next(iter(values)), START
    message = "the file is not a graph: none of its keys is a section of a graph"
    if row is not None:
        place = next((key for key in values if key in row.keys.split()), place)
        message, fix = f"the file is {row.kind}, not a graph", row.fix
    elif document.problems or not set(values).isdisjoint(known):
        return
    line, column = document.positions.get(place, (None, None))
    raise GraphError(
        Problem(
            file=source,
            line=line,
            column=column,
            place=place,
            message=message,
            fix=fix,
            kind=ProblemKind.OTHER_FILE,
        )
    )


POOLS = ("prefill", "decode", "worker")
SCALED = (*POOLS, "frontend")
COMPONENTS = (*SCALED, "planner")


def _table(rows: Mapping[str, str]) -> dict[str, str]:
    """Key → value, of rows of several keys each."""
    return {key: value for keys, value in rows.items() for key in keys.split()}


TENSOR_PARALLELISM = (
    *("tp", "tp_size", "tensor_parallel", "tensor_parallel_size", "tensor_parallelism"),
)
# Keys in snake case → their place in the graph. `{pool}` is the pool of the section, or each pool;
# `{component}` also the frontend or the planner.
PLACES = _table(
    {
        "model_id model_name model_uri hf_model hf_id repo_id storage_uri": "model.id",
        "model_path model_dir local_model_path": "model.path",
        "served_model_name model_alias": "model.served_name",
        "max_model_len max_seq_len max_sequence_length max_context_length context_len"
        " max_position_embeddings": "model.context_length",
        "dyn_reasoning_parser": "model.reasoning_parser",
        "dyn_tool_call_parser tool_parser": "model.tool_call_parser",
        "hf_token hf_token_secret hf_secret_name env_from_secret auth_secret_name":
            "model.token_secret",
        "pvc pvcs pvc_name model_cache download_dir hf_home": "model.cache.pvc",
        "backend_framework framework runtime inference_engine engine_type": "engine.kind",
        "docker_image container_image image_name repository image_tag": "engine.image",
        "engine_args engine_kwargs extra_args vllm_args": "engine.config",
        "dynamo_version runtime_version runtime_version_override app_version": "dynamo",
        "http_port container_port listen_port": "frontend.port",
        "router_mode routing_mode routing_strategy": "router.mode",
        "kv_overlap_score_weight overlap_score_weight router_kv_overlap_score_credit"
        " kv_overlap_score_credit": "router.overlap_score_credit",
        "router_temperature": "router.temperature",
        "router_replica_sync": "router.replica_sync",
        "use_kv_events router_kv_events no_kv_events": "router.kv_events",
        "router_ttl_secs router_ttl ttl": "router.ttl_s",
        "router_queue_threshold": "router.queue_threshold",
        "router_queue_policy": "router.queue_policy",
        "kv_connector kv_transfer_config kv_transfer_backend disaggregation_transfer_backend"
        " cache_transceiver_config": "kv_transfer.backend",
        "num_replicas replica_count initial_replicas min_available_replicas": "{pool}.replicas",
        "min_replicas min_replica_count": "{component}.autoscaling.min",
        "max_replicas max_replica_count": "{component}.autoscaling.max",
        "autoscaler autoscaling_config hpa keda scaling_config": "{component}.autoscaling",
        "num_gpus gpu_count n_gpus gpus_per_replica gpus_per_worker gpus_per_pod num_gpus_per_node":
            "{pool}.gpus",
        " ".join(TENSOR_PARALLELISM): "{pool}.gpus",
        "multinode node_count num_nodes nnodes nodes_per_replica": "{pool}.nodes",
        "shm shm_size shared_memory_size": "{pool}.shared_memory",
        "max_ongoing_requests max_concurrent_requests container_concurrency max_concurrency":
            "{pool}.request_limit",
        "accelerator accelerator_type gpu_type gpu_model gpu_name": "hardware.gpu",
        "gpu_product": "hardware.product_labels",
        "discovery_backend store_kv kv_store": "infrastructure.discovery",
        "event_plane": "infrastructure.events",
        "request_plane": "infrastructure.requests",
        "etcd_endpoint etcd_url": "infrastructure.etcd_endpoints",
        "nats nats_server": "infrastructure.nats_url",
        "speculative_config speculative_decoding spec_decode draft": "speculation",
        "speculative_model draft_model_path": "speculation.draft_model",
        "num_speculative_tokens speculative_num_draft_tokens": "speculation.draft_tokens",
        "sla": "slo",
        "ttft": "slo.ttft_ms",
        "itl tpot": "slo.itl_ms",
        "envs env_vars environment env_from extra_env": "{component}.env",
        "command entrypoint arguments cmd": "{component}.args",
        "extra_pod_spec pod_spec pod_template tolerations node_selector affinity volumes"
        " volume_mounts image_pull_secrets priority_class_name runtime_class_name scheduler_name"
        " host_network init_containers topology_spread_constraints security_context"
        " pod_security_context": "{component}.pod",
        "pod_annotations extra_pod_metadata": "{component}.annotations",
        "requests limits cpu memory": "{component}.resources",
        "service_account_name": "cluster.service_account",
        "service_monitor pod_monitor metrics prometheus monitoring": "cluster.monitoring",
        "termination_grace_period_seconds grace_period shutdown_timeout": "drain_timeout_s",
        "ingress http_route api_gateway": "gateway",
        "api_key api_keys": "gateway.api_keys",
        "rate_limit": "gateway.rate_limit",
        "storage_class_name storage_class": "model.cache.create.storage_class",
        "prefill_worker prefill_workers": "prefill",
        "decode_worker decode_workers": "decode",
        "workers worker_pool worker_spec predictor": "worker",
    }
)  # fmt: skip
# Options of the engines, which a graph has in their own format.
OPTIONS = frozenset(
    {
        "gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction",
        "kv_cache_free_gpu_mem_fraction", "kv_cache_config", "max_num_seqs",
        "max_num_batched_tokens", "max_batch_size", "max_num_tokens", "max_beam_width",
        "block_size", "page_size", "dtype", "quantization", "kv_cache_dtype", "enforce_eager",
        "trust_remote_code", "load_format", "enable_prefix_caching", "enable_chunked_prefill",
        "chunked_prefill_size", "max_running_requests", "max_prefill_tokens",
        "disable_radix_cache", "swap_space", "cpu_offload_gb", "max_total_tokens", "seed", "pp",
        "pp_size", "pipeline_parallel", "pipeline_parallel_size", "pipeline_parallelism", "dp",
        "dp_size", "data_parallel", "data_parallel_size", "ep", "ep_size", "expert_parallel",
        "expert_parallel_size", "moe_expert_parallel_size", "moe_tensor_parallel_size",
        "enable_expert_parallel", "enable_attention_dp", "enable_dp_attention", "moe_config",
        "moe_backend", "cuda_graph_config", "cuda_graph_max_bs", "attention_backend",
        "scheduler_config", "max_seq_len_to_capture", "speculative_algorithm",
        "disable_overlap_scheduler", "enable_lora", "lora_path", "compilation_config",
        "tokenizer_mode", "backend_config", "stream_interval",
    }
)  # fmt: skip
_COMMAND = "Pass {flag} to the command instead; a graph has no such key."
# Keys without a place → what to do instead.
NOWHERE = _table(
    {
        "name graph_name deployment_name release_name name_override fullname_override":
            "Remove it: the deployment has the name of the file, or that of --release.",
        "namespace dynamo_namespace": f"Remove it. {_COMMAND.format(flag='--namespace')}",
        "host listen_address": f"Remove it. {_COMMAND.format(flag='`--host`')}",
        "services components":
            "Write the components as the sections `frontend`, `prefill` and `decode`, or "
            "`frontend` and `worker`.",
        "api_version metadata spec":
            "Remove it: a graph has no parts of a Kubernetes manifest, which `penstock render` "
            "writes.",
        "tokenizer tokenizer_path skip_tokenizer_init":
            "Remove it: the tokenizer comes with the model files (`model.id` or `model.path`), and "
            "`frontend.tokenizer` only selects the library that reads it.",
        "labels pod_labels": "Remove it: the chart sets the labels of the pods.",
        "liveness_probe readiness_probe startup_probe probes health_check":
            "Remove it: the chart sets the probes.",
        "disaggregation_mode disaggregation is_prefill_worker is_decode_worker":
            "Remove it: the sections `prefill` and `decode` set the mode of their workers.",
        "service ports": "Remove it: the chart creates the Service; `frontend.port` sets the port.",
        "log_level logging": "Remove it, and set the variable `DYN_LOG` in `env`.",
        "pull_policy image_pull_policy":
            "Remove it: Kubernetes pulls an image with a tag other than `latest` once per node.",
    }
)  # fmt: skip
# Section → keys that mean something else there than elsewhere → place. "pool" is each pool.
BY_SECTION: Mapping[str, Mapping[str, str]] = {
    "": _table({"version": "dynamo", "image": "engine.image", "args": "engine.args",
                "gpu": "hardware.gpu", "backend": "engine.kind"}),
    "model": _table({"name model": "model.id", "max_length": "model.context_length"}),
    "model.cache": _table({"name claim claim_name": "model.cache.pvc"}),
    "engine": _table({"name type backend engine": "engine.kind", "tag version": "engine.image",
                      "model": "model.id",
                      "gpus": "{pool}.gpus"}),
    "hardware": _table({"gpus": "hardware.gpus_per_node", "name type model": "hardware.gpu",
                        "network": "hardware.fabric"}),
    "kv_transfer": _table({"connector kind type name": "kv_transfer.backend"}),
    "speculation": _table({"model": "speculation.draft_model", "tokens num_tokens":
                           "speculation.draft_tokens"}),
    "pool": _table({"gpu": "{pool}.gpus", "model": "model.id", "backend kind": "engine.kind",
                    "tag": "{pool}.image"}),
}  # fmt: skip


def snake_case(key: str) -> str:
    """`tensorParallelSize` and `tensor-parallel-size` as `tensor_parallel_size`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).replace("-", "_").lower()


def place_of_key(path: Path) -> str:
    """The dotted place in the graph that an unknown key stands for, if it is one; else empty.
    It may be a section that the key is in."""
    place, top = _template_of(path), str(path[0])
    owners: tuple[str, ...] = POOLS if "{pool}" in place else COMPONENTS
    if ".autoscaling" in place:
        owners = SCALED
    return place.format(pool=top, component=top) if "{" not in place or top in owners else ""


def fix_of_key(path: Path) -> str:
    """What to do with an unknown key of the graph; empty if it is not known elsewhere either."""
    top, key = str(path[0]), snake_case(str(path[-1]))
    template, place = _template_of(path), place_of_key(path)
    if place and f"{place_of(path)}.".startswith(f"{place}."):
        return f"Move what it contains to `{place}`, and remove it."
    if template:
        owner = "pool" if "{pool}" in template else "component"
        example = template.format(pool="decode", component="decode")
        of_owner = f"`{template.partition('}.')[2]}` of a {owner}, such as `{example}`,"
        more = " It sets the tensor parallelism, too." if key in TENSOR_PARALLELISM else ""
        return f"Use {f'`{place}`' if place else of_owner} instead.{more}"
    if key in OPTIONS:
        where = f"{top}.config" if top in POOLS else "engine.config"
        return f"Move it to `{where}`, under the name that the engine has for it."
    is_of_section = key == "name" and len(path) > 1  # the name of something else
    return "" if is_of_section else NOWHERE.get(key, "")


def _template_of(path: Path) -> str:
    """The place in the tables for an unknown key; empty if there is none."""
    *above, last = map(str, path)
    section, key = ".".join(above), snake_case(last)
    of_section = BY_SECTION.get("pool" if section in POOLS else section, {})
    return of_section.get(key) or PLACES.get(key, "")
