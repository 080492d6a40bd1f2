{{/*
YAML in which every string is quoted, every number keeps its value, and keys are sorted.

`toYaml` is not enough. Helm holds all numbers as 64-bit floats and prints 1048576 as 1.048576e+06
in text; PyYAML, which TensorRT-LLM, vLLM and SGLang use, reads `1e-07` as a string; and the
dialects disagree on `yes`, `1e3`, `0o17`, `12:30`. Go's %q is always a valid double-quoted scalar.
*/}}

{{- define "penstock.yaml" -}}
{{- if kindIs "string" . -}}{{ quote . }}
{{- else if kindIs "map" . -}}
  {{- $lines := list -}}
  {{- $names := keys . | sortAlpha -}}
  {{- /* Keys stay plain where every dialect reads the same strings; one regex for all: 15 µs. */ -}}
  {{- $plain := regexMatch `^\[("[A-Za-z_][A-Za-z0-9_./-]*",?)*\]$` (toJson $names) -}}
  {{- $reserved := list "y" "n" "yes" "no" "on" "off" "true" "false" "null" -}}
  {{- $first := ternary (list "name") list (hasKey . "name") -}}
  {{- range $key := concat $first (without $names "name") -}}
    {{- $value := get $ $key -}}
    {{- if not (and $plain (not (has (lower $key) $reserved))) -}}{{- $key = quote $key -}}{{- end -}}
    {{- if kindIs "string" $value -}}
      {{- $lines = append $lines (printf "%s: %q" $key $value) -}}
    {{- else if and $value (or (kindIs "map" $value) (kindIs "slice" $value)) -}}
      {{- $lines = append $lines (printf "%s:\n%s" $key (include "penstock.yaml" $value | indent 2)) -}}
    {{- else -}}
      {{- $lines = append $lines (printf "%s: %s" $key (include "penstock.yaml" $value)) -}}
    {{- end -}}
  {{- end -}}
  {{- join "\n" $lines | default "{}" -}}
{{- else if kindIs "slice" . -}}
  {{- $lines := list -}}
  {{- range . -}}
    {{- if kindIs "string" . -}}
      {{- $lines = append $lines (printf "- %q" .) -}}
    {{- else -}}
      {{- $lines = append $lines (printf "- %s" (include "penstock.yaml" . | indent 2 | trimPrefix "  ")) -}}
    {{- end -}}
  {{- end -}}
  {{- join "\n" $lines | default "[]" -}}
{{- else if kindIs "invalid" . -}}null
{{- else if kindIs "bool" . -}}{{ . }}
{{- else -}}{{ include "penstock.number" . }}
{{- end -}}
{{- end -}}

{{/* A number as in JSON. `1e-7` gets a dot, without which PyYAML reads a string. */}}
{{- define "penstock.number" -}}
{{- $text := toJson . -}}
{{- if kindIs "float64" . -}}
  {{- if or (ge . 9007199254740992.0) (le . -9007199254740992.0) -}}
    {{- include "penstock.refuse" (list (printf "number %s" $text) "is beyond 2^53, where Helm changes integers" "Use a smaller number.") -}}
  {{- end -}}
{{- end -}}
{{- ternary ($text | replace "e" ".0e") $text (and (contains "e" $text) (not (contains "." $text))) -}}
{{- end -}}

{{/*
Deep merge of (list under over) into `under`. Values of `over` win, also false, 0 and null, which
Sprig's mergeOverwrite drops.
*/}}
{{- define "penstock.merge" -}}
{{- $under := index . 0 -}}
{{- range $key, $value := index . 1 -}}
  {{- if and (kindIs "map" $value) (kindIs "map" (get $under $key)) -}}
    {{- include "penstock.merge" (list (get $under $key) $value) -}}
  {{- else -}}
    {{- $_ := set $under $key $value -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Fail with (list place message fix). penstock parses the line into a Problem. */}}
{{- define "penstock.refuse" -}}
{{- fail (include "penstock.problem" .) -}}
{{- end -}}

{{- define "penstock.problem" -}}
{{- printf "penstock: %s: %s. Fix: %s" (index . 0) (index . 1) (index . 2) -}}
{{- end -}}
