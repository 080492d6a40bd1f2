{{/*
What follows for the mocker, in its canonical JSON. The file replaces the command line, so the role
and the context length stand in it too (dynamo/mocker/config.py 1.6.1).
*/}}
{{- define "penstock.mocker.derived" -}}
engine:
  worker_type: {{ get (dict "prefill" "prefill" "decode" "decode" "worker" "aggregated") .name }}
  {{- with .root.Values.model.context_length }}
  max_model_len: {{ include "penstock.number" . }}
  {{- end }}
dynamo:
  enable_local_indexer: true
{{- end -}}
