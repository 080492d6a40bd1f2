"""Cases of paths, ports, amounts and tokens of containers (PS723 to PS734), and of objectives."""

from __future__ import annotations

from typing import Any

import yaml

from tests.checks.own_manifests import alpha
from tests.checks.support import TRTLLM_AGG, VLLM_AGG, Case, graph, manifest

COMPONENTS = "dgd/spec/components"
MAIN = "podTemplate/spec/containers/main"
WORKER, FRONTEND = f"{COMPONENTS}/worker", f"{COMPONENTS}/frontend"
IMAGE = "nvcr.io/nvidia/ai-dynamo/vllm-runtime"
SYSTEM = {"name": "system", "containerPort": 9090}
METRICS = {"name": "metrics", "containerPort": 9400}
EVENTS = '{"publisher":"zmq","topic":"kv","endpoint":"tcp://*:%d","enable_kv_cache_events":true}'


def worker_args(*args: str) -> dict[str, Any]:
    launch = ["python3", "-m", "dynamo.vllm", "--block-size", "64"]
    return {f"{WORKER}/{MAIN}/command": launch, f"{WORKER}/{MAIN}/args": list(args)}


def frontend_args(*args: str) -> dict[str, Any]:
    command = ["python3", "-m", "dynamo.frontend"]
    return {f"{FRONTEND}/{MAIN}/command": command, f"{FRONTEND}/{MAIN}/args": list(args)}


def mounted(path: str, name: str = "model-cache") -> dict[str, Any]:
    return {
        f"{WORKER}/{MAIN}/volumeMounts": [{"name": name, "mountPath": path}],
        f"{WORKER}/podTemplate/spec/volumes": [
            {"name": "model-cache", "persistentVolumeClaim": {"claimName": "model-cache"}}
        ],
    }


def on_path(version: str, **frontend: Any) -> str:
    """Workers that load a model from a volume, and a frontend."""
    image = f"{IMAGE}:{version}"
    documents = list(
        yaml.safe_load_all(
            alpha(
                {"volumeMounts": [{"name": "models", "mountPoint": "/models"}]},
                image=image,
                command=["python3", "-m", "dynamo.vllm", "--model", "/models/qwen"],
            )
        )
    )
    services = documents[0]["spec"]["services"]
    services["Frontend"]["extraPodSpec"]["mainContainer"]["image"] = image
    services["Frontend"] |= frontend
    return yaml.safe_dump_all(documents)


def two_engines(second: int) -> str:
    launch = "python3 -m dynamo.vllm --model openai/gpt-oss-120b --kv-events-config"
    script = f"{launch} '{EVENTS % 20080}' &\n{launch} '{EVENTS % second}' &\nwait -n\n"
    command = {f"{WORKER}/{MAIN}/command": ["bash", "-c"], f"{WORKER}/{MAIN}/args": [script]}
    return manifest(VLLM_AGG, command)


def gated(**frontend: Any) -> str:
    image = f"{IMAGE}:1.3.1"
    command = ["python3", "-m", "dynamo.vllm", "--model", "meta-llama/Llama-3.3-70B-Instruct"]
    document = yaml.safe_load(
        alpha({"envFromSecret": "hf-token-secret"}, image=image, command=command)
    )
    service = document["spec"]["services"]["Frontend"]
    service["extraPodSpec"]["mainContainer"]["image"] = image
    service |= frontend
    return yaml.safe_dump(document)


def probe(port: str) -> dict[str, Any]:
    return {"httpGet": {"path": "/live", "port": port}}


def slo(**objectives: float) -> str:
    return graph(VLLM_AGG, {"slo": objectives})


def memory(amount: Any) -> dict[str, Any]:
    return {"worker/resources": {"memory": amount}}


OBJECTIVES = (
    Case(
        rule="PS009",
        bad=manifest(VLLM_AGG).replace("spec:\n", "spec:\n  annotations: {team: a, team: a}\n", 1),
        near=manifest(VLLM_AGG).replace("spec:\n", "spec:\n  annotations: {team: a}\n", 1),
        is_repaired_by_near=True,
    ),
    Case(rule="PS007", bad=slo(ttft_ms=0.5), near=slo(ttft_ms=500.0)),
    Case(rule="PS007", bad=slo(itl_ms=0.02), near=slo(itl_ms=2.0)),
    Case(
        rule="PS008",
        bad=slo(ttft_ms=2000.0, e2e_ms=1000.0),
        near=slo(ttft_ms=1000.0, e2e_ms=2000.0),
        is_repaired_by_near=True,
    ),
)
PATHS = (
    Case(
        rule="PS723",
        bad=manifest(VLLM_AGG, worker_args("--model", "/models/qwen") | mounted("/cache")),
        near=manifest(VLLM_AGG, worker_args("--model", "/models/qwen") | mounted("/models")),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS723",
        bad=manifest(VLLM_AGG, frontend_args("--model-path", "/models/qwen")),
        near=manifest(VLLM_AGG, frontend_args("--model-path", "/workspace/qwen")),
    ),
    Case(
        rule="PS724",
        bad=manifest(
            VLLM_AGG, worker_args("--model", "a/b", "--custom-jinja-template", "/etc2/chat.j2")
        ),
        near=manifest(
            VLLM_AGG,
            worker_args("--model", "a/b", "--custom-jinja-template", "/etc2/chat.j2")
            | mounted("/etc2"),
        ),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS725",
        bad=on_path("1.0.1"),
        near=on_path("1.0.1", volumeMounts=[{"name": "models", "mountPoint": "/models"}]),
    ),
    Case(rule="PS725", bad=on_path("0.9.1"), near=on_path("1.4.1")),
    Case(
        rule="PS726",
        bad=manifest(VLLM_AGG, mounted("/cache", "model-cashe")),
        near=manifest(VLLM_AGG, mounted("/cache")),
        is_repaired_by_near=True,
    ),
)
PORTS = (
    Case(
        rule="PS727",
        bad=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/ports": [METRICS]}),
        near=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/ports": [METRICS, SYSTEM]}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS728",
        bad=manifest(VLLM_AGG, {f"{FRONTEND}/{MAIN}/livenessProbe": probe("web")}),
        near=manifest(VLLM_AGG, {f"{FRONTEND}/{MAIN}/livenessProbe": probe("http")}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS729",
        bad=manifest(VLLM_AGG, frontend_args("--http-port", "8080")),
        near=manifest(
            VLLM_AGG,
            frontend_args("--http-port", "8080")
            | {f"{FRONTEND}/{MAIN}/ports": [{"name": "http", "containerPort": 8080}]},
        ),
        is_repaired_by_near=True,
    ),
    Case(rule="PS730", bad=two_engines(20080), near=two_engines(20081), is_repaired_by_near=True),
)
AMOUNTS = (
    Case(
        rule="PS731",
        bad=graph(VLLM_AGG, memory("128m")),
        near=graph(VLLM_AGG, memory("64Gi")),
        fixed=graph(VLLM_AGG, memory("128Gi")),
    ),
    Case(
        rule="PS731",
        bad=graph(VLLM_AGG, memory("64")),
        near=graph(VLLM_AGG, memory("2Gi")),
    ),
    Case(
        rule="PS731",
        bad=graph(TRTLLM_AGG, {"worker/resources": {"cpu": "4000"}}),
        near=graph(TRTLLM_AGG, {"worker/resources": {"cpu": "4000m"}}),
    ),
    Case(
        rule="PS732",
        bad=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/resources/limits/memory": "128GB"}),
        near=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/resources/limits/memory": "64G"}),
        fixed=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/resources/limits/memory": "128Gi"}),
    ),
    Case(
        rule="PS733",
        bad=graph(VLLM_AGG, {"drain_timeout_s": 180_000}),
        near=graph(VLLM_AGG, {"drain_timeout_s": 1_800}),
        is_repaired_by_near=True,
    ),
    Case(rule="PS734", bad=gated(), near=gated(envFromSecret="hf-token-secret")),
)
CASES: tuple[Case, ...] = (*OBJECTIVES, *PATHS, *PORTS, *AMOUNTS)
