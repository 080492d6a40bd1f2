{{/*
The engine's configuration file of a pool: what the user wrote, over what follows from the rest of
the graph. Each engine's module says what follows: penstock.<engine>.derived.
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

{{/* The whole configuration, as JSON; takes a pool. */}}
{{- define "penstock.config" -}}
{{- $kind := .root.Values.engine.kind -}}
{{- $said := include "penstock.config.said" . | fromJson -}}
{{- $config := include (printf "penstock.%s.derived" $kind) (set (omit . "said") "said" $said) | fromYaml -}}
{{- include "penstock.merge" (list $config $said) -}}
{{- /* vLLM and SGLang would read a null as the word None: it leaves the key out. */ -}}
{{- range $key := ternary (keys $config) list (has $kind (list "vllm" "sglang")) -}}
  {{- if kindIs "invalid" (get $config $key) -}}{{- $_ := unset $config $key -}}{{- end -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* What the user wrote for the pool, as JSON: engine.config with the pool's own over it. */}}
{{- define "penstock.config.said" -}}
{{- $kind := .root.Values.engine.kind -}}
{{- $said := include "penstock.config.spelt" (list $kind "engine.config" .root.Values.engine.config) | fromJson -}}
{{- $own := include "penstock.config.spelt" (list $kind (printf "%s.config" .name) .pool.config) | fromJson -}}
{{- include "penstock.merge" (list $said $own) -}}
{{- toJson $said -}}
{{- end -}}

{{/*
(list kind place config) in one spelling, as JSON. vLLM and SGLang turn each key of their file into a
flag. With `enable_prefix_caching: false` vLLM looks for --no-enable_prefix_caching, does not find it
and says nothing; so keys get the dashes of the flags.
*/}}
{{- define "penstock.config.spelt" -}}
{{- $kind := index . 0 -}}{{- $place := index . 1 -}}
{{- $spelt := dict -}}
{{- range $key, $value := index . 2 -}}
  {{- /* `compilation-config.cudagraph_mode`: what follows a dot is a key inside of a value. */ -}}
  {{- $head := first (splitList "." $key) -}}
  {{- $dashed := printf "%s%s" (replace "_" "-" $head) (trimPrefix $head $key) -}}
  {{- $flag := ternary $dashed $key (has $kind (list "vllm" "sglang")) -}}
  {{- if and (eq $kind "sglang") (eq $flag "tensor-parallel-size") -}}{{- $flag = "tp-size" -}}{{- end -}}
  {{- if hasKey $spelt $flag -}}
    {{- include "penstock.refuse" (list $place (printf "%s stands there twice, in two spellings" $flag) "keep one") -}}
  {{- end -}}
  {{- $_ := set $spelt $flag $value -}}
{{- end -}}
{{- toJson $spelt -}}
{{- end -}}

{{/*
Name of the pool's ConfigMap: it changes with the text, so that a pod of the old generation never
reads the new generation's file.
*/}}
{{- define "penstock.config.name" -}}
{{- $text := .text | default (include "penstock.config.text" .) -}}
{{- $name := printf "%s-%s-%s" .root.Release.Name .name (sha256sum $text | trunc 10) -}}
{{- if gt (len $name) 63 -}}
{{- include "penstock.refuse" (list "release name" (printf "%q makes the name %s of %d characters, and 63 is the limit" .root.Release.Name $name (len $name)) (printf "use one of at most %d characters" (sub 63 (sub (len $name) (len .root.Release.Name))))) -}}
{{- end -}}
{{- $name -}}
{{- end -}}
