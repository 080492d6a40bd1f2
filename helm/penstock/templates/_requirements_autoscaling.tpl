{{/* The problems of autoscaling; see _requirements.tpl. */}}

{{- define "penstock.problems.autoscaling" -}}
{{- $problems := list -}}
{{- $requirements := include "penstock.requirements" . | fromJson -}}
{{- range $name := prepend (include "penstock.pools" . | fromJsonArray) "frontend" -}}
  {{- $autoscaling := get (get $.Values $name) "autoscaling" -}}
  {{- if $autoscaling -}}
    {{- $place := printf "%s.autoscaling" $name -}}
    {{- $replicas := index (get $.Values $name) "replicas" -}}
    {{- if not (kindIs "invalid" $replicas) -}}
      {{- $problems = append $problems (include "penstock.message" (list $ (printf "%s.replicas" $name) "replicas_with_autoscaling" (dict "replicas" (int64 $replicas))) | fromJsonArray) -}}
    {{- end -}}
    {{- if and (eq $name "frontend") (eq $autoscaling.owner "planner") -}}
      {{- $problems = append $problems (include "penstock.message" (list $ (printf "%s.owner" $place) "planner_on_frontend" (dict)) | fromJsonArray) -}}
    {{- end -}}
    {{- $keys := get $requirements.keys_of_owner $autoscaling.owner -}}
    {{- range $key, $value := omit $autoscaling "owner" -}}
      {{- if and $value (not (has $key $keys)) -}}
        {{- $message := ternary "max_with_planner" "no_effect_with_owner" (and (eq $key "max") (eq $autoscaling.owner "planner")) -}}
        {{- $problems = append $problems (include "penstock.message" (list $ (printf "%s.%s" $place $key) $message (dict "owner" $autoscaling.owner "name" $key)) | fromJsonArray) -}}
      {{- end -}}
    {{- end -}}
    {{- if has "max" $keys -}}
      {{- $c := dict "root" $ "name" $name "place" $place -}}
      {{- $problems = concat $problems (include "penstock.problems.signal" $c | fromJsonArray) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{/* The problems of (dict root name place), a component scaled by hpa or keda. */}}
{{- define "penstock.problems.signal" -}}
{{- $problems := list -}}
{{- $requirements := include "penstock.requirements" .root | fromJson -}}
{{- $autoscaling := include "penstock.autoscaling" . | fromJson -}}
{{- $signal := $autoscaling.signal | default "" -}}
{{- $own := get $requirements.own_key_of_owner $autoscaling.owner -}}
{{- if not $autoscaling.max -}}
  {{- $problems = append $problems (include "penstock.message" (list .root (printf "%s.max" .place) "max_missing" (dict "owner" $autoscaling.owner)) | fromJsonArray) -}}
{{- else if lt (int64 $autoscaling.max) (int64 $autoscaling.min) -}}
  {{- $problems = append $problems (include "penstock.message" (list .root (printf "%s.max" .place) "max_below_min" (dict "max" (int64 $autoscaling.max) "min" (int64 $autoscaling.min))) | fromJsonArray) -}}
{{- end -}}
{{- if and $signal (get $autoscaling $own) -}}
  {{- $problems = append $problems (include "penstock.message" (list .root (printf "%s.%s" .place $own) "signal_with_own_key" (dict "name" $own)) | fromJsonArray) -}}
{{- else if not (or $signal (get $autoscaling $own)) -}}
  {{- $problems = append $problems (include "penstock.message" (list .root (printf "%s.signal" .place) "signal_missing" (dict "name" $own)) | fromJsonArray) -}}
{{- end -}}
{{- if ne (empty $signal) (empty $autoscaling.target) -}}
  {{- $problems = append $problems (include "penstock.message" (list .root (printf "%s.target" .place) (ternary "target_without_signal" "target_missing" (empty $signal)) dict) | fromJsonArray) -}}
{{- end -}}
{{- $values := .root.Values -}}
{{- $unusable := dict -}}
{{- if eq .name "frontend" -}}
  {{- range $name := list "kv_usage" "prompt_tokens" -}}{{- $_ := set $unusable $name "is a metric of worker pools, not of the frontend" -}}{{- end -}}
{{- end -}}
{{- if eq .name "decode" -}}{{- $_ := set $unusable "prompt_tokens" "is a metric of prefill workers, not of decode workers" -}}{{- end -}}
{{- if eq .name "prefill" -}}{{- $_ := set $unusable "itl_s" "is a metric of decode workers, not of prefill workers" -}}{{- end -}}
{{- if eq $values.engine.kind "mocker" -}}{{- $_ := set $unusable "kv_usage" "is not published by the mocker" -}}{{- end -}}
{{- if ne $values.router.mode "kv" -}}{{- $_ := set $unusable "prompt_tokens" (printf "is not published with `router.mode: %s`" $values.router.mode) -}}{{- end -}}
{{- with get $unusable $signal -}}
  {{- $problems = append $problems (list (printf "%s.signal" $.place) (printf "%s %s" $signal .) "Use another signal.") -}}
{{- end -}}
{{- $limit := get $requirements.target_limits $signal -}}
{{- if and $limit $autoscaling.target (gt (float64 $autoscaling.target) (float64 $limit.largest)) -}}
  {{- $problems = append $problems (include "penstock.message" (list .root (printf "%s.target" .place) "target_too_large" (dict "target" $autoscaling.target "signal" $signal "largest" $limit.largest "fix" $limit.fix)) | fromJsonArray) -}}
{{- end -}}
{{- if eq $signal "cpu" -}}
  {{- if not (dig "resources" "cpu" "" (get $values .name)) -}}
    {{- $problems = append $problems (list (printf "%s.resources.cpu" .name) "is unset, but the signal cpu is a percentage of it" "Set `resources.cpu` to the CPU that one pod needs.") -}}
  {{- end -}}
  {{- if and $autoscaling.target (ne (float64 $autoscaling.target) (floor $autoscaling.target)) -}}
    {{- $problems = append $problems (list (printf "%s.target" .place) (printf "is %v, but the signal cpu takes an integer percentage" $autoscaling.target) "Write an integer.") -}}
  {{- end -}}
{{- else if and $signal (eq $autoscaling.owner "hpa") -}}
  {{- $problems = append $problems (include "penstock.message" (list .root (printf "%s.signal" .place) "hpa_signal" (dict "signal" $signal)) | fromJsonArray) -}}
{{- else if and $signal (not $values.cluster.monitoring.pod_monitors) -}}
  {{- $problems = append $problems (list "cluster.monitoring.pod_monitors" (printf "is false, but `%s.signal` needs the labels that PodMonitors set" .place) "Set `pod_monitors: true`, or write your own `triggers`.") -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.planner" -}}
{{- $problems := list -}}
{{- $pools := include "penstock.planner.pools" . | fromJsonArray -}}
{{- $planner := .Values.planner -}}
{{- if and $pools (not $planner) -}}
  {{- $problems = append $problems (include "penstock.message" (list $ "planner" "planner_missing" (dict "pool" (first $pools))) | fromJsonArray) -}}
{{- end -}}
{{- if and (or $pools $planner) (eq .Values.platform "plain") -}}
  {{- $problems = append $problems (include "penstock.message" (list $ (ternary (printf "%s.autoscaling.owner" (first $pools)) "planner" (gt (len $pools) 0)) "planner_on_plain" (dict)) | fromJsonArray) -}}
{{- end -}}
{{- if $planner -}}
  {{- range $key := keys (include "penstock.planner.follows" . | fromYaml) | sortAlpha -}}
    {{- if hasKey ($planner.config | default dict) $key -}}
      {{- $problems = append $problems (list (printf "planner.config.%s" $key) "is derived from the graph" (ternary "Set `planner.max_gpus` instead." (ternary "Set `autoscaling.min` of the pool instead." (printf "Remove `%s`." $key) (hasSuffix "min_endpoint" $key)) (eq $key "max_gpu_budget"))) -}}
    {{- end -}}
  {{- end -}}
  {{- $config := include "penstock.planner.config" . | fromJson -}}
  {{- if and $pools (eq (toString $config.optimization_target) "sla") -}}
    {{- range $key := list "ttft" "itl" -}}
      {{- $names := list (printf "%s_ms" $key) $key -}}
      {{- if not (or (hasKey $config (first $names)) (hasKey $config $key)) -}}
        {{- $problems = append $problems (list (printf "planner.config.%s_ms" $key) "missing: `optimization_target: sla` needs it" "Set a latency in milliseconds, or use another `optimization_target`.") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- range $planner.args -}}
    {{- if regexMatch "^--config(=|$)" . -}}
      {{- $problems = append $problems (list "planner.args" "--config would replace the configuration derived from the graph" "Use `planner.config`.") -}}
    {{- end -}}
  {{- end -}}
  {{- $least := 0 -}}
  {{- range $name := $pools -}}
    {{- $pool := include "penstock.pool" (list $ $name) | fromJson -}}
    {{- $gpus := include "penstock.totalGpus" (dict "root" $ "name" $name "pool" $pool) | int64 -}}
    {{- $least = add $least (mul $gpus (include "penstock.replicas" (dict "root" $ "name" $name) | int64)) -}}
  {{- end -}}
  {{- if gt $least (int64 $planner.max_gpus) -}}
    {{- $problems = append $problems (list "planner.max_gpus" (printf "is %d, but the minimum replicas of %s need %d GPUs" (int64 $planner.max_gpus) (join " and " $pools) $least) (printf "Raise `max_gpus` to at least %d, or lower `autoscaling.min`." $least)) -}}
  {{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}
