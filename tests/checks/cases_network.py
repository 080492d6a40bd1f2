"""Cases of the network of KV transfers (PS43x, PS440)."""

from __future__ import annotations

from functools import partial

from tests.checks.support import (
    REMOVE,
    SGLANG_DISAGG,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    VLLM_AGG,
    VLLM_DISAGG,
    Case,
    graph,
    manifest,
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
    Case(
        rule="PS431",
        bad=trtllm({"kv_transfer/transport": "auto"}),
        near=trtllm({"kv_transfer/transport": "auto", "pod": {"hostNetwork": True}}),
    ),
    Case(  # a note if TCP was selected explicitly
        rule="PS431", bad=vllm({"kv_transfer/transport": "tcp"}), near=graph(VLLM_AGG)
    ),
    Case(
        rule="PS431",
        bad=manifest(SGLANG_DISAGG, {NIC: "0"}),  # as if it were absent
        near=manifest(SGLANG_DISAGG, {NIC: "4"}),
    ),
    Case(
        rule="PS431",
        bad=manifest(SGLANG_DISAGG, {NIC: REMOVE}),
        near=manifest(SGLANG_DISAGG, {NIC: REMOVE, f"{DECODE}/resourceClaims": CLAIM}),
    ),
    Case(
        rule="PS432",
        bad=manifest(TRTLLM_DISAGG, {NIC: "3"}),
        near=manifest(TRTLLM_DISAGG, {NIC: "4"}),
        also=("PS704",),
    ),
    Case(  # one resource grants access to all devices
        rule="PS432",
        bad=manifest(TRTLLM_DISAGG, {NIC: "1"}),
        near=manifest(
            TRTLLM_DISAGG, {NIC: REMOVE, f"{MAIN}/resources/limits/rdma~1hca_shared_devices_a": "1"}
        ),
    ),
    Case(
        rule="PS433",
        bad=manifest(TRTLLM_DISAGG, {f"{MAIN}/securityContext": REMOVE}),
        near=manifest(TRTLLM_DISAGG, {f"{MAIN}/securityContext": {"privileged": True}}),
    ),
    Case(
        rule="PS434",
        bad=trtllm({"engine/env": {"UCX_TLS": "rc_x,sm"}}),
        near=trtllm({"engine/env": {"UCX_TLS": "rc_x,cuda_copy"}}),
    ),
    Case(
        rule="PS434",
        bad=vllm({"engine/env": {"UCX_TLS": "tcp"}}),
        near=vllm({"engine/env": {"UCX_TLS": "^tcp"}}),
    ),
    Case(
        rule="PS435",
        bad=trtllm({"engine/env": {"UCX_TLS": "tcp,cuda"}}),
        near=trtllm({"engine/env": {"UCX_TLS": "tcp,cuda,rc_mlx5"}}),
    ),
    Case(
        rule="PS435",
        bad=trtllm({"engine/env": {"UCX_TLS": "rc,cuda", "UCX_NET_DEVICES": "eth0"}}),
        near=trtllm({"engine/env": {"UCX_TLS": "rc,cuda", "UCX_NET_DEVICES": "mlx5_0:1"}}),
    ),
    Case(  # no RDMA devices in the pod
        rule="PS435",
        bad=sglang({"engine/env": {"UCX_TLS": "tcp,cuda_copy"}}),
        near=sglang({"engine/env": {"UCX_TLS": "tcp,cuda_copy"}, "kv_transfer/transport": "auto"}),
    ),
    Case(
        rule="PS436",
        bad=trtllm({"decode/env/UCX_NET_DEVICES": "mlx5_0:1,eth0"}),
        near=trtllm({"decode/env/UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1"}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS436",
        bad=trtllm({"decode/env/UCX_NET_DEVICES": "mlx5_bond_0:1,mlx5_1:1"}),
        near=trtllm({"decode/env/UCX_NET_DEVICES": "mlx5_bond_0:1,mlx5_bond_1:1"}),
    ),
    Case(
        rule="PS436",
        bad=trtllm({"decode/env/UCX_NET_DEVICES": "all"}),
        near=trtllm({"decode/env/UCX_NET_DEVICES": "all", "kv_transfer/transport": "tcp"}),
    ),
    Case(
        rule="PS437",
        bad=trtllm({"decode/env/UCX_TLS": "rc_x,cuda_copy,cuda_ipc"}),
        near=trtllm({"decode/env/UCX_TLS": "cuda_ipc,cuda_copy,rc_x,rc,dc_x,dc"}),
    ),
    Case(
        rule="PS437",
        bad=vllm({"kv_transfer/transport": "auto", "decode/env/UCX_TLS": "rc,cuda_copy"}),
        near=vllm({"kv_transfer/transport": "auto", "engine/env/UCX_TLS": "rc,cuda_copy"}),
    ),
    Case(  # decode has none, and prefill's does not reach GPUs
        rule="PS437",
        bad=vllm({"kv_transfer/transport": "auto", "prefill/env/UCX_TLS": "rc"}),
        near=vllm({"kv_transfer/transport": "auto"}),
    ),
    Case(
        rule="PS438",
        bad=graph(TRTLLM_AGG, {"hardware": GB200, "worker/nodes": 2}),
        near=graph(TRTLLM_AGG, {"hardware": GB200, "worker/nodes": 2, "worker/env": MNNVL}),
    ),
    Case(
        rule="PS438",
        bad=graph(VLLM_AGG, {"hardware": GB200, "worker/gpus": 4, "worker/nodes": 2}),
        near=graph(VLLM_AGG, {"worker/gpus": 4, "worker/nodes": 2}),
    ),
    Case(  # an aggregated graph transfers no KV
        rule="PS438",
        bad=trtllm({"hardware": GB200, "decode/nodes": 2, "decode/env": NCCL}),
        near=graph(TRTLLM_AGG, {"hardware": GB200, "worker/nodes": 2, "worker/env": NCCL}),
    ),
    Case(
        rule="PS439",
        bad=graph(TRTLLM_AGG, {"hardware": GB200, "worker/env": MNNVL}),
        near=graph(
            TRTLLM_AGG, {"hardware": GB200, "worker/env": MNNVL, "worker/pod/resourceClaims": CLAIM}
        ),
    ),
    Case(
        rule="PS439",
        bad=vllm({"decode/env/UCX_CUDA_IPC_ENABLE_MNNVL": "yes"}),
        near=vllm({"decode/env/UCX_CUDA_IPC_ENABLE_MNNVL": "0"}),
    ),
    Case(  # the image
        rule="PS440", bad=trtllm(EFA), near=trtllm(EFA | EFA_IMAGE), is_repaired_by_near=True
    ),
    Case(  # another provider; vLLM's image has EFA's
        rule="PS440",
        bad=vllm(EFA | {"engine/env": {"FI_PROVIDER": "tcp"}}),
        near=vllm(EFA | {"engine/env": REMOVE}),
    ),
    Case(  # fewer devices than GPUs
        rule="PS440",
        bad=manifest(
            VLLM_DISAGG, {NIC: REMOVE, EFA_NIC: "3", f"{MAIN}/env/FI_PROVIDER/value": "efa"}
        ),
        near=manifest(
            VLLM_DISAGG, {NIC: REMOVE, EFA_NIC: "4", f"{MAIN}/env/FI_PROVIDER/value": "efa"}
        ),
    ),
)
