{{/*
The derived configuration of SGLang, as keys of its --config file: flags without leading dashes. A map
is passed as JSON (sglang/srt/utils/server_args_config_parser.py 0.5.21).
*/}}
{{- define "penstock.sglang.derived" -}}
{{- $values := .root.Values -}}
{{- $replicas := ternary 1 (get .user "dp-size" | default 1) (get .user "enable-dp-attention" | default false) -}}
{{- if and (include "penstock.totalGpus" . | int64) (not (hasKey .user "tp-size")) }}
tp-size: {{ include "penstock.tensorParallel" (set (omit . "divisor") "divisor" (mul (get .user "pp-size" | default 1) $replicas)) }} # from {pool}.gpus, {pool}.nodes, config:pp-size, config:dp-size, config:enable-dp-attention
{{- end }}
{{- with $values.model.context_length }}
context-length: {{ include "penstock.number" . }} # from model.context_length
{{- end }}
{{- with include "penstock.revision" .root }}
revision: {{ quote . }} # from model.revision, model.cache.download
{{- end }}
{{- if and (ne .name "decode") (include "penstock.kvEvents" .root) }}
kv-events-config: # from router.kv_events, router.mode
  publisher: zmq
  topic: kv-events
  endpoint: "tcp://*:5557"
{{- end }}
{{- if ne .name "worker" }}
# The bootstrap server of a prefill worker listens on this address, 127.0.0.1 by default.
host: "0.0.0.0" # from {pool}
disaggregation-transfer-backend: {{ ternary "mooncake_tcp" $values.kv_transfer.backend (and (eq $values.kv_transfer.backend "mooncake") (eq (include "penstock.transport" .root) "tcp")) | quote }} # from kv_transfer.backend, kv_transfer.transport, hardware.fabric
{{- end }}
{{- with $values.speculation }}
{{- $tokens := include "penstock.speculation.tokens" $ | int64 }}
speculative-algorithm: {{ get (dict "eagle3" "EAGLE3" "mtp" "NEXTN" "ngram" "NGRAM") .method | quote }} # from speculation.method
{{- with include "penstock.draftModel" $.root }}
speculative-draft-model-path: {{ quote . }} # from speculation.draft_model, speculation.draft_revision, model.cache.mount_path, model.cache
{{- end }}
{{- if eq .method "ngram" }}
speculative-num-draft-tokens: {{ $tokens }} # from speculation.draft_tokens, speculation.method
{{- else }}
# A chain, as with the other engines: one candidate per step, verified with the token before it.
speculative-num-steps: {{ $tokens }} # from speculation.draft_tokens, speculation.method
speculative-eagle-topk: 1 # from speculation.method
speculative-num-draft-tokens: {{ add $tokens 1 }} # from speculation.draft_tokens, speculation.method
{{- end }}
{{- end }}
{{- end -}}
