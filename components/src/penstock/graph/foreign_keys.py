"""Keys that users bring from engines, Dynamo manifests, KServe, llm-d, Ray Serve and Helm charts.

`explain.py` gives their place in a graph, or says why there is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.strict_yaml.places import Path

POOLS = ("prefill", "decode", "worker")
COMPONENTS = (*POOLS, "frontend", "planner")


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
    """The dotted place in the graph that an unknown key stands for, if it is one; else empty."""
    place, top = _template_of(path), str(path[0])
    owners = POOLS if "{pool}" in place else COMPONENTS
    return place.format(pool=top, component=top) if "{" not in place or top in owners else ""


def fix_of_key(path: Path) -> str:
    """What to do with an unknown key of the graph; empty if it is not known elsewhere either."""
    top, key = str(path[0]), snake_case(str(path[-1]))
    template, place = _template_of(path), place_of_key(path)
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
    """The place in the tables for an unknown key; empty if there is none, or it is its section."""
    *above, last = map(str, path)
    section, key = ".".join(above), snake_case(last)
    of_section = BY_SECTION.get("pool" if section in POOLS else section, {})
    template = of_section.get(key) or PLACES.get(key, "")
    return "" if template == section else template
