"""Cases of pods, startup and shutdown, volumes and secrets (PS701 to PS722)."""

from __future__ import annotations

from tests.checks.own_manifests import alpha, claim, with_document
from tests.checks.support import (
    REMOVE,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    VLLM_AGG,
    Case,
    graph,
    manifest,
)

MAIN = "podTemplate/spec/containers/main"
WORKER = f"dgd/spec/components/worker/{MAIN}"
PREFILL = f"dgd/spec/components/prefill/{MAIN}"
DECODE = f"dgd/spec/components/decode/{MAIN}"
FRONTEND = f"dgd/spec/components/frontend/{MAIN}"
DECODE_GRACE = "dgd/spec/components/decode/podTemplate/spec/terminationGracePeriodSeconds"
PREFILL_GRACE = "dgd/spec/components/prefill/podTemplate/spec/terminationGracePeriodSeconds"
HTTP_DRAIN = "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"
FINISH = {"name": "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS", "value": "10"}
SHM_MOUNT = [{"name": "shm", "mountPath": "/dev/shm"}]
RACK = {"gpu": "gb200", "gpus_per_node": 4}
ON_RACK = {**TRTLLM_AGG, "hardware": RACK}
TOLERATIONS = "dgd/spec/components/worker/podTemplate/spec/tolerations"
ARM = {"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}
GPU_TAINT = {"key": "nvidia.com/gpu", "operator": "Exists"}
PRODUCT = "nvidia.com/gpu.product"
TOKEN = "hf_" + "a" * 32
SLOW = {"httpGet": {"path": "/live", "port": 9090}, "periodSeconds": 10}
QUICK = {"httpGet": {"path": "/live", "port": 9090}, "periodSeconds": 5}
CLAIM = {"create": True, "name": "models", "size": "200Gi", "storageClass": "nfs"}


def with_code(mount: str, key: str = "m.zip", **env: str) -> str:
    """A manifest whose worker mounts a ConfigMap with one key."""
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "code"},
        "data": {key: "print('ran')"},
    }
    changes = {f"{WORKER}/env/{n}": {"name": n, "value": value} for n, value in env.items()}
    pod = "dgd/spec/components/worker/podTemplate/spec"
    text = manifest(
        VLLM_AGG,
        {
            f"{pod}/volumes": [{"name": "code", "configMap": {"name": "code"}}],
            f"{WORKER}/volumeMounts": [{"name": "code", "mountPath": mount}],
            **changes,
        },
    )
    return with_document(text, config)


MEMORY = (
    Case(
        rule="PS701",
        bad=graph(TRTLLM_AGG, {"worker/shared_memory": "512Mi"}),
        near=graph(TRTLLM_AGG, {"worker/shared_memory": "1Gi"}),
    ),
    Case(
        rule="PS701",
        bad=manifest(VLLM_AGG, {"dgd/spec/components/worker/sharedMemorySize": 0}),
        near=manifest(
            VLLM_AGG,
            {
                "dgd/spec/components/worker/sharedMemorySize": 0,
                f"{WORKER}/volumeMounts": SHM_MOUNT,
            },
        ),
    ),
    Case(
        rule="PS701",
        bad=alpha({"sharedMemory": {"disabled": True}}),
        near=alpha({"sharedMemory": {"disabled": False}}),
    ),
    Case(
        rule="PS702",
        bad=graph(TRTLLM_AGG, {"worker/shared_memory": REMOVE}),
        near=graph(TRTLLM_AGG, {"worker/shared_memory": REMOVE, "worker/gpus": 1}),
    ),
    Case(
        rule="PS702",
        bad=alpha({}),
        near=alpha({"sharedMemory": {"size": "8Gi"}}),
    ),
    Case(
        rule="PS703",
        bad=graph(TRTLLM_AGG, {"worker/resources/memory": "64Gi"}),
        near=graph(TRTLLM_AGG, {"worker/resources/memory": "65Gi"}),
    ),
    Case(
        rule="PS703",  # the operator's default of 8Gi counts too
        bad=alpha({"resources": {"limits": {"gpu": "2", "memory": "8Gi"}}}),
        near=alpha({"resources": {"limits": {"gpu": "2", "memory": "80Gi"}}}),
    ),
    Case(
        rule="PS704",
        bad=manifest(TRTLLM_DISAGG, {f"{DECODE}/resources/requests/rdma~1ib": 2}),
        near=manifest(TRTLLM_DISAGG, {f"{DECODE}/resources/requests/rdma~1ib": 4}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS704",
        bad=manifest(TRTLLM_DISAGG, {f"{PREFILL}/resources/limits/rdma~1ib": REMOVE}),
        near=manifest(TRTLLM_DISAGG, {f"{PREFILL}/resources/requests/rdma~1ib": REMOVE}),
    ),
    Case(
        rule="PS720",  # 4 ranks of 16 GiB and 64 GiB of shared memory
        bad=graph(
            TRTLLM_AGG,
            {
                "worker/config/kv_cache_config/host_cache_size": 16 * 2**30,
                "worker/resources/memory": "128Gi",
            },
        ),
        near=graph(
            TRTLLM_AGG,
            {
                "worker/config/kv_cache_config/host_cache_size": 16 * 2**30,
                "worker/resources/memory": "129Gi",
            },
        ),
    ),
    Case(
        rule="PS720",  # the limit is per pod, with 4 of 8 ranks
        bad=graph(
            TRTLLM_AGG,
            {
                "worker/nodes": 2,
                "worker/config/kv_cache_config/host_cache_size": 32 * 2**30,
                "worker/resources/memory": "192Gi",
            },
        ),
        near=graph(
            TRTLLM_AGG,
            {
                "worker/nodes": 2,
                "worker/config/kv_cache_config/host_cache_size": 16 * 2**30,
                "worker/resources/memory": "192Gi",
            },
        ),
    ),
)

STOP_AND_START = (
    Case(
        rule="PS705",  # 180 + 25 s, and 30 s more for TensorRT-LLM prefill
        bad=manifest(TRTLLM_DISAGG, {PREFILL_GRACE: 220}),
        near=manifest(TRTLLM_DISAGG, {DECODE_GRACE: 220}),
    ),
    Case(
        rule="PS705",
        bad=graph(TRTLLM_AGG, {"worker/env/DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "216"}),
        near=graph(TRTLLM_AGG, {"worker/env/DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "215"}),
    ),
    Case(
        rule="PS705",  # Dynamo's 900 s in addition to those for requests
        bad=alpha({"extraPodSpec": {"terminationGracePeriodSeconds": 909}}, env=[FINISH]),
        near=alpha({"extraPodSpec": {"terminationGracePeriodSeconds": 910}}, env=[FINISH]),
    ),
    Case(
        rule="PS705",  # enough time, but requests are aborted after 5 s
        bad=alpha({"extraPodSpec": {"terminationGracePeriodSeconds": 910}}),
        near=alpha({"extraPodSpec": {"terminationGracePeriodSeconds": 910}}, env=[FINISH]),
    ),
    Case(
        rule="PS706",
        bad=graph(TRTLLM_AGG, {"drain_timeout_s": 5}),
        near=graph(TRTLLM_AGG, {"drain_timeout_s": 6}),
    ),
    Case(
        rule="PS706",
        bad=manifest(TRTLLM_AGG, {f"{FRONTEND}/env/{HTTP_DRAIN}": REMOVE}),
        near=manifest(
            TRTLLM_AGG, {f"{FRONTEND}/env/{HTTP_DRAIN}": {"name": HTTP_DRAIN, "value": "45"}}
        ),
    ),
    Case(
        rule="PS706",
        bad=graph(TRTLLM_AGG, {f"frontend/env/{HTTP_DRAIN}": "241"}),
        near=graph(TRTLLM_AGG, {f"frontend/env/{HTTP_DRAIN}": "240"}),
    ),
    Case(
        rule="PS707",
        bad=manifest(VLLM_AGG, {f"{WORKER}/startupProbe": {**SLOW, "failureThreshold": 12}}),
        near=manifest(VLLM_AGG, {f"{WORKER}/startupProbe": {**SLOW, "failureThreshold": 60}}),
    ),
    Case(
        rule="PS707",
        bad=alpha({}, startupProbe={**QUICK, "failureThreshold": 30}),
        near=alpha({}, startupProbe={**QUICK, "failureThreshold": 30, "initialDelaySeconds": 600}),
    ),
    Case(
        rule="PS708",  # the operator's period, but it allows three failures
        bad=manifest(VLLM_AGG, {f"{WORKER}/livenessProbe": {**QUICK, "failureThreshold": 1}}),
        near=manifest(
            VLLM_AGG,
            {f"{WORKER}/livenessProbe": {**QUICK, "failureThreshold": 3, "timeoutSeconds": 4}},
        ),
    ),
    Case(
        rule="PS708",  # one failure, but after a long timeout
        bad=manifest(VLLM_AGG, {f"{WORKER}/livenessProbe": {**QUICK, "failureThreshold": 1}}),
        near=manifest(
            VLLM_AGG,
            {f"{WORKER}/livenessProbe": {**QUICK, "failureThreshold": 1, "timeoutSeconds": 30}},
        ),
    ),
    Case(
        rule="PS708",
        bad=alpha({"livenessProbe": {**SLOW, "failureThreshold": 1, "initialDelaySeconds": 600}}),
        near=alpha({"livenessProbe": SLOW}),
    ),
    Case(
        rule="PS716",
        bad=graph(TRTLLM_AGG, {"worker/env/DYN_SYSTEM_PORT": "9091"}),
        near=graph(TRTLLM_AGG, {"worker/env/DYN_SYSTEM_PORT": "9090"}),
    ),
    Case(
        rule="PS716",
        bad=alpha({}, env=[{"name": "DYN_SYSTEM_PORT", "value": "8081"}]),
        near=alpha(
            {},
            env=[{"name": "DYN_SYSTEM_PORT", "value": "8081"}],
            ports=[{"name": "system", "containerPort": 8081}],
        ),
    ),
    Case(
        rule="PS716",
        bad=alpha({}, env=[{"name": "DYN_SYSTEM_PORT", "value": "8081"}], startupProbe=SLOW),
        near=alpha(
            {},
            env=[{"name": "DYN_SYSTEM_PORT", "value": "8081"}],
            startupProbe=SLOW,
            livenessProbe=SLOW,
        ),
    ),
)

RIGHTS_AND_NODES = (
    Case(
        rule="PS709",
        bad=graph(TRTLLM_AGG, {"worker/pod/initContainers": [{"name": "runtime"}]}),
        near=graph(TRTLLM_AGG, {"worker/pod/initContainers": [{"name": "runtime-files"}]}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS709",
        bad=alpha({"extraPodSpec": {"initContainers": [{"name": "runtime"}]}}),
        near=alpha({"extraPodSpec": {"initContainers": [{"name": "download"}]}}),
    ),
    Case(
        rule="PS711",
        bad=manifest(TRTLLM_DISAGG, {f"{DECODE}/securityContext/privileged": True}),
        near=manifest(TRTLLM_DISAGG, {f"{DECODE}/securityContext/privileged": False}),
    ),
    Case(
        rule="PS712",
        bad=graph(TRTLLM_AGG, {"worker/pod/hostNetwork": True, "worker/replicas": 2}),
        near=graph(TRTLLM_AGG, {"worker/pod/hostNetwork": True, "worker/replicas": 1}),
    ),
    Case(
        rule="PS717",
        bad=graph(TRTLLM_AGG, {"worker/pod/nodeSelector": {PRODUCT: "NVIDIA-B300"}}),
        near=graph(TRTLLM_AGG, {"worker/pod/nodeSelector": {PRODUCT: "NVIDIA-B200"}}),
        also=("PS741",),
    ),
    Case(
        rule="PS717",
        bad=alpha({"extraPodSpec": {"nodeSelector": {PRODUCT: "NVIDIA-H100-80GB-HBM3"}}}),
        near=alpha({"extraPodSpec": {"nodeSelector": {PRODUCT: "NVIDIA-H200"}}}),
        gpu="h200",
    ),
    Case(
        rule="PS718",
        bad=manifest(ON_RACK, {TOLERATIONS: [GPU_TAINT]}),
        near=manifest(ON_RACK, {TOLERATIONS: [GPU_TAINT, ARM]}),
    ),
    Case(
        rule="PS718",
        bad=manifest(ON_RACK, {TOLERATIONS: REMOVE}),
        near=graph(ON_RACK),
    ),
    Case(
        rule="PS719",
        bad=manifest(VLLM_AGG, {f"{WORKER}/resources/requests/nvidia.com~1gpu": "0.5"}),
        near=manifest(VLLM_AGG, {f"{WORKER}/resources/requests/nvidia.com~1gpu": "2"}),
        is_repaired_by_near=True,
        also=("PS704",),
    ),
)

CODE = (
    Case(
        rule="PS722",
        bad=with_code("/etc/x", PYTHONPATH="/opt/lib:/etc/x/m.zip"),
        near=with_code("/etc/x", PYTHONPATH="/opt/lib:/etc/xy"),
        fixed=with_code("/etc/x", PYTHONPATH="/opt/lib"),
    ),
    Case(
        rule="PS722",
        bad=with_code("/hooks", LD_PRELOAD="/hooks/../hooks/a.so"),
        near=with_code("/hooks", DYN_ROUTER_POLICY_CONFIG="/hooks/policy.yaml"),
    ),
    Case(
        rule="PS722",
        bad=with_code("/usr/lib/python3.12/site-packages/extra"),
        near=with_code("/etc/python"),
    ),
    Case(
        rule="PS722",
        bad=with_code("/opt/a", key="sitecustomize.py"),
        near=with_code("/opt/a", key="customize.py"),
    ),
)

VOLUMES = (
    Case(
        rule="PS710",
        bad=graph(TRTLLM_AGG, {"worker/env/HF_TOKEN": TOKEN}),
        near=graph(TRTLLM_AGG, {"model/token_secret": "hf-token-secret"}),
    ),
    Case(
        rule="PS710",
        bad=graph(TRTLLM_AGG, {"frontend/env/GATEWAY_API_KEY": "0123456789abcdef"}),
        near=graph(TRTLLM_AGG, {"frontend/env/GATEWAY_API_KEY": "/run/secrets/gateway"}),
    ),
    Case(
        rule="PS710",  # a variable may reference another one
        bad=manifest(VLLM_AGG, {f"{WORKER}/env/T": {"name": "HF_TOKEN", "value": TOKEN}}),
        near=manifest(
            VLLM_AGG, {f"{WORKER}/env/T": {"name": "HF_TOKEN", "value": "$(HUGGING_FACE_TOKEN)"}}
        ),
    ),
    Case(
        rule="PS713",
        bad=with_document(manifest(TRTLLM_AGG), claim("ReadWriteOnce")),
        near=with_document(manifest(TRTLLM_AGG), claim("ReadWriteOnce", "ReadWriteMany")),
        fixed=with_document(manifest(TRTLLM_AGG), claim("ReadWriteMany")),
    ),
    Case(
        rule="PS713",
        bad=with_document(
            alpha({"replicas": 2, "volumeMounts": [{"name": "model-cache"}]}),
            claim("ReadWriteOncePod"),
        ),
        near=with_document(
            alpha({"replicas": 1, "volumeMounts": [{"name": "model-cache"}]}),
            claim("ReadWriteOncePod"),
        ),
    ),
    Case(
        rule="PS714",
        bad=graph(TRTLLM_AGG, {"model/cache": REMOVE}),
        near=graph(
            TRTLLM_AGG,
            {
                "model/cache": REMOVE,
                "worker/pod/volumes": [{"name": "models", "hostPath": {"path": "/models"}}],
            },
        ),
    ),
    Case(
        rule="PS714",
        bad=graph(VLLM_AGG, {"model/cache": REMOVE}),
        near=graph(VLLM_AGG, {"model/cache": REMOVE, "model/path": "/models/gpt-oss-120b"}),
    ),
    Case(
        rule="PS715",
        bad=graph(TRTLLM_AGG, {"model/cache/mount_path": "/root"}),
        near=graph(
            TRTLLM_AGG,
            {
                "model/cache/mount_path": "/root",
                "worker/pod/securityContext": {"runAsUser": 0},
            },
        ),
        fixed=graph(TRTLLM_AGG),
    ),
    Case(
        rule="PS721",
        bad=alpha({}, {"pvcs": [CLAIM]}),
        near=alpha({}, {"pvcs": [{**CLAIM, "volumeAccessMode": "ReadWriteMany"}]}),
    ),
    Case(
        rule="PS721",
        bad=alpha({}, {"pvcs": [{"create": True, "name": "models"}]}),
        near=alpha({}, {"pvcs": [{"create": False, "name": "models"}]}),
    ),
)

CASES: tuple[Case, ...] = (*MEMORY, *STOP_AND_START, *RIGHTS_AND_NODES, *VOLUMES, *CODE)
