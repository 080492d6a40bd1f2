{{/* Where the model's files come from: a path in the pods, a claim, or the hub. */}}

{{/* model.cache over its defaults, as JSON; {} without one. */}}
{{- define "penstock.cache" -}}
{{- $cache := dict -}}
{{- with .Values.model.cache -}}
  {{- $cache = get (include "penstock.defaults" $ | fromYaml) "model_cache" -}}
  {{- include "penstock.merge" (list $cache .) -}}
{{- end -}}
{{- toJson $cache -}}
{{- end -}}

{{/* Where the model cache is mounted; empty without one. */}}
{{- define "penstock.cachePath" -}}
{{- get (include "penstock.cache" . | fromJson) "mount_path" | default "" -}}
{{- end -}}

{{/* "true" where a Job fetches the files. */}}
{{- define "penstock.downloads" -}}
{{- if get (include "penstock.cache" . | fromJson) "download" -}}true{{- end -}}
{{- end -}}

{{/*
(list root id revision): where the Job puts a model. A plain folder, which every engine opens without
asking a hub: offline, a hub's id is found by the branch it was fetched as, and a commit is none.
*/}}
{{- define "penstock.downloadPath" -}}
{{- printf "%s/models/%s/%s" (include "penstock.cachePath" (index . 0)) (index . 1) (index . 2) -}}
{{- end -}}

{{- define "penstock.modelPath" -}}
{{- $values := .Values -}}
{{- if $values.model.path -}}{{ $values.model.path }}
{{- else if include "penstock.downloads" . -}}{{ include "penstock.downloadPath" (list . $values.model.id $values.model.revision) }}
{{- else -}}{{ $values.model.id }}
{{- end -}}
{{- end -}}

{{/* The revision that an engine is to ask the hub for; empty where it opens a folder. */}}
{{- define "penstock.revision" -}}
{{- if not (include "penstock.downloads" .) -}}{{ .Values.model.revision | default "" }}{{- end -}}
{{- end -}}

{{/* The draft model as the engine gets it; empty without one. */}}
{{- define "penstock.draftModel" -}}
{{- with .Values.speculation -}}
{{- if and .draft_model (include "penstock.downloads" $) (not (hasPrefix "/" .draft_model)) -}}
{{- include "penstock.downloadPath" (list $ .draft_model .draft_revision) -}}
{{- else -}}{{ .draft_model | default "" }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the Job fetches: a JSON list of {id, revision, path}. */}}
{{- define "penstock.downloadList" -}}
{{- $model := .Values.model -}}
{{- $wanted := list (dict "id" $model.id "revision" $model.revision "path" (include "penstock.modelPath" .)) -}}
{{- with .Values.speculation -}}
  {{- if and .draft_model (not (hasPrefix "/" .draft_model)) -}}
    {{- $wanted = append $wanted (dict "id" .draft_model "revision" .draft_revision "path" (include "penstock.draftModel" $)) -}}
  {{- end -}}
{{- end -}}
{{- toJson $wanted -}}
{{- end -}}

{{/* Waits for the Job's files, so that no engine starts, or asks the hub, before they are whole. */}}
{{- define "penstock.waitForModel" -}}
- name: "wait-for-model"
  image: {{ quote .image }}
  command: ["sh", "-c"]
  args:
    - {{ include "penstock.waitScript" . | quote }}
    - "sh"
    {{- range include "penstock.downloadList" .root | fromJsonArray }}
    - {{ printf "%s/.complete" .path | quote }}
    {{- end }}
  {{- include "penstock.containerSecurity" (omit . "pool") | nindent 2 }}
  volumeMounts:
    - {name: "model-cache", mountPath: {{ include "penstock.cachePath" .root | quote }}, readOnly: true}
{{- end -}}

{{- define "penstock.waitScript" -}}
for file in "$@"; do until [ -e "$file" ]; do echo "waiting for $file"; sleep 10; done; done
{{- end -}}

{{/*
The Job's script: id, revision and folder of each model as arguments. Without the marker a Job that
was killed begins again where it stopped, and no worker takes half a model for a whole one.
*/}}
{{- define "penstock.downloadScript" -}}
set -eu
while [ "$#" -gt 0 ]; do
  hf download "$1" --revision "$2" --local-dir "$3" --exclude "original/*" --exclude "metal/*"
  touch "$3/.complete"
  shift 3
done
{{- end -}}

{{/* The pod that fetches; takes a component with models. */}}
{{- define "penstock.model.podSpec" -}}
restartPolicy: "OnFailure"
{{- with include "penstock.serviceAccount" .root }}
serviceAccountName: {{ quote . }}
{{- end }}
automountServiceAccountToken: false
{{- include "penstock.podSecurity" . }}
{{- include "penstock.placement" . }}
containers:
  - name: "download"
    image: {{ quote .image }}
    command: ["sh", "-c"]
    args:
      - {{ include "penstock.downloadScript" . | quote }}
      - "sh"
      {{- range .models }}
      - {{ quote .id }}
      - {{ quote .revision }}
      - {{ quote .path }}
      {{- end }}
    {{- include "penstock.containerSecurity" . | nindent 4 }}
    env:
    {{- range $name, $value := merge (dict "HF_HUB_OFFLINE" "0") .root.Values.env }}
      - name: {{ quote $name }}
        value: {{ quote $value }}
    {{- end }}
    {{- with .root.Values.model.token_secret }}
    envFrom:
      - secretRef: {name: {{ quote . }}}
    {{- end }}
    volumeMounts:
      - {name: "model-cache", mountPath: {{ include "penstock.cachePath" .root | quote }}}
{{- include "penstock.volumes" . }}
{{- end -}}
