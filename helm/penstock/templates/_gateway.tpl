{{/* The section `gateway` over its defaults, as JSON; {} without the section. */}}
{{- define "penstock.gateway" -}}
{{- if kindIs "map" .Values.gateway -}}
{{- $defaults := include "penstock.defaults" . | fromJson -}}
{{- $gateway := $defaults.gateway -}}
{{- include "penstock.merge" (list $gateway .Values.gateway) -}}
{{- if kindIs "invalid" $gateway.max_request_kib -}}
  {{- $kib := 2048 -}}
  {{- with .Values.model.context_length -}}
    {{- /* 16 bytes per token, rounded up, and 64 KiB for tools and parameters. */ -}}
    {{- $kib = add (div (add (mul 16 (int64 .)) 1023) 1024) 64 -}}
  {{- end -}}
  {{- $_ := set $gateway "max_request_kib" (min $kib 4194303) -}}
{{- end -}}
{{- if kindIs "map" $gateway.rate_limit -}}
  {{- $limit := $defaults.rate_limit -}}
  {{- include "penstock.merge" (list $limit $gateway.rate_limit) -}}
  {{- $_ := set $gateway "rate_limit" $limit -}}
{{- end -}}
{{- toJson $gateway -}}
{{- else -}}
{}
{{- end -}}
{{- end -}}

{{/* Secret with the API keys. */}}
{{- define "penstock.gateway.keys" -}}
{{- (include "penstock.gateway" . | fromJson).api_keys.secret | default (printf "%s-api-keys" .Release.Name) -}}
{{- end -}}

{{/* Header in which frontends and the rate limit get the name of the client. */}}
{{- define "penstock.gateway.client" -}}x-penstock-client{{- end -}}

{{/* A text of files/gateway-errors.yaml with the numbers of a gateway: (list gateway text). */}}
{{- define "penstock.gateway.filled" -}}
{{- $gateway := index . 0 -}}
{{- $largest := printf "%d KiB" (int64 $gateway.max_request_kib) -}}
{{- with $gateway.max_messages -}}
  {{- $largest = printf "%s or %d messages" $largest (int64 .) -}}
{{- end -}}
{{- $numbers := dict "largest_request" $largest "upload_s" (int64 $gateway.timeouts.upload_s) -}}
{{- with $gateway.rate_limit -}}
  {{- $requests := int64 .requests -}}
  {{- $seconds := get (dict "second" 1 "minute" 60 "hour" 3600) .unit -}}
  {{- /* Envoy refills its buckets continuously: the time until the next request passes, rounded up. */ -}}
  {{- $_ := set $numbers "requests" $requests -}}
  {{- $_ := set $numbers "unit" .unit -}}
  {{- $_ := set $numbers "retry_after_s" (div (add $seconds $requests -1) $requests) -}}
{{- end -}}
{{- $text := index . 1 -}}
{{- range $name, $number := $numbers -}}
  {{- $text = replace (printf "{%s}" $name) (toString $number) $text -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{/* The target of a policy: (list root kind). */}}
{{- define "penstock.gateway.target" -}}
- group: "gateway.networking.k8s.io"
  kind: {{ index . 1 | quote }}
  name: {{ (index . 0).Release.Name | quote }}
{{- end -}}
