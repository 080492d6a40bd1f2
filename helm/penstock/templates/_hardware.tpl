{{/* Nodes, devices and fabric. The generated files/hardware.yaml has the facts of each GPU. */}}

{{/* Facts of hardware.gpu, as JSON: products, arm. */}}
{{- define "penstock.gpuFacts" -}}
{{- $facts := dict "products" list "arm" false -}}
{{- with .Values.hardware.gpu -}}{{- $facts = get ($.Files.Get "files/hardware.yaml" | fromYaml) . -}}{{- end -}}
{{- if not (kindIs "invalid" .Values.hardware.product_labels) -}}
  {{- $_ := set $facts "products" .Values.hardware.product_labels -}}
{{- end -}}
{{- toJson $facts -}}
{{- end -}}

{{/* PodSpec fields that schedule the pods of a component, as YAML. */}}
{{- define "penstock.placement" -}}
{{- $facts := include "penstock.gpuFacts" .root | fromJson -}}
{{- $uses := and .pool (ne (include "penstock.gpus" .) "0") -}}
{{- if or $uses $facts.arm }}
tolerations:
{{- if $uses }}
  - {key: "nvidia.com/gpu", operator: "Exists", effect: "NoSchedule"}
{{- end }}
{{- if $facts.arm }}
  - {key: "kubernetes.io/arch", operator: "Equal", value: "arm64", effect: "NoSchedule"}
{{- end }}
{{- end }}
{{- if and $uses $facts.products }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: "nvidia.com/gpu.product", operator: "In", values: {{ toJson $facts.products }}}
{{- end }}
{{- if include "penstock.mnnvl" . }}
resourceClaims:
  - {name: "compute-domain-channel", resourceClaimTemplateName: {{ include "penstock.channel" .root | quote }}}
{{- end }}
{{- end -}}

{{/* "true" on AWS EFA, which UCX does not support and which needs its own images, devices and privileges. */}}
{{- define "penstock.efa" -}}
{{- if eq (toString .Values.hardware.fabric) "efa" -}}true{{- end -}}
{{- end -}}

{{/* Transport of KV blocks: rdma, mnnvl or tcp, or auto if transport and fabric are unset. */}}
{{- define "penstock.transport" -}}
{{- $transport := .Values.kv_transfer.transport -}}
{{- $of := dict "ib" "rdma" "roce" "rdma" "efa" "rdma" "mnnvl" "mnnvl" "none" "tcp" -}}
{{- if ne $transport "auto" -}}{{ $transport }}{{- else -}}{{ get $of (toString .Values.hardware.fabric) | default "auto" }}{{- end -}}
{{- end -}}

{{/* "true" for a pool whose GPUs communicate over the network: KV transfer, or an engine on several nodes. */}}
{{- define "penstock.usesFabric" -}}
{{- if and .pool (or (ne .name "worker") (ge (int64 .pool.nodes) 2)) (ne (include "penstock.gpus" .) "0") -}}true{{- end -}}
{{- end -}}

{{/* "true" for a pool whose pods get RDMA devices. */}}
{{- define "penstock.rdma" -}}
{{- if and (include "penstock.usesFabric" .) (eq (include "penstock.transport" .root) "rdma") -}}true{{- end -}}
{{- end -}}

{{/* "true" for a pool whose pods share the rack's NVLink. */}}
{{- define "penstock.mnnvl" -}}
{{- if and (include "penstock.usesFabric" .) (eq (include "penstock.transport" .root) "mnnvl") -}}true{{- end -}}
{{- end -}}

{{/* ResourceClaimTemplate that the controller of the ComputeDomain creates. */}}
{{- define "penstock.channel" -}}
{{- printf "%s-channel" .Release.Name -}}
{{- end -}}

{{- define "penstock.rdmaResource" -}}
{{- .Values.kv_transfer.rdma_resource | default (ternary "vpc.amazonaws.com/efa" "rdma/ib" (eq (include "penstock.efa" .) "true")) -}}
{{- end -}}

{{/*
Environment by fabric. Without RDMA devices UCX silently falls back to TCP, and the first token takes
98 s instead of 0.3 s, so rdma excludes TCP. A missing UCX_IB_ADDR_TYPE with RoCE is the most common
cause of NIXL_ERR_REMOTE_DISCONNECT. UCX does not support EFA, whose shared memory corrupts GPU buffers.
*/}}
{{- define "penstock.transferEnv" -}}
{{- $transport := include "penstock.transport" .root -}}
{{- $kind := .root.Values.engine.kind -}}
{{- if include "penstock.mnnvl" . }}
NCCL_MNNVL_ENABLE: "1" # from hardware.fabric, kv_transfer.transport
NCCL_CUMEM_ENABLE: "1" # from hardware.fabric, kv_transfer.transport
NCCL_NVLS_ENABLE: "1" # from hardware.fabric, kv_transfer.transport
{{- end }}
{{- if and (include "penstock.efa" .root) (include "penstock.rdma" .) }}
FI_PROVIDER: "efa" # from hardware.fabric, kv_transfer.transport
FI_EFA_USE_DEVICE_RDMA: "1" # from hardware.fabric, kv_transfer.transport
FI_EFA_ENABLE_SHM_TRANSFER: "0" # from hardware.fabric, kv_transfer.transport
{{- end }}
{{- if ne .name "worker" }}
{{- if eq $transport "mnnvl" }}
UCX_TLS: "cuda_copy,cuda_ipc,tcp" # from kv_transfer.transport, hardware.fabric
UCX_CUDA_IPC_ENABLE_MNNVL: "y" # from hardware.fabric, kv_transfer.transport
{{- else if eq $transport "tcp" }}
UCX_TLS: "tcp,cuda_copy,cuda_ipc" # from kv_transfer.transport, hardware.fabric
{{- else if and (eq $transport "rdma") (include "penstock.efa" .root) }}
{{- if eq $kind "trtllm" }}
TRTLLM_NIXL_KVCACHE_BACKEND: "LIBFABRIC" # from hardware.fabric, kv_transfer.transport
{{- else if eq $kind "sglang" }}
SGLANG_DISAGGREGATION_NIXL_BACKEND: "LIBFABRIC" # from hardware.fabric, kv_transfer.transport
{{- end }}
{{- else if eq $transport "rdma" }}
UCX_TLS: "rc_x,rc,dc_x,dc,cuda_copy,cuda_ipc" # from kv_transfer.transport, hardware.fabric
UCX_RNDV_SCHEME: "get_zcopy" # from kv_transfer.transport, hardware.fabric
UCX_RNDV_THRESH: "0" # from kv_transfer.transport, hardware.fabric
{{- if eq (toString .root.Values.hardware.fabric) "roce" }}
UCX_IB_ADDR_TYPE: "eth" # from hardware.fabric, kv_transfer.transport
{{- end }}
{{- end }}
{{- if and (eq $kind "sglang") .root.Values.kv_transfer.timeout_ms }}
# It includes the time that a prompt waits in the prefill queue, so SGLang's default of 300 s applies
# unless the graph sets another value.
SGLANG_DISAGGREGATION_WAITING_TIMEOUT: {{ div (add (int64 .root.Values.kv_transfer.timeout_ms) 999) 1000 | quote }} # from kv_transfer.timeout_ms
{{- end }}
{{- end }}
{{- end -}}
