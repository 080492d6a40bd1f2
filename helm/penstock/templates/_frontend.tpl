{{/* Arguments of the frontend, as a YAML list. Flags: dynamo.frontend.frontend_args of 1.6.1. */}}
{{- define "penstock.frontend.args" -}}
{{- $router := .Values.router -}}
- "-m"
- "dynamo.frontend"
- "--http-port" # from frontend.port
- {{ include "penstock.number" .Values.frontend.port | quote }}
- "--router-mode" # from router.mode
- {{ $router.mode | quote }}
{{- if and (eq $router.mode "kv") (not $router.kv_events) }}
- "--no-router-kv-events" # from router.kv_events, router.mode
{{- end }}
{{- if include "penstock.replicaSync" . }}
- "--router-replica-sync" # from router.replica_sync, router.mode
{{- end }}
{{- $inPolicy := list "overlap_score_credit" "prefill_load_scale" "temperature" "queue_threshold" -}}
{{- $inPolicy = ternary $inPolicy list (include "penstock.router.hasPolicyFile" . | eq "true") -}}
{{- range $flag := list
  (list "--router-kv-overlap-score-credit" "overlap_score_credit")
  (list "--router-prefill-load-scale" "prefill_load_scale")
  (list "--router-temperature" "temperature")
  (list "--router-ttl-secs" "ttl_s")
  (list "--router-min-initial-workers" "min_initial_workers")
  (list "--active-decode-blocks-threshold" "active_decode_blocks_threshold")
  (list "--active-prefill-tokens-threshold" "active_prefill_tokens_threshold")
  (list "--router-queue-threshold" "queue_threshold") }}
{{- if not (has (index $flag 1) $inPolicy) }}
{{- $value := get $router (index $flag 1) }}
{{- if not (or (kindIs "invalid" $value) (kindIs "string" $value)) }}
- {{ index $flag 0 | quote }}
- {{ include "penstock.number" $value | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $router.queue_policy (not $inPolicy) }}
- "--router-queue-policy" # from router.queue_policy
- {{ $router.queue_policy | quote }}
{{- end }}
{{- if include "penstock.router.policy" . }}
- "--router-policy-config" # from router.overlap_score_credit, router.prefill_load_scale, router.temperature, router.queue_threshold, router.queue_policy, router.mode, dynamo
- "/etc/penstock/router.yaml"
{{- end }}
{{- if $router.conditional_disagg }}
- "--router-conditional-disagg" # from router.conditional_disagg
{{- end }}
- "--migration-limit" # from frontend.migration_limit
- {{ include "penstock.number" .Values.frontend.migration_limit | quote }}
- "--tokenizer" # from frontend.tokenizer
- {{ .Values.frontend.tokenizer | quote }}
- "--no-tokenizer-fallback" # from frontend.tokenizer
{{- range .Values.frontend.args }}
- {{ quote . }}
{{- end }}
{{- end -}}
