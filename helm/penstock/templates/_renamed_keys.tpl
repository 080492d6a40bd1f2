{{/*
Renamed keys of the graph (files/renamed-keys.yaml): copies the value of an old key to the new one.
Returns the old keys in use as a JSON list of {old, new, isGivenTwice}, which it keeps in `.Values`.

Helm merges the default of the new key into the values, so the new key counts as given when its value
differs from the default.
*/}}
{{- define "penstock.renamedKeys" -}}
{{- if not (hasKey .Values "renamedKeys") -}}
  {{- $used := list -}}
  {{- range .Files.Get "files/renamed-keys.yaml" | fromYamlArray -}}
    {{- $from := $.Values -}}
    {{- range initial (splitList "." .old) -}}{{- $from = get $from . | default dict -}}{{- end -}}
    {{- $value := get $from (last (splitList "." .old)) -}}
    {{- if and (hasKey $from (last (splitList "." .old))) (not (kindIs "invalid" $value)) -}}
      {{- $to := $.Values -}}
      {{- range initial (splitList "." .new) -}}
        {{- if not (kindIs "map" (get $to .)) -}}{{- $_ := set $to . dict -}}{{- end -}}
        {{- $to = get $to . -}}
      {{- end -}}
      {{- $key := last (splitList "." .new) -}}
      {{- $present := ternary (get $to $key) .default (hasKey $to $key) -}}
      {{- $isGivenTwice := not (or (kindIs "invalid" $present) (eq (toJson $present) (toJson .default))) -}}
      {{- if not $isGivenTwice -}}{{- $_ := set $to $key $value -}}{{- end -}}
      {{- $used = append $used (dict "old" .old "new" .new "isGivenTwice" $isGivenTwice) -}}
    {{- end -}}
  {{- end -}}
  {{- $_ := set .Values "renamedKeys" $used -}}
{{- end -}}
{{- toJson .Values.renamedKeys -}}
{{- end -}}

{{- define "penstock.problems.renamedKeys" -}}
{{- $problems := list -}}
{{- range include "penstock.renamedKeys" . | fromJsonArray -}}
  {{- if .isGivenTwice -}}
    {{- $problems = append $problems (include "penstock.message" (list $ .old "key_given_twice" (dict "old" .old "new" .new)) | fromJsonArray) -}}
  {{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}
