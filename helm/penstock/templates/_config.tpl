{{/*
The engine's configuration file of a pool: the user's configuration merged over the one derived from
the rest of the graph. Each engine has a template for the derived part: penstock.<engine>.derived.
*/}}

{{- define "penstock.config.file" -}}
{{- ternary "engine.json" "engine.yaml" (eq .Values.engine.kind "mocker") -}}
{{- end -}}

{{/* Text of the file; takes a pool. */}}
{{- define "penstock.config.text" -}}
{{- $config := include "penstock.config" . | fromJson -}}
{{- if eq .root.Values.engine.kind "mocker" -}}
{{- toPrettyJson $config -}}
{{- else -}}
{{- include "penstock.yaml" $config -}}
{{- end -}}
{{- end -}}

{{/* The merged configuration, as JSON; takes a pool. */}}
{{- define "penstock.config" -}}
{{- $kind := .root.Values.engine.kind -}}
{{- $user := include "penstock.config.user" . | fromJson -}}
{{- $config := include (printf "penstock.%s.derived" $kind) (set (omit . "user") "user" $user) | fromYaml -}}
{{- include "penstock.merge" (list $config $user) -}}
{{- /* vLLM and SGLang would read null as the string None, so null removes the key. */ -}}
{{- range $key := ternary (keys $config) list (has $kind (list "vllm" "sglang")) -}}
  {{- if kindIs "invalid" (get $config $key) -}}{{- $_ := unset $config $key -}}{{- end -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* The user's configuration of the pool, as JSON: the pool's config merged over engine.config. */}}
{{- define "penstock.config.user" -}}
{{- $kind := .root.Values.engine.kind -}}
{{- $user := include "penstock.config.spelled" (list $kind "engine.config" .root.Values.engine.config) | fromJson -}}
{{- $own := include "penstock.config.spelled" (list $kind (printf "%s.config" .name) .pool.config) | fromJson -}}
{{- include "penstock.merge" (list $user $own) -}}
{{- toJson $user -}}
{{- end -}}

{{/*
(list kind place config) in one spelling, as JSON. vLLM and SGLang turn each key of their file into a
flag. With `enable_prefix_caching: false` vLLM looks for --no-enable_prefix_caching, does not find it
and reports nothing, so keys are spelled with dashes like the flags.
*/}}
{{- define "penstock.config.spelled" -}}
{{- $kind := index . 0 -}}{{- $place := index . 1 -}}
{{- $spelled := dict -}}
{{- range $key, $value := index . 2 -}}
  {{- /* In `compilation-config.cudagraph_mode` the part after the dot is a key inside a value. */ -}}
  {{- $head := first (splitList "." $key) -}}
  {{- $dashed := printf "%s%s" (replace "_" "-" $head) (trimPrefix $head $key) -}}
  {{- $flag := ternary $dashed $key (has $kind (list "vllm" "sglang")) -}}
  {{- if and (eq $kind "sglang") (eq $flag "tensor-parallel-size") -}}{{- $flag = "tp-size" -}}{{- end -}}
  {{- if hasKey $spelled $flag -}}
    {{- include "penstock.refuse" (list $place (printf "%s is set twice, in two spellings" $flag) "Keep one of them.") -}}
  {{- end -}}
  {{- $_ := set $spelled $flag $value -}}
{{- end -}}
{{- toJson $spelled -}}
{{- end -}}

{{/*
Name of the pool's ConfigMap. It changes with the text, so that a pod of the old generation never
reads the file of the new generation.
*/}}
{{- define "penstock.config.name" -}}
{{- $text := .text -}}
{{- if not $text -}}{{- $text = include "penstock.config.text" . -}}{{- end -}}
{{- $name := printf "%s-%s-%s" .root.Release.Name .name (sha256sum $text | trunc 10) -}}
{{- if gt (len $name) 63 -}}
{{- include "penstock.refuse" (list "Release.Name" (printf "%q gives the name %s of %d characters, and 63 is the limit" .root.Release.Name $name (len $name)) (printf "Use a name of at most %d characters." (sub 63 (sub (len $name) (len .root.Release.Name))))) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* ConfigMap with one file of a component; takes (dict root name text file). */}}
{{- define "penstock.config.map" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "penstock.config.name" . | quote }}
  labels:
    {{- include "penstock.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ quote .name }}
    app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
  annotations:
    # Workers of the old generation serve until the new ones are ready, or for hours if those cannot
    # start. A rescheduled worker still needs its file. The README describes the removal.
    helm.sh/resource-policy: "keep"
    argocd.argoproj.io/sync-options: "Prune=false,Delete=false"
immutable: true
data:
  {{ .file }}: |-
    {{- .text | nindent 4 }}
{{- end -}}
