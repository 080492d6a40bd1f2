{{/* Source of the model files: a path in the pods, a claim, or the Hugging Face Hub. */}}

{{/* model.cache merged over its defaults, as JSON; {} without a cache. */}}
{{- define "penstock.cache" -}}
{{- $cache := dict -}}
{{- with .Values.model.cache -}}
  {{- $cache = get (include "penstock.defaults" $ | fromJson) "model_cache" -}}
  {{- include "penstock.merge" (list $cache .) -}}
{{- end -}}
{{- toJson $cache -}}
{{- end -}}

{{/* Mount path of the model cache; empty without a cache. */}}
{{- define "penstock.cachePath" -}}
{{- get (include "penstock.cache" . | fromJson) "mount_path" | default "" -}}
{{- end -}}

{{/* "true" where a Job downloads the files. */}}
{{- define "penstock.downloads" -}}
{{- if get (include "penstock.cache" . | fromJson) "download" -}}true{{- end -}}
{{- end -}}

{{/*
The directory to which the Job downloads a model, (list root id revision). Every engine opens a plain
directory without accessing the hub. By ID an offline engine finds only models downloaded by branch.
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

{{/* The revision that an engine requests from the hub; empty if it opens a directory. */}}
{{- define "penstock.revision" -}}
{{- if not (include "penstock.downloads" .) -}}{{ .Values.model.revision | default "" }}{{- end -}}
{{- end -}}

{{/* ID or path of the draft model for the engine; empty without one. */}}
{{- define "penstock.draftModel" -}}
{{- with .Values.speculation -}}
{{- if and .draft_model (include "penstock.downloads" $) (not (hasPrefix "/" .draft_model)) -}}
{{- include "penstock.downloadPath" (list $ .draft_model .draft_revision) -}}
{{- else -}}{{ .draft_model | default "" }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The models that the Job downloads, as a JSON list of {id, revision, path}. */}}
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

{{/* Init container that waits for the Job, so that no engine starts before the files are complete. */}}
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
The script of the Job, with ID, revision and directory of each model as arguments. The marker file
lets a Job that was killed resume, and keeps workers from reading an incomplete model.
*/}}
{{- define "penstock.downloadScript" -}}
set -eu
while [ "$#" -gt 0 ]; do
  hf download "$1" --revision "$2" --local-dir "$3" --exclude "original/*" --exclude "metal/*"
  touch "$3/.complete"
  shift 3
done
{{- end -}}

{{/* The pod of the Job; takes a component with models. */}}
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
