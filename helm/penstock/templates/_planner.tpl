{{/*
Dynamo's planner, a component of its own. The operator creates its ServiceAccount, which may read the
graph and scale its adapters. None is set here, and cluster.service_account does not apply.
*/}}

{{- define "penstock.planner.image" -}}
{{- .Values.planner.image | default (printf "nvcr.io/nvidia/ai-dynamo/dynamo-planner:%s" (include "penstock.dynamo" .)) -}}
{{- end -}}

{{/* Names of the pools that the planner scales, as JSON. */}}
{{- define "penstock.planner.pools" -}}
{{- $planned := list -}}
{{- range $name := include "penstock.pools" . | fromJsonArray -}}
  {{- if eq ((include "penstock.autoscaling" (dict "root" $ "name" $name) | fromJson).owner | default "") "planner" -}}
    {{- $planned = append $planned $name -}}
  {{- end -}}
{{- end -}}
{{- toJson $planned -}}
{{- end -}}

{{/* Keys of PlannerConfig (dynamo/planner/config/planner_config.py 1.6.1) derived from the graph, as YAML. */}}
{{- define "penstock.planner.follows" -}}
{{- $pools := include "penstock.planner.pools" . | fromJsonArray | default (include "penstock.pools" . | fromJsonArray) -}}
environment: "kubernetes"
backend: {{ quote .Values.engine.kind }}
mode: {{ ternary "agg" (ternary "disagg" (first $pools) (eq (len $pools) 2)) (has "worker" $pools) | quote }}
max_gpu_budget: {{ int64 .Values.planner.max_gpus }}
{{- range $name := $pools }}
{{ ternary "" (printf "%s_" $name) (eq $name "worker") }}min_endpoint: {{ include "penstock.replicas" (dict "root" $ "name" $name) }}
{{- end }}
# A second, unauthenticated way to set the bounds.
control_api_port: 0
{{- end -}}

{{/* Defaults that a graph may override. */}}
{{- define "penstock.planner.defaults" -}}
optimization_target: "sla"
enable_throughput_scaling: true
enable_load_scaling: true
pre_deployment_sweeping_mode: "none"
# Off: the dashboard listens on all addresses without a password, and reports go to a directory of the
# container.
live_dashboard_port: 0
report_interval_hours: null
{{- end -}}

{{/* The merged PlannerConfig, as JSON. */}}
{{- define "penstock.planner.config" -}}
{{- $config := include "penstock.planner.defaults" . | fromYaml -}}
{{- $own := .Values.planner.config | default dict -}}
{{- if ne ($own.optimization_target | default "sla") "sla" -}}
  {{- $config = omit $config "enable_throughput_scaling" "enable_load_scaling" -}}
{{- end -}}
{{- include "penstock.merge" (list $config $own) -}}
{{- include "penstock.merge" (list $config (include "penstock.planner.follows" . | fromYaml)) -}}
{{- toJson $config -}}
{{- end -}}

{{- define "penstock.planner.podTemplate" -}}
{{- $planner := get (include "penstock.defaults" . | fromJson) "planner" -}}
{{- include "penstock.merge" (list $planner .Values.planner) -}}
{{- $c := dict "root" . "name" "planner" "component" $planner "image" (include "penstock.planner.image" .) -}}
{{- $metadata := dict "labels" (include "penstock.podLabels" $c | fromYaml) -}}
{{- with $planner.annotations -}}{{- $_ := set $metadata "annotations" . -}}{{- end -}}
{{- $spec := include "penstock.planner.podSpec" $c | fromYaml -}}
{{- include "penstock.podTemplate" (dict "metadata" $metadata "spec" $spec "fragments" (list .Values.pod $planner.pod)) -}}
{{- end -}}

{{- define "penstock.planner.podSpec" -}}
{{- include "penstock.podSecurity" . }}
{{- include "penstock.placement" . }}
containers:
  - name: "main"
    image: {{ quote .image }}
    command: ["python3", "-m", "dynamo.planner"]
    args:
      - "--config" # from planner.config, planner.max_gpus, engine.kind, prefill.autoscaling, decode.autoscaling, worker.autoscaling
      - {{ include "penstock.planner.config" .root | quote }}
      {{- range .component.args }}
      - {{ quote . }}
      {{- end }}
    {{- include "penstock.container" (set . "derived" (include "penstock.planner.env" .root)) | nindent 4 }}
{{- include "penstock.volumes" . }}
{{- end -}}

{{- define "penstock.planner.env" -}}
{{ include "penstock.env" . }}
PROMETHEUS_ENDPOINT: {{ quote .Values.cluster.monitoring.prometheus }} # from cluster.monitoring.prometheus
{{- end -}}

{{/* Port of Prometheus if a pod of the graph queries it; empty otherwise. */}}
{{- define "penstock.planner.prometheusPort" -}}
{{- if .Values.planner -}}
{{- $url := urlParse .Values.cluster.monitoring.prometheus -}}
{{- regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end -}}
{{- end -}}
