{{/*
Autoscaling of a component by an HPA, KEDA, Dynamo's planner or another autoscaler. Helpers take a
component, (dict root name). With the operator the component gets a scaling adapter, which the
autoscaler scales. `replicas` is omitted, as each upgrade would reset it.
*/}}

{{/* The autoscaling of the component merged over the defaults, as JSON; {} without autoscaling. */}}
{{- define "penstock.autoscaling" -}}
{{- $own := get (get .root.Values .name) "autoscaling" -}}
{{- $autoscaling := dict -}}
{{- if $own -}}
  {{- $autoscaling = get (include "penstock.defaults" .root | fromJson) "autoscaling" -}}
  {{- include "penstock.merge" (list $autoscaling $own) -}}
{{- end -}}
{{- toJson $autoscaling -}}
{{- end -}}

{{/* The number of replicas in the graph, or the minimum of the autoscaler. */}}
{{- define "penstock.replicas" -}}
{{- $replicas := index (get .root.Values .name) "replicas" -}}
{{- $least := (include "penstock.autoscaling" . | fromJson).min | default 1 | int64 -}}
{{- if kindIs "invalid" $replicas -}}{{ $least }}{{- else -}}{{ int64 $replicas }}{{- end -}}
{{- end -}}

{{/* The field of a DGD component that sets its replicas, or that enables its scaling adapter. */}}
{{- define "penstock.dgd.replicas" -}}
{{- if (include "penstock.autoscaling" . | fromJson).owner -}}
scalingAdapter: {}
{{- else -}}
replicas: {{ include "penstock.replicas" . }}
{{- end -}}
{{- end -}}

{{/* The scaleTargetRef of an autoscaler. */}}
{{- define "penstock.scaleTarget" -}}
{{- if eq .root.Values.platform "plain" -}}
{{- if eq (include "penstock.nodes" .) "1" -}}
apiVersion: "apps/v1"
kind: "Deployment"
{{- else -}}
apiVersion: "leaderworkerset.x-k8s.io/v1"
kind: "LeaderWorkerSet"
{{- end }}
{{- else -}}
apiVersion: "nvidia.com/v1beta1"
kind: "DynamoGraphDeploymentScalingAdapter"
{{- end }}
name: {{ printf "%s-%s" .root.Release.Name .name | quote }}
{{- end -}}

{{/*
Scaling behavior. A model takes minutes to load, and until then the signal stays high: an HPA would
add replicas every 15 s. A worker that is removed loses its KV cache, and drains first.
*/}}
{{- define "penstock.scalingBehavior" -}}
{{- $behavior := (include "penstock.autoscaling" . | fromJson).behavior -}}
{{- if or $behavior (eq .name "frontend") -}}
{{- toJson $behavior -}}
{{- else -}}
{{- $drain := min 1800 (include "penstock.drain.pod" .root | int64) -}}
{{- $up := dict "policies" (list (dict "type" "Percent" "value" 100 "periodSeconds" 300)) -}}
{{- $down := dict "stabilizationWindowSeconds" 600 "policies" (list (dict "type" "Pods" "value" 1 "periodSeconds" $drain)) -}}
{{- toJson (dict "scaleUp" $up "scaleDown" $down) -}}
{{- end -}}
{{- end -}}

{{/* KEDA's triggers of a component, as a JSON list. */}}
{{- define "penstock.triggers" -}}
{{- $autoscaling := include "penstock.autoscaling" . | fromJson -}}
{{- $target := include "penstock.number" $autoscaling.target -}}
{{- if $autoscaling.triggers -}}
{{- toJson $autoscaling.triggers -}}
{{- else if eq $autoscaling.signal "cpu" -}}
{{- toJson (list (dict "type" "cpu" "metricType" "Utilization" "metadata" (dict "value" $target))) -}}
{{- else -}}
{{- $signal := include "penstock.signal" . | fromJson -}}
{{- $metadata := dict "serverAddress" .root.Values.cluster.monitoring.prometheus "query" $signal.query "threshold" $target -}}
{{- /* By default KEDA reads no data as 0, so a Prometheus without targets would scale everything in. */ -}}
{{- $_ := set $metadata "ignoreNullValues" "false" -}}
{{- toJson (list (dict "type" "prometheus" "metricType" $signal.type "metadata" $metadata)) -}}
{{- end -}}
{{- end -}}

{{/*
The PromQL query of a signal and KEDA's metric type: Value scales by the ratio to the target,
AverageValue divides by the target. The chart's PodMonitors add the labels to every series.
*/}}
{{- define "penstock.signal" -}}
{{- $graph := printf "namespace=%q, app_kubernetes_io_instance=%q" .root.Release.Namespace .root.Release.Name -}}
{{- $pool := printf "%s, app_kubernetes_io_component=%q" $graph .name -}}
{{- $signal := (include "penstock.autoscaling" . | fromJson).signal -}}
{{- $query := "" -}}{{- $type := "Value" -}}
{{- if eq $signal "kv_usage" -}}
  {{- /* A fraction, although the name says percent. */ -}}
  {{- $query = printf "avg(dynamo_component_gpu_cache_usage_percent{%s})" $pool -}}
{{- else if eq $signal "prompt_tokens" -}}
  {{- /* As reported by the routers, which label an aggregated pool as decode. */ -}}
  {{- $role := ternary "decode" .name (eq .name "worker") -}}
  {{- $query = printf "sum(max by (worker_id, dp_rank) (dynamo_frontend_worker_active_prefill_tokens{%s, worker_type=%q}))" $graph $role -}}
  {{- $type = "AverageValue" -}}
{{- else if eq $signal "requests" -}}
  {{- $query = ternary (printf "sum(dynamo_frontend_inflight_requests{%s})" $graph) (printf "sum(dynamo_component_inflight_requests{%s, dynamo_endpoint=\"generate\"})" $pool) (eq .name "frontend") -}}
  {{- $type = "AverageValue" -}}
{{- else -}}
  {{- /* Without traffic a quantile is NaN. It is replaced by 0 if frontends report metrics. */ -}}
  {{- $metric := ternary "dynamo_frontend_time_to_first_token_seconds" "dynamo_frontend_inter_token_latency_seconds" (eq $signal "ttft_s") -}}
  {{- $query = printf "(histogram_quantile(0.9, sum by (le) (rate(%s_bucket{%s}[2m]))) >= 0) or (0 * sum(dynamo_frontend_inflight_requests{%s}))" $metric $graph $graph -}}
{{- end -}}
{{- toJson (dict "query" $query "type" $type) -}}
{{- end -}}
