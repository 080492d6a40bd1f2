{{/* Python module of a worker: of Dynamo, or of penstock for llama.cpp. */}}
{{- define "penstock.worker.module" -}}
{{- printf "%s.%s" (ternary "penstock" "dynamo" (eq .Values.engine.kind "llamacpp")) .Values.engine.kind -}}
{{- end -}}

{{/* Arguments of a worker after `python3 -m MODULE`, as a YAML list; takes a pool. */}}
{{- define "penstock.worker.args" -}}
{{- $values := .root.Values -}}
{{- $kind := $values.engine.kind -}}
- {{ ternary "--model" "--model-path" (has $kind (list "trtllm" "vllm" "llamacpp")) | quote }}
- {{ include "penstock.modelPath" .root | quote }}
- {{ ternary "--model-name" "--served-model-name" (eq $kind "mocker") | quote }}
- {{ include "penstock.servedName" .root | quote }}
{{- if ne .name "worker" }}
- "--disaggregation-mode"
- {{ .name | quote }}
{{- end }}
- {{ ternary "--extra-engine-args" "--config" (has $kind (list "trtllm" "mocker")) | quote }}
- {{ printf "/etc/penstock/%s" (include "penstock.config.file" .root) | quote }}
{{- if and (eq $kind "trtllm") (ne .name "decode") (include "penstock.kvEvents" .root) }}
- "--publish-kv-events"
{{- end }}
{{- if ne $kind "mocker" }}
{{- with $values.model.reasoning_parser }}
- "--dyn-reasoning-parser"
- {{ quote . }}
{{- end }}
{{- with $values.model.tool_call_parser }}
- "--dyn-tool-call-parser"
- {{ quote . }}
{{- end }}
{{- end }}
{{- if eq $kind "vllm" }}
{{- include "penstock.vllm.multinodeArgs" . }}
{{- end }}
{{- range concat $values.engine.args .pool.args }}
- {{ quote . }}
{{- end }}
{{- end -}}
