{{/*
The derived configuration of the mocker, in its canonical JSON. The file replaces the command line, so
it also has the role and the context length (dynamo/mocker/config.py 1.6.1).
*/}}
{{- define "penstock.mocker.derived" -}}
engine:
  worker_type: {{ get (dict "prefill" "prefill" "decode" "decode" "worker" "aggregated") .name }} # from {pool}
  {{- with .root.Values.model.context_length }}
  max_model_len: {{ include "penstock.number" . }} # from model.context_length
  {{- end }}
dynamo:
  enable_local_indexer: true # from {pool}
{{- end -}}
