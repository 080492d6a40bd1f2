{{/* What autoscaling must satisfy: one owner, in words that it reads; see _requirements.tpl. */}}

{{- define "penstock.problems.autoscaling" -}}
{{- $problems := list -}}
{{- range $name := prepend (include "penstock.pools" . | fromJsonArray) "frontend" -}}
  {{- $said := get (get $.Values $name) "autoscaling" -}}
  {{- if $said -}}
    {{- $place := printf "%s.autoscaling" $name -}}
    {{- $replicas := index (get $.Values $name) "replicas" -}}
    {{- if not (kindIs "invalid" $replicas) -}}
      {{- $problems = append $problems (list (printf "%s.replicas" $name) (printf "%d stands beside autoscaling, and one of them owns the number" (int64 $replicas)) "remove replicas, or autoscaling") -}}
    {{- end -}}
    {{- if and (eq $name "frontend") (eq $said.owner "planner") -}}
      {{- $problems = append $problems (list (printf "%s.owner" $place) "the planner scales pools alone" "use hpa, keda or external") -}}
    {{- end -}}
    {{- $words := get (dict "hpa" (list "min" "max" "signal" "target" "metrics" "behavior") "keda" (list "min" "max" "signal" "target" "triggers" "behavior") "planner" (list "min") "external" list) $said.owner -}}
    {{- range $key, $value := omit $said "owner" -}}
      {{- if and $value (not (has $key $words)) -}}
        {{- $problems = append $problems (list (printf "%s.%s" $place $key) (printf "has no effect with owner %s" $said.owner) (ternary "set planner.max_gpus" "remove it" (and (eq $key "max") (eq $said.owner "planner")))) -}}
      {{- end -}}
    {{- end -}}
    {{- if has "max" $words -}}
      {{- $c := dict "root" $ "name" $name "place" $place -}}
      {{- $problems = concat $problems (include "penstock.problems.signal" $c | fromJsonArray) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{/* Of (dict root name place): what hpa and keda need. */}}
{{- define "penstock.problems.signal" -}}
{{- $problems := list -}}
{{- $autoscaling := include "penstock.autoscaling" . | fromJson -}}
{{- $signal := $autoscaling.signal | default "" -}}
{{- $own := ternary "metrics" "triggers" (eq $autoscaling.owner "hpa") -}}
{{- if not $autoscaling.max -}}
  {{- $problems = append $problems (list (printf "%s.max" .place) (printf "missing: owner %s needs it" $autoscaling.owner) "set the most replicas") -}}
{{- else if lt (int64 $autoscaling.max) (int64 $autoscaling.min) -}}
  {{- $problems = append $problems (list (printf "%s.max" .place) (printf "%d is less than min, %d" (int64 $autoscaling.max) (int64 $autoscaling.min)) "raise max") -}}
{{- end -}}
{{- if and $signal (get $autoscaling $own) -}}
  {{- $problems = append $problems (list (printf "%s.%s" .place $own) "stands beside signal" "keep one of them") -}}
{{- else if not (or $signal (get $autoscaling $own)) -}}
  {{- $problems = append $problems (list (printf "%s.signal" .place) "missing: nothing says when to scale" (printf "set it, or %s" $own)) -}}
{{- end -}}
{{- if ne (empty $signal) (empty $autoscaling.target) -}}
  {{- $problems = append $problems (list (printf "%s.target" .place) (ternary "has no effect without signal" "missing" (empty $signal)) "set signal and target, or neither") -}}
{{- end -}}
{{- $values := .root.Values -}}
{{- $refused := dict -}}
{{- if eq .name "frontend" -}}
  {{- range $word := list "kv_usage" "prompt_tokens" -}}{{- $_ := set $refused $word "is a pool's, and a frontend has none of it" -}}{{- end -}}
{{- end -}}
{{- if eq .name "decode" -}}{{- $_ := set $refused "prompt_tokens" "is not decode's: prefill reads the prompts" -}}{{- end -}}
{{- if eq .name "prefill" -}}{{- $_ := set $refused "itl_s" "is not prefill's: decode writes the answers" -}}{{- end -}}
{{- if eq $values.engine.kind "mocker" -}}{{- $_ := set $refused "kv_usage" "is no metric of the mocker's" -}}{{- end -}}
{{- if ne $values.router.mode "kv" -}}{{- $_ := set $refused "prompt_tokens" (printf "is not known with router.mode %s" $values.router.mode) -}}{{- end -}}
{{- with get $refused $signal -}}
  {{- $problems = append $problems (list (printf "%s.signal" $.place) (printf "%s %s" $signal .) "use another signal") -}}
{{- end -}}
{{- $units := get (dict "kv_usage" (list 1 "a share, such as 0.8") "ttft_s" (list 60 "seconds, such as 0.5") "itl_s" (list 60 "seconds, such as 0.02")) $signal -}}
{{- if and $units $autoscaling.target (gt (float64 $autoscaling.target) (float64 (first $units))) -}}
  {{- $problems = append $problems (list (printf "%s.target" .place) (printf "%v, and %s goes from 0 to %d" $autoscaling.target $signal (first $units)) (printf "write it as %s" (last $units))) -}}
{{- end -}}
{{- if eq $signal "cpu" -}}
  {{- if not (dig "resources" "cpu" "" (get $values .name)) -}}
    {{- $problems = append $problems (list (printf "%s.resources.cpu" .name) "unset, and autoscaling.signal cpu is a percentage of it" "set the CPU that one pod needs") -}}
  {{- end -}}
  {{- if and $autoscaling.target (ne (float64 $autoscaling.target) (floor $autoscaling.target)) -}}
    {{- $problems = append $problems (list (printf "%s.target" .place) (printf "%v, and signal cpu takes whole percents" $autoscaling.target) "write it without a fraction") -}}
  {{- end -}}
{{- else if and $signal (eq $autoscaling.owner "hpa") -}}
  {{- $problems = append $problems (list (printf "%s.signal" .place) (printf "an HPA does not read %s by itself" $signal) "use owner: keda, or metrics of an adapter of yours") -}}
{{- else if and $signal (not $values.cluster.monitoring.pod_monitors) -}}
  {{- $problems = append $problems (list "cluster.monitoring.pod_monitors" (printf "false, and %s goes by the labels that they set" (printf "%s.signal" .place)) "set it to true, or write triggers of your own") -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.planner" -}}
{{- $problems := list -}}
{{- $pools := include "penstock.planner.pools" . | fromJsonArray -}}
{{- $planner := .Values.planner -}}
{{- if and $pools (not $planner) -}}
  {{- $problems = append $problems (list "planner" (printf "missing: %s.autoscaling.owner is planner" (first $pools)) "add planner with max_gpus") -}}
{{- end -}}
{{- if and (or $pools $planner) (eq .Values.platform "plain") -}}
  {{- $problems = append $problems (list (ternary (printf "%s.autoscaling.owner" (first $pools)) "planner" (gt (len $pools) 0)) "the planner scales through the Dynamo operator, and platform is plain" "use hpa or keda, or platform: dynamo") -}}
{{- end -}}
{{- if $planner -}}
  {{- range $key := keys (include "penstock.planner.follows" . | fromYaml) | sortAlpha -}}
    {{- if hasKey ($planner.config | default dict) $key -}}
      {{- $problems = append $problems (list (printf "planner.config.%s" $key) "follows from the graph" (ternary "set planner.max_gpus" (ternary "set autoscaling.min of the pool" "remove it" (hasSuffix "min_endpoint" $key)) (eq $key "max_gpu_budget"))) -}}
    {{- end -}}
  {{- end -}}
  {{- $config := include "penstock.planner.config" . | fromJson -}}
  {{- if and $pools (eq (toString $config.optimization_target) "sla") -}}
    {{- range $key := list "ttft" "itl" -}}
      {{- $names := list (printf "%s_ms" $key) $key -}}
      {{- if not (or (hasKey $config (first $names)) (hasKey $config $key)) -}}
        {{- $problems = append $problems (list (printf "planner.config.%s_ms" $key) "missing: optimization_target sla holds it" "set milliseconds, or another optimization_target") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- range $planner.args -}}
    {{- if regexMatch "^--config(=|$)" . -}}
      {{- $problems = append $problems (list "planner.args" "--config would replace what follows from the graph" "use planner.config") -}}
    {{- end -}}
  {{- end -}}
  {{- $least := 0 -}}
  {{- range $name := $pools -}}
    {{- $pool := include "penstock.pool" (list $ $name) | fromJson -}}
    {{- $gpus := include "penstock.totalGpus" (dict "root" $ "name" $name "pool" $pool) | int64 -}}
    {{- $least = add $least (mul $gpus (include "penstock.replicas" (dict "root" $ "name" $name) | int64)) -}}
  {{- end -}}
  {{- if gt $least (int64 $planner.max_gpus) -}}
    {{- $problems = append $problems (list "planner.max_gpus" (printf "%d, and the fewest replicas of %s take %d" (int64 $planner.max_gpus) (join " and " $pools) $least) "raise it, or lower autoscaling.min") -}}
  {{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}
