"""Cases of paths, ports, amounts and tokens of containers (PS723 to PS734), and of objectives."""

from __future__ import annotations

from typing import Any

import yaml

from tests.checks.own_manifests import alpha
from tests.checks.support import OMIT, Case, X, trtllm_agg, vary, vllm_agg, vllm_agg_dgd

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
    return vllm_agg_dgd(command)


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
    return vllm_agg({"slo": objectives})


def memory(amount: Any) -> dict[str, Any]:
    return {"worker/resources": {"memory": amount}}


OBJECTIVES = (
    vary("PS009", vllm_agg_dgd().replace, "spec:\n", X, 1)(
        "spec:\n  annotations: {team: a, team: a}\n",
        "spec:\n  annotations: {team: a}\n",
        is_repaired_by_near=True,
    ),
    vary("PS007", slo, ttft_ms=X)(0.5, 500.0),
    vary("PS007", slo, itl_ms=X)(0.02, 2.0),
    Case(
        "PS008",
        slo(ttft_ms=2000.0, e2e_ms=1000.0),
        slo(ttft_ms=1000.0, e2e_ms=2000.0),
        is_repaired_by_near=True,
    ),
)
PATHS = (
    vary("PS723", vllm_agg_dgd)(
        worker_args("--model", "/models/qwen") | mounted("/cache"),
        worker_args("--model", "/models/qwen") | mounted("/models"),
        is_repaired_by_near=True,
    ),
    vary("PS723", vllm_agg_dgd)(
        frontend_args("--model-path", "/models/qwen"),
        frontend_args("--model-path", "/workspace/qwen"),
    ),
    vary("PS724", vllm_agg_dgd)(
        worker_args("--model", "a/b", "--custom-jinja-template", "/etc2/chat.j2"),
        worker_args("--model", "a/b", "--custom-jinja-template", "/etc2/chat.j2")
        | mounted("/etc2"),
        is_repaired_by_near=True,
    ),
    vary("PS725", on_path, "1.0.1", volumeMounts=X)(
        OMIT, [{"name": "models", "mountPoint": "/models"}]
    ),
    vary("PS725", on_path)("0.9.1", "1.4.1"),
    vary("PS726", vllm_agg_dgd)(
        mounted("/cache", "model-cashe"), mounted("/cache"), is_repaired_by_near=True
    ),
)
PORTS = (
    vary("PS727", vllm_agg_dgd, {f"{WORKER}/{MAIN}/ports": X})(
        [METRICS], [METRICS, SYSTEM], is_repaired_by_near=True
    ),
    vary("PS728", vllm_agg_dgd, {f"{FRONTEND}/{MAIN}/livenessProbe": X})(
        probe("web"), probe("http"), is_repaired_by_near=True
    ),
    vary("PS729", vllm_agg_dgd)(
        frontend_args("--http-port", "8080"),
        frontend_args("--http-port", "8080")
        | {f"{FRONTEND}/{MAIN}/ports": [{"name": "http", "containerPort": 8080}]},
        is_repaired_by_near=True,
    ),
    vary("PS730", two_engines)(20080, 20081, is_repaired_by_near=True),
)
AMOUNTS = (
    vary("PS731", vllm_agg)(memory("128m"), memory("64Gi"), fixed=vllm_agg(memory("128Gi"))),
    vary("PS731", vllm_agg)(memory("64"), memory("2Gi")),
    vary("PS731", trtllm_agg, {"worker/resources": {"cpu": X}})("4000", "4000m"),
    vary("PS732", vllm_agg_dgd, {f"{WORKER}/{MAIN}/resources/limits/memory": X})(
        "128GB", "64G", fixed=vllm_agg_dgd({f"{WORKER}/{MAIN}/resources/limits/memory": "128Gi"})
    ),
    vary("PS733", vllm_agg, {"drain_timeout_s": X})(180_000, 1_800, is_repaired_by_near=True),
    vary("PS787", vllm_agg, {"slo": {"e2e_ms": 240_500.0}, "drain_timeout_s": X})(180, 241),
    vary("PS734", gated, envFromSecret=X)(OMIT, "hf-token-secret"),
)
CASES: tuple[Case, ...] = (*OBJECTIVES, *PATHS, *PORTS, *AMOUNTS)
