"""Cases of ConfigMaps, ports, Services, users and node labels of pods (PS730, PS735 to PS741)."""

from __future__ import annotations

from typing import Any

from tests.checks.own_manifests import component, deployment, with_document
from tests.checks.support import OMIT, Case, X, vary, vllm_agg_dgd

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
    return with_document(vllm_agg_dgd(changes), CHAT)


def variables(**env: str) -> dict[str, Any]:
    return {f"{MAIN}/env/{name}": {"name": name, "value": text} for name, text in env.items()}


def nixl(events: int, side: int) -> str:
    launch = ["python3", "-m", "dynamo.vllm", "--model", "openai/gpt-oss-120b"]
    args = ["--kv-transfer-config", NIXL, "--kv-events-config", EVENTS % events]
    changes = {f"{MAIN}/command": launch, f"{MAIN}/args": args}
    return vllm_agg_dgd({**changes, **variables(VLLM_NIXL_SIDE_CHANNEL_PORT=str(side))})


def probed(place: str, kind: str, port: int | str, **env: str) -> str:
    probe = {kind: {"port": port}, "failureThreshold": 720, "timeoutSeconds": 5}
    return vllm_agg_dgd({f"{place}/startupProbe": probe, **variables(**env)})


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
    return vllm_agg_dgd(changes)


def spread(label: str) -> str:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"pool": label}},
    }
    labels = f"{COMPONENTS}/worker/podTemplate/metadata/labels"
    changes = {f"{POD}/topologySpreadConstraints": [constraint], labels: {"pool": "worker"}}
    return vllm_agg_dgd(changes)


CASES: tuple[Case, ...] = (
    vary("PS205", vllm_agg_dgd, {GPU: "0", f"{POD}/resourceClaims": X})(OMIT, [{"name": "gpus"}]),
    vary("PS735", mounted)("/chat/gpt-oss.jinja2", "/chat/gpt-oss.jinja", is_repaired_by_near=True),
    # the kubelet mounts an empty folder
    vary("PS735", mounted, "/chat.jinja", mountPath="/chat.jinja", subPath=X)(
        "gpt-oss.jinja2", "gpt-oss.jinja"
    ),
    # another ConfigMap, which only the cluster has
    vary("PS735", mounted, "/chat/missing.jinja", name=X)(OMIT, "of-the-cluster"),
    vary("PS736", mounted, "/chat/gpt-oss.jinja", name=X)(
        "chat-template", "of-the-cluster", is_repaired_by_near=True
    ),
    vary("PS730", nixl, 20080, X)(20080, 20081),  # two listeners of one process
    vary("PS730", nixl, X, 5600)(9090, 9091),  # the operator's port of the system server
    vary("PS737", probed, MAIN, "httpGet", X)(8000, 9090, is_repaired_by_near=True),
    # nothing speaks gRPC, and a listener that accepts connections
    Case("PS737", probed(MAIN, "grpc", 50051), probed(MAIN, "tcpSocket", "system")),
    vary("PS737", probed, MAIN, "httpGet", X, DYN_SYSTEM_PORT="9191")(9090, 9191),
    vary("PS737", probed, FRONTEND, "httpGet", X)(9090, "http"),
    vary("PS738", with_service, X, plain())("vllm", "vllm-router", is_repaired_by_near=True),
    # a headless Service sets no variables
    Case(
        "PS738",
        with_service("vllm-dp-master", plain()),
        with_service("vllm", plain(), clusterIP="None"),
    ),
    vary("PS738", with_service, "vllm", X)(plain(), plain(enableServiceLinks=False)),
    # Kubernetes sets the variables within a namespace
    vary("PS738", in_namespaces, "chat", X)("chat", "other"),
    # read as a number only with NIXL
    vary("PS738", with_service, "vllm-nixl-side-channel", X)(
        plain("--kv-transfer-config", NIXL), plain()
    ),
    # each unknown variable, also of the operator's Services
    Case("PS738", plain(VALIDATION).replace("name: case", "name: vllm-agg"), plain(VALIDATION)),
    vary("PS739", user)(1000800000, 1000, is_repaired_by_near=True),
    vary("PS739", user, 2000, TRITON_CACHE_DIR=X)(OMIT, "/cache"),
    # an image of one's own may have the user
    vary("PS739", user, X, image="registry.example/engine:1")(70000, 2000),
    vary("PS740", vllm_agg_dgd, {f"{POD}/nodeSelector": {PRODUCT: X}})(
        "NVIDIA-H100-80GB-HMB3",
        "NVIDIA-H100-80GB-HBM2e",
        fixed=vllm_agg_dgd({f"{POD}/nodeSelector": {PRODUCT: "NVIDIA-H100-80GB-HBM3"}}),
    ),
    vary("PS741", placed, "In", "GB200", X)(OMIT, "B200", is_repaired_by_near=True),
    vary("PS741", placed, "NotIn", X)("B200", "GB200"),
    vary("PS741", placed)("DoesNotExist", "Exists"),
    vary("PS741", spread)("workr", "worker"),
)
