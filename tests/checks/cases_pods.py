"""Cases of pods, startup and shutdown, volumes and secrets (PS701 to PS722)."""

from __future__ import annotations

from tests.checks.own_manifests import alpha, claim, with_document
from tests.checks.support import (
    OMIT,
    REMOVE,
    TRTLLM_AGG,
    Case,
    X,
    graph,
    manifest,
    trtllm_agg,
    trtllm_agg_dgd,
    trtllm_disagg_dgd,
    vary,
    vllm_agg,
    vllm_agg_dgd,
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
    text = vllm_agg_dgd(
        {
            f"{pod}/volumes": [{"name": "code", "configMap": {"name": "code"}}],
            f"{WORKER}/volumeMounts": [{"name": "code", "mountPath": mount}],
            **changes,
        }
    )
    return with_document(text, config)


MEMORY = (
    vary("PS701", trtllm_agg, {"worker/shared_memory": X})("512Mi", "1Gi"),
    vary(
        "PS701",
        vllm_agg_dgd,
        {"dgd/spec/components/worker/sharedMemorySize": 0, f"{WORKER}/volumeMounts": X},
    )(OMIT, SHM_MOUNT),
    vary("PS701", alpha, {"sharedMemory": {"disabled": X}})(True, False),
    vary("PS702", trtllm_agg, {"worker/shared_memory": REMOVE, "worker/gpus": X})(OMIT, 1),
    vary("PS702", alpha, {"sharedMemory": X})(OMIT, {"size": "8Gi"}),
    vary("PS703", trtllm_agg, {"worker/resources/memory": X})("64Gi", "65Gi"),
    # the operator's default of 8Gi counts too
    vary("PS703", alpha, {"resources": {"limits": {"gpu": "2", "memory": X}}})("8Gi", "80Gi"),
    vary("PS704", trtllm_disagg_dgd, {f"{DECODE}/resources/requests/rdma~1ib": X})(
        2, 4, is_repaired_by_near=True
    ),
    vary("PS704", trtllm_disagg_dgd)(
        {f"{PREFILL}/resources/limits/rdma~1ib": REMOVE},
        {f"{PREFILL}/resources/requests/rdma~1ib": REMOVE},
    ),
    # 4 ranks of 16 GiB and 64 GiB of shared memory
    vary(
        "PS720",
        trtllm_agg,
        {"worker/config/kv_cache_config/host_cache_size": 16 * 2**30, "worker/resources/memory": X},
    )("128Gi", "129Gi"),
    # the limit is per pod, with 4 of 8 ranks
    vary(
        "PS720",
        trtllm_agg,
        {
            "worker/nodes": 2,
            "worker/config/kv_cache_config/host_cache_size": X,
            "worker/resources/memory": "192Gi",
        },
    )(32 * 2**30, 16 * 2**30),
)

STOP_AND_START = (
    # 180 + 25 s, and 30 s more for TensorRT-LLM prefill
    vary("PS705", trtllm_disagg_dgd)({PREFILL_GRACE: 220}, {DECODE_GRACE: 220}),
    vary("PS705", trtllm_agg, {"worker/env/DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": X})(
        "216", "215"
    ),
    # Dynamo's 900 s in addition to those for requests
    vary("PS705", alpha, {"extraPodSpec": {"terminationGracePeriodSeconds": X}}, env=[FINISH])(
        909, 910
    ),
    # enough time, but requests are aborted after 5 s
    vary("PS705", alpha, {"extraPodSpec": {"terminationGracePeriodSeconds": 910}}, env=X)(
        OMIT, [FINISH]
    ),
    vary("PS706", trtllm_agg, {"drain_timeout_s": X})(5, 6),
    vary("PS706", trtllm_agg_dgd, {f"{FRONTEND}/env/{HTTP_DRAIN}": X})(
        REMOVE, {"name": HTTP_DRAIN, "value": "45"}
    ),
    vary("PS706", trtllm_agg, {f"frontend/env/{HTTP_DRAIN}": X})("241", "240"),
    vary("PS707", vllm_agg_dgd, {f"{WORKER}/startupProbe": {**SLOW, "failureThreshold": X}})(
        12, 60
    ),
    vary("PS707", alpha, {}, startupProbe=X)(
        {**QUICK, "failureThreshold": 30},
        {**QUICK, "failureThreshold": 30, "initialDelaySeconds": 600},
    ),
    # the operator's period, but it allows three failures
    vary("PS708", vllm_agg_dgd, {f"{WORKER}/livenessProbe": X})(
        {**QUICK, "failureThreshold": 1}, {**QUICK, "failureThreshold": 3, "timeoutSeconds": 4}
    ),
    # one failure, but after a long timeout
    vary(
        "PS708",
        vllm_agg_dgd,
        {f"{WORKER}/livenessProbe": {**QUICK, "failureThreshold": 1, "timeoutSeconds": X}},
    )(OMIT, 30),
    vary("PS708", alpha, {"livenessProbe": X})(
        {**SLOW, "failureThreshold": 1, "initialDelaySeconds": 600}, SLOW
    ),
    vary("PS716", trtllm_agg, {"worker/env/DYN_SYSTEM_PORT": X})("9091", "9090"),
    vary("PS716", alpha, {}, env=[{"name": "DYN_SYSTEM_PORT", "value": "8081"}], ports=X)(
        OMIT, [{"name": "system", "containerPort": 8081}]
    ),
    vary(
        "PS716",
        alpha,
        {},
        env=[{"name": "DYN_SYSTEM_PORT", "value": "8081"}],
        startupProbe=SLOW,
        livenessProbe=X,
    )(OMIT, SLOW),
)

RIGHTS_AND_NODES = (
    vary("PS709", trtllm_agg, {"worker/pod/initContainers": X})(
        [{"name": "runtime"}], [{"name": "runtime-files"}], is_repaired_by_near=True
    ),
    vary("PS709", alpha, {"extraPodSpec": {"initContainers": X}})(
        [{"name": "runtime"}], [{"name": "download"}]
    ),
    vary("PS711", trtllm_disagg_dgd, {f"{DECODE}/securityContext/privileged": X})(True, False),
    vary("PS712", trtllm_agg, {"worker/pod/hostNetwork": True, "worker/replicas": X})(2, 1),
    vary("PS717", trtllm_agg, {"worker/pod/nodeSelector": {PRODUCT: X}})(
        "NVIDIA-B300", "NVIDIA-B200", also=("PS741",)
    ),
    vary("PS717", alpha, {"extraPodSpec": {"nodeSelector": {PRODUCT: X}}})(
        "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200", gpu="h200"
    ),
    vary("PS718", manifest, ON_RACK, {TOLERATIONS: X})([GPU_TAINT], [GPU_TAINT, ARM]),
    Case("PS718", manifest(ON_RACK, {TOLERATIONS: REMOVE}), graph(ON_RACK)),
    vary("PS719", vllm_agg_dgd, {f"{WORKER}/resources/requests/nvidia.com~1gpu": X})(
        "0.5", "2", is_repaired_by_near=True, also=("PS704",)
    ),
)

CODE = (
    vary("PS722", with_code, "/etc/x", PYTHONPATH=X)(
        "/opt/lib:/etc/x/m.zip",
        "/opt/lib:/etc/xy",
        fixed=with_code("/etc/x", PYTHONPATH="/opt/lib"),
    ),
    Case(
        "PS722",
        with_code("/hooks", LD_PRELOAD="/hooks/../hooks/a.so"),
        with_code("/hooks", DYN_ROUTER_POLICY_CONFIG="/hooks/policy.yaml"),
    ),
    vary("PS722", with_code)("/usr/lib/python3.12/site-packages/extra", "/etc/python"),
    vary("PS722", with_code, "/opt/a", key=X)("sitecustomize.py", "customize.py"),
)

VOLUMES = (
    vary("PS710", trtllm_agg)(
        {"worker/env/HF_TOKEN": TOKEN}, {"model/token_secret": "hf-token-secret"}
    ),
    vary("PS710", trtllm_agg, {"frontend/env/GATEWAY_API_KEY": X})(
        "0123456789abcdef", "/run/secrets/gateway"
    ),
    # a variable may reference another one
    vary("PS710", vllm_agg_dgd, {f"{WORKER}/env/T": {"name": "HF_TOKEN", "value": X}})(
        TOKEN, "$(HUGGING_FACE_TOKEN)"
    ),
    vary("PS713", with_document, trtllm_agg_dgd(), X)(
        claim("ReadWriteOnce"),
        claim("ReadWriteOnce", "ReadWriteMany"),
        fixed=with_document(trtllm_agg_dgd(), claim("ReadWriteMany")),
    ),
    vary("PS713", with_document, X, claim("ReadWriteOncePod"))(
        alpha({"replicas": 2, "volumeMounts": [{"name": "model-cache"}]}),
        alpha({"replicas": 1, "volumeMounts": [{"name": "model-cache"}]}),
    ),
    vary("PS714", trtllm_agg, {"model/cache": REMOVE, "worker/pod/volumes": X})(
        OMIT, [{"name": "models", "hostPath": {"path": "/models"}}]
    ),
    vary("PS714", vllm_agg, {"model/cache": REMOVE, "model/path": X})(OMIT, "/models/gpt-oss-120b"),
    vary("PS715", trtllm_agg, {"model/cache/mount_path": "/root", "worker/pod/securityContext": X})(
        OMIT, {"runAsUser": 0}, fixed=trtllm_agg()
    ),
    vary("PS721", alpha, {}, {"pvcs": X})(
        [CLAIM], [{**CLAIM, "volumeAccessMode": "ReadWriteMany"}]
    ),
    vary("PS721", alpha, {}, {"pvcs": X})(
        [{"create": True, "name": "models"}], [{"create": False, "name": "models"}]
    ),
)

CASES: tuple[Case, ...] = (*MEMORY, *STOP_AND_START, *RIGHTS_AND_NODES, *VOLUMES, *CODE)
