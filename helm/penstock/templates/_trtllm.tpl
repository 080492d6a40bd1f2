{{/*
What follows for TensorRT-LLM, in the words of its LlmArgs. It all goes into the one YAML: the file
wins over the command line, and --override-engine-args would replace kv_cache_config as a whole.

Not set here, but known: the operator sets DYN_FORWARDPASS_METRIC_PORT, which turns
enable_iter_perf_stats on at a cost in each iteration; `enable_iter_perf_stats: false` in the config wins.
A prefill worker's drain reads those statistics, and without them waits its full 30 s.
*/}}
{{- define "penstock.trtllm.derived" -}}
{{- $values := .root.Values -}}
{{- $cache := get .said "kv_cache_config" | default dict -}}
{{- if not (hasKey .said "tensor_parallel_size") }}
tensor_parallel_size: {{ include "penstock.tensorParallel" (set (omit . "divisor") "divisor" (mul (get .said "pipeline_parallel_size" | default 1) (get .said "context_parallel_size" | default 1))) }}
{{- end }}
{{- with $values.model.context_length }}
max_seq_len: {{ include "penstock.number" . }}
{{- end }}
{{- with include "penstock.revision" .root }}
revision: {{ quote . }}
{{- end }}
{{- if ne .name "decode" }}
kv_cache_config:
  enable_block_reuse: true
{{- end }}
{{- if eq .name "prefill" }}
disable_overlap_scheduler: true
{{- end }}
{{- if ne .name "worker" }}
cache_transceiver_config:
  backend: {{ upper $values.kv_transfer.backend | quote }}
  {{- with include "penstock.trtllm.buffer" (dict "root" .root "block" (get $cache "tokens_per_block" | default 32) "length" (get .said "max_seq_len" | default $values.model.context_length)) }}
  max_tokens_in_buffer: {{ . }}
  {{- end }}
  {{- with $values.kv_transfer.timeout_ms }}
  kv_transfer_timeout_ms: {{ include "penstock.number" . }}
  {{- end }}
{{- end }}
{{- with $values.speculation }}
speculative_config:
  decoding_type: {{ get (dict "eagle3" "Eagle3" "mtp" "MTP" "ngram" "NGram") .method | quote }}
  max_draft_len: {{ include "penstock.speculation.tokens" $ }}
  {{- with include "penstock.draftModel" $.root }}
  speculative_model: {{ quote . }}
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
