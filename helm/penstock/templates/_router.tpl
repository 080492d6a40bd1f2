{{/*
The router's policy file, --router-policy-config. Dynamo 1.6 deprecates the flags for these settings
and announces their removal in 1.7. What the file leaves out keeps its flag, variable or default.
*/}}

{{/* "true" where the frontend reads such a file: 1.5 does not have the policy type below. */}}
{{- define "penstock.router.hasPolicyFile" -}}
{{- semverCompare ">=1.6.0" (include "penstock.dynamo.release" .) -}}
{{- end -}}

{{/* Text of the file; empty if the graph sets none of its settings. */}}
{{- define "penstock.router.policy" -}}
{{- if and (eq .Values.router.mode "kv") (include "penstock.router.hasPolicyFile" . | eq "true") -}}
{{- $parameters := dict -}}
{{- range $name, $key := dict "overlap_score_credit" "overlap_score_credit" "prefill_load_scale" "prefill_load_scale" "router_temperature" "temperature" -}}
  {{- with dict "value" (get $.Values.router $key) -}}
    {{- /* get returns the empty string for a key that is not there. */ -}}
    {{- if not (or (kindIs "invalid" .value) (kindIs "string" .value)) -}}{{- $_ := set $parameters $name .value -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- $policy := dict -}}
{{- if $parameters -}}
  {{- $instance := dict "name" "graph" "type" "dynamo-default-cost-fn" "parameters" $parameters -}}
  {{- $_ := set $policy "worker_selection" (dict "aggregated" "graph" "prefill" "graph" "decode" "graph" "instances" (list $instance)) -}}
{{- end -}}
{{- $threshold := get .Values.router "queue_threshold" -}}
{{- if not (or (kindIs "invalid" $threshold) (kindIs "string" $threshold)) -}}
  {{- /* One class for all requests, as the flags --router-queue-threshold and --router-queue-policy make. */ -}}
  {{- $class := dict "name" "default" "policy_family" "all" "cache_bucket" "all" "queue_policy" (get .Values.router "queue_policy" | default "fcfs") "quantum" 1 "prefill_busy_threshold_frac" $threshold -}}
  {{- $bucket := dict "min_tokens" 0 "bucket" "all" -}}
  {{- $_ := merge $policy (dict "default_policy_family" "all" "uncached_isl_buckets" (list $bucket) "policy_classes" (list $class)) -}}
{{- end -}}
{{- with $policy -}}{{- include "penstock.yaml" . -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* Name of its ConfigMap; takes (dict root). It changes with the text, like that of a pool. */}}
{{- define "penstock.router.configName" -}}
{{- include "penstock.config.name" (dict "root" .root "name" "frontend" "text" (include "penstock.router.policy" .root)) -}}
{{- end -}}
