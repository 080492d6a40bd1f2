{{/*
The derived configuration of TensorRT-LLM, as fields of its LlmArgs. All of it is in the YAML file,
which overrides the command line; --override-engine-args would replace kv_cache_config as a whole.

Not set here: the operator sets DYN_FORWARDPASS_METRIC_PORT, which enables enable_iter_perf_stats at a
cost per iteration. `enable_iter_perf_stats: false` in the config overrides it. The drain of a prefill
worker reads those statistics, and without them waits the full 30 s.
*/}}
{{- define "penstock.trtllm.derived" -}}
{{- $values := .root.Values -}}
{{- $cache := get .user "kv_cache_config" | default dict -}}
{{- if not (hasKey .user "tensor_parallel_size") }}
tensor_parallel_size: {{ include "penstock.tensorParallel" (set (omit . "divisor") "divisor" (mul (get .user "pipeline_parallel_size" | default 1) (get .user "context_parallel_size" | default 1))) }} # from {pool}.gpus, {pool}.nodes, config:pipeline_parallel_size, config:context_parallel_size
{{- end }}
{{- with $values.model.context_length }}
max_seq_len: {{ include "penstock.number" . }} # from model.context_length
{{- end }}
{{- /* Without it TensorRT-LLM fails a prompt that is longer than a step (Dynamo 1.6.0 known issues). */}}
{{- $step := get .user "max_num_tokens" | default 8192 }}
{{- $is_longer := gt (int64 ($values.model.context_length | default 0)) (int64 $step) }}
{{- if and (ne .name "decode") $is_longer (not (hasKey .user "enable_chunked_prefill")) }}
enable_chunked_prefill: true # from model.context_length, config:max_num_tokens
{{- end }}
{{- with include "penstock.revision" .root }}
revision: {{ quote . }} # from model.revision, model.cache.download
{{- end }}
{{- if ne .name "decode" }}
kv_cache_config:
  enable_block_reuse: true # from {pool}
{{- end }}
{{- if eq .name "prefill" }}
disable_overlap_scheduler: true # from {pool}
{{- end }}
{{- if ne .name "worker" }}
cache_transceiver_config: # from kv_transfer
  backend: {{ upper $values.kv_transfer.backend | quote }} # from kv_transfer.backend
  {{- with include "penstock.trtllm.buffer" (dict "root" .root "block" (get $cache "tokens_per_block" | default 32) "length" (get .user "max_seq_len" | default $values.model.context_length)) }}
  max_tokens_in_buffer: {{ . }} # from kv_transfer.buffer_tokens, config:max_seq_len, model.context_length, config:kv_cache_config.tokens_per_block
  {{- end }}
  {{- with $values.kv_transfer.timeout_ms }}
  kv_transfer_timeout_ms: {{ include "penstock.number" . }} # from kv_transfer.timeout_ms
  {{- end }}
{{- end }}
{{- with $values.speculation }}
speculative_config: # from speculation
  decoding_type: {{ get (dict "eagle3" "Eagle3" "mtp" "MTP" "ngram" "NGram") .method | quote }} # from speculation.method
  max_draft_len: {{ include "penstock.speculation.tokens" $ }} # from speculation.draft_tokens
  {{- with include "penstock.draftModel" $.root }}
  speculative_model: {{ quote . }} # from speculation.draft_model, speculation.draft_revision, model.cache.mount_path, model.cache
  {{- end }}
{{- end }}
{{- end -}}

{{/*
Tokens of a transfer buffer: a multiple of the block size, as TensorRT-LLM crashes otherwise. Workers
stall when it is smaller than the longest prompt: dynamo#4327.
*/}}
{{- define "penstock.trtllm.buffer" -}}
{{- $block := int64 .block -}}
{{- $tokens := .root.Values.kv_transfer.buffer_tokens -}}
{{- if $tokens -}}
  {{- if mod (int64 $tokens) $block -}}
  {{- include "penstock.refuse" (list "kv_transfer.buffer_tokens" (printf "is %d, which is not a multiple of `tokens_per_block` (%d)" (int64 $tokens) $block) (printf "Set it to %d." (mul (add (div (int64 $tokens) $block) 1) $block))) -}}
  {{- end -}}
  {{- int64 $tokens -}}
{{- else if .length -}}
  {{- mul (div (sub (add (int64 .length) $block) 1) $block) $block -}}
{{- end -}}
{{- end -}}
