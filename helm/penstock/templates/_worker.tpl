{{/* Python module of a worker: of Dynamo, or of penstock for llama.cpp. */}}
{{- define "penstock.worker.module" -}}
{{- printf "%s.%s" (ternary "penstock" "dynamo" (eq .Values.engine.kind "llamacpp")) .Values.engine.kind -}}
{{- end -}}

{{/*
Arguments of a worker after `python3 -m MODULE`, as a YAML list; takes a pool. Here and in the other
templates, `# from` names the paths of the graph that determine the value of a line, the first that
the graph sets before the others: penstock reports what it finds there (penstock.graph.origin).
`{pool}` is the component, `config:KEY` the key in the pool's or the engine's config.
*/}}
{{- define "penstock.worker.args" -}}
{{- $values := .root.Values -}}
{{- $kind := $values.engine.kind -}}
- {{ ternary "--model" "--model-path" (has $kind (list "trtllm" "vllm" "llamacpp")) | quote }} # from model.path, model.id, model.cache.mount_path, model.revision
- {{ include "penstock.modelPath" .root | quote }}
- {{ ternary "--model-name" "--served-model-name" (eq $kind "mocker") | quote }} # from model.served_name, model.id
- {{ include "penstock.servedName" .root | quote }}
{{- if ne .name "worker" }}
- "--disaggregation-mode" # from {pool}
- {{ .name | quote }}
{{- end }}
- {{ ternary "--extra-engine-args" "--config" (has $kind (list "trtllm" "mocker")) | quote }} # from {pool}.config, engine.config, engine.kind
- {{ printf "/etc/penstock/%s" (include "penstock.config.file" .root) | quote }}
{{- if and (eq $kind "trtllm") (ne .name "decode") (include "penstock.kvEvents" .root) }}
- "--publish-kv-events" # from router.kv_events, router.mode
{{- end }}
{{- if ne $kind "mocker" }}
{{- with $values.model.reasoning_parser }}
- "--dyn-reasoning-parser" # from model.reasoning_parser
- {{ quote . }}
{{- end }}
{{- with $values.model.tool_call_parser }}
- "--dyn-tool-call-parser" # from model.tool_call_parser
- {{ quote . }}
{{- end }}
{{- end }}
{{- if eq $kind "vllm" }}
# --tensor-parallel-size # from config:tensor-parallel-size, {pool}.gpus, {pool}.nodes, engine.device, config:pipeline-parallel-size, config:data-parallel-size
# --pipeline-parallel-size # from config:pipeline-parallel-size
# --data-parallel-size # from config:data-parallel-size
{{- include "penstock.vllm.multinodeArgs" . }}
{{- end }}
{{- range concat $values.engine.args .pool.args }}
- {{ quote . }}
{{- end }}
{{- end -}}
