"""Short manifests of Dynamo's workers in any version, for rules about engines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.checks.support import dump

REGISTRY = "nvcr.io/nvidia/ai-dynamo"
IMAGES = {"vllm": "vllm-runtime", "sglang": "sglang-runtime", "trtllm": "tensorrtllm-runtime"}
PRODUCTS = {
    "h200": "NVIDIA-H200",
    "b200": "NVIDIA-B200",
    "rtx": "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
    "a100": "NVIDIA-A100-SXM4-80GB",
    "t4": "Tesla-T4",
    "v100": "Tesla-V100-SXM2-32GB",
}


def component(
    engine: str,
    *args: str,
    name: str = "worker",
    version: str = "1.6.1",
    env: Mapping[str, str] | None = None,
    gpus: int = 1,
    gpu: str = "",
    replicas: int = 1,
    image: str = "",
    script: str = "",
    limits: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A worker; ``name`` is also its type if that is prefill or decode."""
    main: dict[str, Any] = {
        "name": "main",
        "image": image or f"{REGISTRY}/{IMAGES[engine]}:{version}",
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus), **(limits or {})}},
    }
    if script:
        main |= {"command": ["/bin/bash", "-c"], "args": [script]}
    else:
        main |= {"command": ["python3", "-m", f"dynamo.{engine}"], "args": list(args)}
    spec: dict[str, Any] = {"containers": [main]}
    if gpu:
        spec["nodeSelector"] = {"nvidia.com/gpu.product": PRODUCTS[gpu]}
    kind = name if name in ("prefill", "decode") else "worker"
    return {"name": name, "type": kind, "replicas": replicas, "podTemplate": {"spec": spec}}


def deployment(*components: Mapping[str, Any], router: str = "kv", version: str = "1.6.1") -> str:
    """A manifest with a frontend and ``components``."""
    main = {
        "name": "main",
        "image": f"{REGISTRY}/vllm-runtime:{version}",
        "env": [{"name": "DYN_ROUTER_MODE", "value": router}],
    }
    frontend = {
        "name": "frontend",
        "type": "frontend",
        "replicas": 1,
        "podTemplate": {"spec": {"containers": [main]}},
    }
    return dump(
        {
            "apiVersion": "nvidia.com/v1beta1",
            "kind": "DynamoGraphDeployment",
            "metadata": {"name": "case"},
            "spec": {"components": [frontend, *components]},
        }
    )


def connector(name: str, *children: Mapping[str, Any], **extra: Any) -> dict[str, Any]:
    """One KV connector of vLLM, as in --kv-transfer-config."""
    section: dict[str, Any] = {"kv_connector": name, "kv_role": "kv_both"}
    if name in ("DynamoConnector", "PdConnector"):
        section["kv_connector_module_path"] = "kvbm.vllm_integration.connector"
    settings = {**extra, **({"connectors": list(children)} if children else {})}
    return section | ({"kv_connector_extra_config": settings} if settings else {})


def transfer(name: str, *children: Mapping[str, Any], **extra: Any) -> tuple[str, str]:
    return "--kv-transfer-config", json.dumps(connector(name, *children, **extra))


def flags(model: str, **values: Any) -> tuple[str, ...]:
    """`--model M --tensor-parallel-size 4` of (M, tensor_parallel_size=4); True: a flag alone."""
    words = ["--model", model]
    for key, value in values.items():
        words.append(f"--{key.replace('_', '-')}")
        words += [] if value is True else [str(value)]
    return tuple(words)


def alpha(worker: Mapping[str, Any], spec: Mapping[str, Any] | None = None, **main: Any) -> str:
    """A v1alpha1 deployment with changes to its worker, its spec and the worker's container."""
    image = "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1"
    launch = ["python3", "-m", "dynamo.vllm", "--model", "openai/gpt-oss-120b"]
    container = {"image": image, "command": [*launch, "--tensor-parallel-size", "2"], **main}
    pod = {"mainContainer": container, **worker.get("extraPodSpec", {})}
    services = {
        "Frontend": {
            "componentType": "frontend",
            "extraPodSpec": {"mainContainer": {"image": image}},
        },
        "Worker": {
            "componentType": "worker",
            "resources": {"limits": {"gpu": "2"}},
            **worker,
            "extraPodSpec": pod,
        },
    }
    document = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "case"},
        "spec": {**(spec or {}), "services": services},
    }
    return dump(document)


def with_document(text: str, document: Mapping[str, Any]) -> str:
    return f"{text}---\n{dump(dict(document))}"


def claim(*modes: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "model-cache"},
        "spec": {"accessModes": list(modes)},
    }
