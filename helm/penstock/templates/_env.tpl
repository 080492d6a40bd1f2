{{/* Environment derived from the graph, as maps. The env fields of the graph override it. */}}

{{- define "penstock.frontend.env" -}}
{{ include "penstock.env" . }}
DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS: {{ include "penstock.number" .Values.drain_timeout_s | quote }} # from drain_timeout_s
DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS: "25" # from drain_timeout_s
{{- with .Values.frontend.inactivity_timeout_s }}
DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS: {{ include "penstock.number" . | quote }} # from frontend.inactivity_timeout_s
{{- end }}
{{- with include "penstock.overloadStatus" . }}
DYN_HTTP_OVERLOAD_STATUS_CODE: {{ quote . }} # from frontend.overload_status
{{- end }}
{{- end -}}

{{/* Status of requests rejected because of overload; empty where no worker rejects any. */}}
{{- define "penstock.overloadStatus" -}}
{{- $router := .Values.router -}}
{{- $limits := list $router.active_decode_blocks_threshold $router.active_prefill_tokens_threshold -}}
{{- range $name := include "penstock.pools" . | fromJsonArray -}}
  {{- $limits = append $limits (get $.Values $name).request_limit -}}
{{- end -}}
{{- $status := .Values.frontend.overload_status | default (ternary 429 "" (gt (len (compact $limits)) 0)) -}}
{{- if $status -}}{{- include "penstock.number" $status -}}{{- end -}}
{{- end -}}

{{/*
How a worker stops in 1.6.1 (dynamo/common/utils/graceful_shutdown.py): It leaves discovery. During
the grace period (default 5 s) it finishes its requests. Prefill on TensorRT-LLM then drains for at
most 30 s. Then unfinished requests are cancelled (the frontend moves them to another worker), and
the runtime waits for its endpoints (default 900 s, of which the kubelet allows 60). Therefore
drain + 30 + 25 < drain + 60 = terminationGracePeriodSeconds. The mocker has only the last wait.
*/}}
{{- define "penstock.worker.env" -}}
{{- $drain := int64 .root.Values.drain_timeout_s -}}
{{ include "penstock.env" .root }}
{{- if eq .root.Values.engine.kind "mocker" }}
DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS: {{ $drain | quote }} # from drain_timeout_s
{{- else }}
DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS: {{ $drain | quote }} # from drain_timeout_s
DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS: "25" # from drain_timeout_s
{{- end }}
DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT: {{ add $drain 55 | quote }} # from drain_timeout_s
{{- $autoscaling := include "penstock.autoscaling" . | fromJson }}
{{- if and (eq ($autoscaling.signal | default "") "kv_usage") (eq .root.Values.engine.kind "trtllm") }}
DYN_TRTLLM_PUBLISH_METRICS: "true" # from {pool}.autoscaling.signal
{{- end }}
{{- with .pool.request_limit }}
DYN_ENGINE_REQUEST_LIMIT: {{ include "penstock.number" . | quote }} # from {pool}.request_limit
{{- end }}
{{- with .pool.queue_limit }}
DYN_DYNAMO_REQUEST_QUEUE_LIMIT: {{ include "penstock.number" . | quote }} # from {pool}.queue_limit
{{- end }}
{{- include "penstock.transferEnv" . }}
{{- end -}}

{{/*
Export of traces, of one component. Dynamo 1.6.1 exports its logs too, by default to localhost:4317;
the generic endpoint is for both, so that no export fails when the endpoint is a collector.
*/}}
{{- define "penstock.tracing.env" -}}
{{- with .root.Values.tracing }}
OTEL_EXPORT_ENABLED: "true" # from tracing
OTEL_EXPORTER_OTLP_ENDPOINT: {{ quote .endpoint }} # from tracing.endpoint
OTEL_EXPORTER_OTLP_PROTOCOL: {{ ternary "http/protobuf" "grpc" (hasSuffix ":4318" .endpoint) | quote }} # from tracing.endpoint
OTEL_SERVICE_NAME: {{ printf "%s-%s" $.root.Release.Name $.name | quote }} # from tracing
{{- $defaults := get (include "penstock.defaults" $.root | fromJson) "tracing" }}
{{- $ratio := ternary .sample_ratio $defaults.sample_ratio (hasKey . "sample_ratio") }}
OTEL_TRACES_SAMPLE_RATIO: {{ include "penstock.number" $ratio | quote }} # from tracing.sample_ratio, tracing
{{- end }}
{{- end -}}

{{- define "penstock.drain.pod" -}}
{{- add (int64 .Values.drain_timeout_s) 60 -}}
{{- end -}}

{{/* The discovery backend: of the graph, or the default of the platform. */}}
{{- define "penstock.discovery" -}}
{{- .Values.infrastructure.discovery | default (ternary "etcd" "kubernetes" (eq .Values.platform "plain")) -}}
{{- end -}}

{{/* URLs of etcd, joined; empty if the operator or `up` sets its own. */}}
{{- define "penstock.etcdEndpoints" -}}
{{- if .Values.infrastructure.etcd_endpoints -}}{{ join "," .Values.infrastructure.etcd_endpoints }}
{{- else if include "penstock.ownEtcd" . -}}{{ printf "http://%s:2379" (include "penstock.etcd.name" .) }}
{{- end -}}
{{- end -}}

{{/* Ports of the etcd and NATS servers that the pods use, as JSON; the standard ports by default. */}}
{{- define "penstock.serverPorts" -}}
{{- $infrastructure := .Values.infrastructure -}}
{{- $urls := list -}}
{{- if eq (include "penstock.discovery" .) "etcd" -}}
  {{- range $infrastructure.etcd_endpoints | default (list "http://etcd:2379") -}}
    {{- $urls = append $urls (list . "2379") -}}
  {{- end -}}
{{- end -}}
{{- if or (eq $infrastructure.events "nats") (eq $infrastructure.requests "nats") -}}
  {{- range splitList "," ($infrastructure.nats_url | default "nats://nats:4222") -}}
    {{- $urls = append $urls (list . "4222") -}}
  {{- end -}}
{{- end -}}
{{- $ports := list -}}
{{- range $urls -}}
  {{- $host := (first . | urlParse).host -}}
  {{- $ports = append $ports (regexFind ":[0-9]+$" $host | trimPrefix ":" | default (last .) | int) -}}
{{- end -}}
{{- toJson (uniq $ports) -}}
{{- end -}}

{{/* Discovery and transport of all components. The operator sets kubernetes discovery itself. */}}
{{- define "penstock.env" -}}
{{- $infrastructure := .Values.infrastructure -}}
{{- $discovery := include "penstock.discovery" . -}}
{{- if ne $discovery "kubernetes" }}
DYN_DISCOVERY_BACKEND: {{ quote $discovery }} # from infrastructure.discovery, platform
{{- end }}
{{- with include "penstock.etcdEndpoints" . }}
ETCD_ENDPOINTS: {{ quote . }} # from infrastructure.etcd_endpoints
{{- end }}
{{- if ne $infrastructure.events "zmq" }}
DYN_EVENT_PLANE: {{ quote $infrastructure.events }} # from infrastructure.events
{{- end }}
{{- if ne $infrastructure.requests "tcp" }}
DYN_REQUEST_PLANE: {{ quote $infrastructure.requests }} # from infrastructure.requests
{{- end }}
{{- with $infrastructure.nats_url }}
NATS_SERVER: {{ quote . }} # from infrastructure.nats_url
{{- end }}
{{- with .Values.model.harmony_vocabulary }}
# Dynamo's harmony parsers read o200k_base.tiktoken here. Without it and without a network they lose
# reasoning and tool calls: the response is empty, with status 200.
TIKTOKEN_ENCODINGS_BASE: {{ quote . }} # from model.harmony_vocabulary
{{- end }}
{{- with include "penstock.cachePath" . }}
HF_HOME: {{ quote . }} # from model.cache.mount_path, model.cache
{{- end }}
{{- $cache := include "penstock.cache" . | fromJson -}}
{{- if or $cache.offline $cache.download }}
HF_HUB_OFFLINE: "1" # from model.cache.offline, model.cache.download
{{- end }}
{{- end -}}
