"""Cases of ConfigMaps, ports, Services, users and node labels of pods (PS730, PS735 to PS741)."""

from __future__ import annotations

from typing import Any

from tests.checks.own_manifests import component, deployment, with_document
from tests.checks.support import VLLM_AGG, Case, manifest

COMPONENTS = "dgd/spec/components"
POD = f"{COMPONENTS}/worker/podTemplate/spec"
MAIN = f"{POD}/containers/main"
FRONTEND = f"{COMPONENTS}/frontend/podTemplate/spec/containers/main"
GPU = f"{MAIN}/resources/limits/nvidia.com~1gpu"
MODEL = ("--model", "openai/gpt-oss-120b", "--block-size", "64")
EVENTS = '{"publisher":"zmq","topic":"kv","endpoint":"tcp://*:%d","enable_kv_cache_events":true}'
NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
PRODUCT = "nvidia.com/gpu.product"
VALIDATION = "--fail-on-environ-validation"
CHAT = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "chat-templates"},
    "data": {"gpt-oss.jinja": "{{ messages }}"},
}


def mounted(template: str, *, name: str = "chat-templates", **mount: Any) -> str:
    """A worker with a chat template from a ConfigMap of the same file."""
    at = {"name": "chat", "mountPath": "/chat", **mount}
    changes = {
        f"{POD}/volumes": [{"name": "chat", "configMap": {"name": name}}],
        f"{MAIN}/volumeMounts": [at],
        f"{MAIN}/args": [*MODEL, "--custom-jinja-template", template],
    }
    return with_document(manifest(VLLM_AGG, changes), CHAT)


def variables(**env: str) -> dict[str, Any]:
    return {f"{MAIN}/env/{name}": {"name": name, "value": text} for name, text in env.items()}


def nixl(events: int, side: int) -> str:
    launch = ["python3", "-m", "dynamo.vllm", "--model", "openai/gpt-oss-120b"]
    args = ["--kv-transfer-config", NIXL, "--kv-events-config", EVENTS % events]
    changes = {f"{MAIN}/command": launch, f"{MAIN}/args": args}
    return manifest(VLLM_AGG, {**changes, **variables(VLLM_NIXL_SIDE_CHANNEL_PORT=str(side))})


def probed(place: str, kind: str, port: int | str, **env: str) -> str:
    probe = {kind: {"port": port}, "failureThreshold": 720, "timeoutSeconds": 5}
    return manifest(VLLM_AGG, {f"{place}/startupProbe": probe, **variables(**env)})


def plain(*args: str, image: str = "", env: dict[str, str] | None = None, **spec: Any) -> str:
    """A deployment that nothing but its file decides: the chart's has HOME and no Service links."""
    worker = component("vllm", "--model", "Qwen/Qwen3-8B", *args, image=image, env=env)
    worker["podTemplate"]["spec"] |= spec
    return deployment(worker)


def in_namespaces(pods: str, service: str) -> str:
    text = with_service("vllm", plain())
    text = text.replace("  name: case\n", f"  name: case\n  namespace: {pods}\n", 1)
    return text.replace("  name: vllm\n", f"  name: vllm\n  namespace: {service}\n", 1)


def with_service(name: str, text: str, **spec: Any) -> str:
    ports = [{"port": 8000}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}
    return with_document(text, {**service, "spec": {"ports": ports, **spec}})


def user(uid: int, image: str = "", **env: str) -> str:
    return plain(image=image, env=env, securityContext={"runAsUser": uid})


def placed(operator: str, *values: str) -> str:
    """A worker with a node selector and a required affinity for one label."""
    expression = {"key": "gpu", "operator": operator} | ({"values": [*values]} if values else {})
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    changes = {f"{POD}/nodeSelector": {"gpu": "B200"}, f"{POD}/affinity": affinity}
    return manifest(VLLM_AGG, changes)


def spread(label: str) -> str:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"pool": label}},
    }
    labels = f"{COMPONENTS}/worker/podTemplate/metadata/labels"
    changes = {f"{POD}/topologySpreadConstraints": [constraint], labels: {"pool": "worker"}}
    return manifest(VLLM_AGG, changes)


CASES: tuple[Case, ...] = (
    Case(
        rule="PS205",
        bad=manifest(VLLM_AGG, {GPU: "0"}),
        near=manifest(VLLM_AGG, {GPU: "0", f"{POD}/resourceClaims": [{"name": "gpus"}]}),
    ),
    Case(
        rule="PS735",
        bad=mounted("/chat/gpt-oss.jinja2"),
        near=mounted("/chat/gpt-oss.jinja"),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS735",  # the kubelet mounts an empty folder
        bad=mounted("/chat.jinja", mountPath="/chat.jinja", subPath="gpt-oss.jinja2"),
        near=mounted("/chat.jinja", mountPath="/chat.jinja", subPath="gpt-oss.jinja"),
    ),
    Case(
        rule="PS735",  # another ConfigMap, which only the cluster has
        bad=mounted("/chat/missing.jinja"),
        near=mounted("/chat/missing.jinja", name="of-the-cluster"),
    ),
    Case(
        rule="PS736",
        bad=mounted("/chat/gpt-oss.jinja", name="chat-template"),
        near=mounted("/chat/gpt-oss.jinja", name="of-the-cluster"),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS730",  # two listeners of one process
        bad=nixl(20080, 20080),
        near=nixl(20080, 20081),
    ),
    Case(
        rule="PS730",  # the operator's port of the system server
        bad=nixl(9090, 5600),
        near=nixl(9091, 5600),
    ),
    Case(
        rule="PS737",
        bad=probed(MAIN, "httpGet", 8000),
        near=probed(MAIN, "httpGet", 9090),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS737",  # nothing speaks gRPC, and a listener that accepts connections
        bad=probed(MAIN, "grpc", 50051),
        near=probed(MAIN, "tcpSocket", "system"),
    ),
    Case(
        rule="PS737",
        bad=probed(MAIN, "httpGet", 9090, DYN_SYSTEM_PORT="9191"),
        near=probed(MAIN, "httpGet", 9191, DYN_SYSTEM_PORT="9191"),
    ),
    Case(
        rule="PS737",
        bad=probed(FRONTEND, "httpGet", 9090),
        near=probed(FRONTEND, "httpGet", "http"),
    ),
    Case(
        rule="PS738",
        bad=with_service("vllm", plain()),
        near=with_service("vllm-router", plain()),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS738",  # a headless Service sets no variables
        bad=with_service("vllm-dp-master", plain()),
        near=with_service("vllm", plain(), clusterIP="None"),
    ),
    Case(
        rule="PS738",
        bad=with_service("vllm", plain()),
        near=with_service("vllm", plain(enableServiceLinks=False)),
    ),
    Case(
        rule="PS738",  # Kubernetes sets the variables within a namespace
        bad=in_namespaces("chat", "chat"),
        near=in_namespaces("chat", "other"),
    ),
    Case(
        rule="PS738",  # read as a number only with NIXL
        bad=with_service("vllm-nixl-side-channel", plain("--kv-transfer-config", NIXL)),
        near=with_service("vllm-nixl-side-channel", plain()),
    ),
    Case(
        rule="PS738",  # each unknown variable, also of the operator's Services
        bad=plain(VALIDATION).replace("name: case", "name: vllm-agg"),
        near=plain(VALIDATION),
    ),
    Case(rule="PS739", bad=user(1000800000), near=user(1000), is_repaired_by_near=True),
    Case(rule="PS739", bad=user(2000), near=user(2000, TRITON_CACHE_DIR="/cache")),
    Case(
        rule="PS739",  # an image of one's own may have the user
        bad=user(70000, image="registry.example/engine:1"),
        near=user(2000, image="registry.example/engine:1"),
    ),
    Case(
        rule="PS740",
        bad=manifest(VLLM_AGG, {f"{POD}/nodeSelector": {PRODUCT: "NVIDIA-H100-80GB-HMB3"}}),
        near=manifest(VLLM_AGG, {f"{POD}/nodeSelector": {PRODUCT: "NVIDIA-H100-80GB-HBM2e"}}),
        fixed=manifest(VLLM_AGG, {f"{POD}/nodeSelector": {PRODUCT: "NVIDIA-H100-80GB-HBM3"}}),
    ),
    Case(
        rule="PS741",
        bad=placed("In", "GB200"),
        near=placed("In", "GB200", "B200"),
        is_repaired_by_near=True,
    ),
    Case(rule="PS741", bad=placed("NotIn", "B200"), near=placed("NotIn", "GB200")),
    Case(rule="PS741", bad=placed("DoesNotExist"), near=placed("Exists")),
    Case(rule="PS741", bad=spread("workr"), near=spread("worker")),
)
