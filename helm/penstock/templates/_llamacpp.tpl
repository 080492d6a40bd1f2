{{/* The derived configuration of llama.cpp's worker, in llama.cpp's names (penstock/llamacpp/config.py). */}}
{{- define "penstock.llamacpp.derived" -}}
{{- with .root.Values.model.context_length }}
n_ctx_seq: {{ include "penstock.number" . }} # from model.context_length
{{- end }}
{{- end -}}
