"""Cases of the network of KV transfers (PS43x, PS440)."""

from __future__ import annotations

from functools import partial

from tests.checks.support import (
    OMIT,
    REMOVE,
    SGLANG_DISAGG,
    TRTLLM_DISAGG,
    VLLM_DISAGG,
    Case,
    X,
    graph,
    sglang_disagg_dgd,
    trtllm_agg,
    trtllm_disagg_dgd,
    vary,
    vllm_agg,
    vllm_disagg_dgd,
)

trtllm, vllm, sglang = (
    partial(graph, base) for base in (TRTLLM_DISAGG, VLLM_DISAGG, SGLANG_DISAGG)
)
DECODE = "dgd/spec/components/decode/podTemplate/spec"
MAIN = f"{DECODE}/containers/main"
NIC = f"{MAIN}/resources/limits/rdma~1ib"
EFA_NIC = f"{MAIN}/resources/limits/vpc.amazonaws.com~1efa"
GB200 = {"gpu": "gb200", "gpus_per_node": 4}
CLAIM = [{"name": "channel", "resourceClaimTemplateName": "channel"}]
MNNVL = {"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "1", "UCX_CUDA_IPC_ENABLE_MNNVL": "1"}
NCCL = {"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "1"}
EFA = {"kv_transfer/rdma_resource": "vpc.amazonaws.com/efa", "engine/env": {"FI_PROVIDER": "efa"}}
EFA_IMAGE = {"engine/image": "nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:1.6.1-efa-amd64"}

CASES: tuple[Case, ...] = (
    vary("PS431", trtllm, {"kv_transfer/transport": "auto", "pod": X})(OMIT, {"hostNetwork": True}),
    # a note if TCP was selected explicitly
    Case("PS431", vllm({"kv_transfer/transport": "tcp"}), vllm_agg()),
    vary("PS431", sglang_disagg_dgd, {NIC: X})("0", "4"),  # as if it were absent
    vary("PS431", sglang_disagg_dgd, {NIC: REMOVE, f"{DECODE}/resourceClaims": X})(OMIT, CLAIM),
    vary("PS432", trtllm_disagg_dgd, {NIC: X})("3", "4", also=("PS704",)),
    # one resource grants access to all devices
    vary("PS432", trtllm_disagg_dgd)(
        {NIC: "1"}, {NIC: REMOVE, f"{MAIN}/resources/limits/rdma~1hca_shared_devices_a": "1"}
    ),
    vary("PS433", trtllm_disagg_dgd, {f"{MAIN}/securityContext": X})(REMOVE, {"privileged": True}),
    vary("PS434", trtllm, {"engine/env": {"UCX_TLS": X}})("rc_x,sm", "rc_x,cuda_copy"),
    vary("PS434", vllm, {"engine/env": {"UCX_TLS": X}})("tcp", "^tcp"),
    vary("PS435", trtllm, {"engine/env": {"UCX_TLS": X}})("tcp,cuda", "tcp,cuda,rc_mlx5"),
    vary("PS435", trtllm, {"engine/env": {"UCX_TLS": "rc,cuda", "UCX_NET_DEVICES": X}})(
        "eth0", "mlx5_0:1"
    ),
    # no RDMA devices in the pod
    vary("PS435", sglang, {"engine/env": {"UCX_TLS": "tcp,cuda_copy"}, "kv_transfer/transport": X})(
        OMIT, "auto"
    ),
    vary("PS436", trtllm, {"decode/env/UCX_NET_DEVICES": X})(
        "mlx5_0:1,eth0", "mlx5_0:1,mlx5_1:1", is_repaired_by_near=True
    ),
    vary("PS436", trtllm, {"decode/env/UCX_NET_DEVICES": X})(
        "mlx5_bond_0:1,mlx5_1:1", "mlx5_bond_0:1,mlx5_bond_1:1"
    ),
    vary("PS436", trtllm, {"decode/env/UCX_NET_DEVICES": "all", "kv_transfer/transport": X})(
        OMIT, "tcp"
    ),
    vary("PS437", trtllm, {"decode/env/UCX_TLS": X})(
        "rc_x,cuda_copy,cuda_ipc", "cuda_ipc,cuda_copy,rc_x,rc,dc_x,dc"
    ),
    vary("PS437", vllm)(
        {"kv_transfer/transport": "auto", "decode/env/UCX_TLS": "rc,cuda_copy"},
        {"kv_transfer/transport": "auto", "engine/env/UCX_TLS": "rc,cuda_copy"},
    ),
    # decode has none, and prefill's does not reach GPUs
    vary("PS437", vllm, {"kv_transfer/transport": "auto", "prefill/env/UCX_TLS": X})("rc", OMIT),
    vary("PS438", trtllm_agg, {"hardware": GB200, "worker/nodes": 2, "worker/env": X})(OMIT, MNNVL),
    vary("PS438", vllm_agg, {"hardware": X, "worker/gpus": 4, "worker/nodes": 2})(GB200, OMIT),
    # an aggregated graph transfers no KV
    Case(
        "PS438",
        trtllm({"hardware": GB200, "decode/nodes": 2, "decode/env": NCCL}),
        trtllm_agg({"hardware": GB200, "worker/nodes": 2, "worker/env": NCCL}),
    ),
    vary(
        "PS439",
        trtllm_agg,
        {"hardware": GB200, "worker/env": MNNVL, "worker/pod/resourceClaims": X},
    )(OMIT, CLAIM),
    vary("PS439", vllm, {"decode/env/UCX_CUDA_IPC_ENABLE_MNNVL": X})("yes", "0"),
    vary("PS440", trtllm)(EFA, EFA | EFA_IMAGE, is_repaired_by_near=True),  # the image
    # another provider; vLLM's image has EFA's
    vary("PS440", vllm)(EFA | {"engine/env": {"FI_PROVIDER": "tcp"}}, EFA | {"engine/env": REMOVE}),
    # fewer devices than GPUs
    vary(
        "PS440", vllm_disagg_dgd, {NIC: REMOVE, EFA_NIC: X, f"{MAIN}/env/FI_PROVIDER/value": "efa"}
    )("3", "4"),
)
