{{/*
The derived configuration of vLLM, as keys of its --config file: flags without leading dashes. Lists
and maps are allowed (vllm/utils/argparse_utils.py 0.31: a map is passed as JSON).
*/}}
{{- define "penstock.vllm.derived" -}}
{{- $values := .root.Values -}}
{{- if and (include "penstock.totalGpus" . | int64) (not (hasKey .user "tensor-parallel-size")) }}
tensor-parallel-size: {{ include "penstock.tensorParallel" (set (omit . "divisor") "divisor" (mul (get .user "pipeline-parallel-size" | default 1) (get .user "data-parallel-size" | default 1))) }} # from {pool}.gpus, {pool}.nodes, engine.device, config:pipeline-parallel-size, config:data-parallel-size
{{- end }}
{{- with $values.model.context_length }}
max-model-len: {{ include "penstock.number" . }} # from model.context_length
{{- end }}
{{- with include "penstock.revision" .root }}
revision: {{ quote . }} # from model.revision, model.cache.download
{{- end }}
{{- if ne .name "decode" }}
enable-prefix-caching: true # from {pool}
{{- if include "penstock.kvEvents" .root }}
kv-events-config: # from router.kv_events, router.mode
  enable_kv_cache_events: true
  publisher: zmq
  topic: kv-events
  endpoint: "tcp://*:20080"
{{- end }}
{{- end }}
{{- if ne .name "worker" }}
kv-transfer-config: # from kv_transfer
  kv_connector: NixlConnector
  kv_role: kv_both
  # If a prefill worker fails before its KV blocks are fetched, the decode worker repeats the prefill.
  # vLLM's default ends the request with an error that is not migrated: status 500.
  kv_load_failure_policy: recompute
  {{- if eq $values.engine.device "cpu" }}
  kv_buffer_device: cpu # from engine.device
  {{- end }}
  {{- $efa := and (eq (include "penstock.transport" .root) "rdma") (include "penstock.efa" .root) }}
  {{- if or $values.kv_transfer.timeout_ms $efa }}
  kv_connector_extra_config: # from kv_transfer.timeout_ms, hardware.fabric, kv_transfer.transport
    {{- with $values.kv_transfer.timeout_ms }}
    kv_lease_duration: {{ div (add (int64 .) 999) 1000 }}
    {{- end }}
    {{- if $efa }}
    backends: ["LIBFABRIC"]
    {{- end }}
  {{- end }}
{{- end }}
{{- with $values.speculation }}
speculative-config: # from speculation
  method: {{ .method | quote }} # from speculation.method
  num_speculative_tokens: {{ include "penstock.speculation.tokens" $ }} # from speculation.draft_tokens
  {{- with include "penstock.draftModel" $.root }}
  model: {{ quote . }} # from speculation.draft_model, speculation.draft_revision, model.cache.mount_path, model.cache
  {{- end }}
{{- end }}
{{- end -}}

{{/*
On several nodes the operator reads the arguments, not the file, to decide how to start vLLM
(operator/internal/dynamo/backend_vllm.go, getExpandedArgs).
*/}}
{{- define "penstock.vllm.multinodeArgs" -}}
{{- if ge (int64 .pool.nodes) 2 -}}
{{- $config := include "penstock.config" . | fromJson -}}
{{- range $key := list "tensor-parallel-size" "pipeline-parallel-size" "data-parallel-size" -}}
{{- with get $config $key }}
- {{ printf "--%s" $key | quote }}
- {{ include "penstock.number" . | quote }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* GPUs of one data parallel rank. */}}
{{- define "penstock.vllm.rank" -}}
{{- $config := include "penstock.config" . | fromJson -}}
{{- mul (get $config "tensor-parallel-size" | default 1) (get $config "pipeline-parallel-size" | default 1) -}}
{{- end -}}
