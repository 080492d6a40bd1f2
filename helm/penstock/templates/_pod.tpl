{{/*
Pod templates. The text below is parsed and merged with the PodSpec fragments of the graph, which win
over derived values, independent of their position.
*/}}

{{/* podTemplate of the frontend. */}}
{{- define "penstock.frontend.podTemplate" -}}
{{- $c := dict "root" . "name" "frontend" "component" .Values.frontend "image" (.Values.frontend.image | default (include "penstock.image" .)) -}}
{{- $metadata := dict "labels" (include "penstock.podLabels" $c | fromYaml) -}}
{{- with .Values.frontend.annotations -}}{{- $_ := set $metadata "annotations" . -}}{{- end -}}
{{- $spec := include "penstock.frontend.podSpec" $c | fromYaml -}}
{{- include "penstock.podTemplate" (dict "metadata" $metadata "spec" $spec "fragments" (list .Values.pod .Values.frontend.pod)) -}}
{{- end -}}

{{/* podTemplate of a pool. */}}
{{- define "penstock.worker.podTemplate" -}}
{{- $values := .root.Values -}}
{{- $c := merge (dict "component" .pool "image" (.pool.image | default (include "penstock.image" .root))) . -}}
{{- $annotations := include "penstock.worker.annotations" . | fromYaml -}}
{{- include "penstock.merge" (list $annotations .pool.annotations) -}}
{{- $metadata := dict "labels" (include "penstock.podLabels" $c | fromYaml) "annotations" $annotations -}}
{{- $spec := include "penstock.worker.podSpec" $c | fromYaml -}}
{{- include "penstock.podTemplate" (dict "metadata" $metadata "spec" $spec "fragments" (list $values.pod .pool.pod)) -}}
{{- end -}}

{{/*
metadata and spec with the fragments merged over them: maps are merged, lists of named objects are
concatenated, other values are replaced. The node selection by hardware.gpu is kept.
*/}}
{{- define "penstock.podTemplate" -}}
{{- $spec := .spec -}}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- range .fragments -}}
  {{- $fragment := deepCopy . -}}
  {{- range $key := list "volumes" "tolerations" "initContainers" "resourceClaims" -}}
    {{- with get $fragment $key -}}
      {{- $_ := set $fragment $key (concat (get $spec $key | default list) .) -}}
    {{- end -}}
  {{- end -}}
  {{- $existing := dig "affinity" "nodeAffinity" $required "nodeSelectorTerms" list $spec -}}
  {{- $terms := dig "affinity" "nodeAffinity" $required "nodeSelectorTerms" list $fragment -}}
  {{- if and $existing $terms -}}
    {{- range $terms -}}
      {{- $_ := set . "matchExpressions" (concat (first $existing).matchExpressions (.matchExpressions | default list)) -}}
    {{- end -}}
  {{- end -}}
  {{- if eq (dig "securityContext" "runAsUser" -1 $fragment | int) 0 -}}
    {{- $_ := unset ($spec.securityContext | default dict) "runAsNonRoot" -}}
  {{- end -}}
  {{- include "penstock.merge" (list $spec $fragment) -}}
{{- end -}}
{{- include "penstock.yaml" (dict "metadata" .metadata "spec" $spec) -}}
{{- end -}}

{{- define "penstock.podLabels" -}}
{{ include "penstock.labels" .root }}
app.kubernetes.io/component: {{ .name | quote }}
{{ include "penstock.selector" . }}
{{- end -}}

{{/*
Labels for selectors: the pods of (dict root name), or of the whole graph without a name. Grove
overrides app.kubernetes.io/name and component of a template (podclique.go, getLabels).
*/}}
{{- define "penstock.selector" -}}
penstock/graph: {{ .root.Release.Name | quote }}
{{- with .name }}
penstock/component: {{ quote . }}
{{- end }}
{{- end -}}

{{/* Surge: without it, the only ready worker of a pool is stopped first (dynamo#13622). */}}
{{- define "penstock.worker.annotations" -}}
nvidia.com/deployment-strategy: "RollingUpdate"
nvidia.com/deployment-rolling-update-max-surge: "1"
nvidia.com/deployment-rolling-update-max-unavailable: "0"
{{- end -}}

{{/* PodSpec fields that all components share. */}}
{{- define "penstock.podBasis" -}}
terminationGracePeriodSeconds: {{ include "penstock.drain.pod" .root }}
{{- with include "penstock.serviceAccount" .root }}
serviceAccountName: {{ quote . }}
{{- end }}
{{- if eq .root.Values.platform "plain" }}
automountServiceAccountToken: false
{{- end }}
{{- include "penstock.podSecurity" . }}
{{- include "penstock.placement" . }}
{{- end -}}

{{- define "penstock.frontend.podSpec" -}}
{{ include "penstock.podBasis" . }}
containers:
  - name: "main"
    image: {{ quote .image }}
    command: ["python3"]
    args:
      {{- include "penstock.frontend.args" .root | nindent 6 }}
    ports:
      - {name: "http", containerPort: {{ include "penstock.number" .root.Values.frontend.port }}, protocol: "TCP"}
    # A frontend refuses new requests as soon as it gets SIGTERM, but the Service still sends some for
    # a few seconds.
    lifecycle: {preStop: {sleep: {seconds: 5}}}
    {{- include "penstock.container" (set . "derived" (include "penstock.frontend.env" .root)) | nindent 4 }}
{{- include "penstock.volumes" . }}
{{- end -}}

{{- define "penstock.worker.podSpec" -}}
{{ include "penstock.podBasis" . }}
{{- if include "penstock.downloads" .root }}
initContainers:
  {{- include "penstock.waitForModel" . | nindent 2 }}
{{- end }}
containers:
  - name: "main"
    image: {{ quote .image }}
    command: ["python3", "-m", {{ include "penstock.worker.module" .root | quote }}]
    args:
      {{- include "penstock.worker.args" . | nindent 6 }}
    {{- include "penstock.container" (set . "derived" (include "penstock.worker.env" .)) | nindent 4 }}
{{- include "penstock.volumes" . }}
{{- end -}}

{{/* Container fields that all components share: env, resources, mounts. */}}
{{- define "penstock.container" -}}
{{- $values := .root.Values -}}
{{- $env := .derived | fromYaml -}}
{{- if ne .name "planner" -}}{{- include "penstock.merge" (list $env (include "penstock.tracing.env" . | fromYaml)) -}}{{- end -}}
{{- include "penstock.merge" (list $env $values.env) -}}
{{- if .pool -}}{{- include "penstock.merge" (list $env $values.engine.env) -}}{{- end -}}
{{- include "penstock.merge" (list $env .component.env) -}}
env:
{{- range $name, $value := $env }}
  - name: {{ quote $name }}
    value: {{ quote $value }}
{{- end }}
{{- include "penstock.containerSecurity" . }}
{{- with $values.model.token_secret }}
envFrom:
  - secretRef: {name: {{ quote . }}}
{{- end }}
{{- with include "penstock.resources" . | fromYaml }}
resources:
  {{- include "penstock.yaml" . | nindent 2 }}
{{- end }}
{{- if or .pool $values.model.cache (include "penstock.mountsPolicy" .) }}
volumeMounts:
{{- if .pool }}
  - {name: "engine-config", mountPath: "/etc/penstock", readOnly: true}
{{- else if include "penstock.mountsPolicy" . }}
  - {name: "router-config", mountPath: "/etc/penstock", readOnly: true}
{{- end }}
{{- with include "penstock.cachePath" .root }}
  - {name: "model-cache", mountPath: {{ quote . }}}
{{- end }}
{{- end }}
{{- end -}}

{{/* "true" for the frontend of a graph with a policy file of the router. */}}
{{- define "penstock.mountsPolicy" -}}
{{- if and (eq .name "frontend") (include "penstock.router.policy" .root) -}}true{{- end -}}
{{- end -}}

{{- define "penstock.volumes" -}}
{{- if or .pool .root.Values.model.cache (include "penstock.mountsPolicy" .) }}
volumes:
{{- if .pool }}
  - name: "engine-config"
    configMap: {name: {{ include "penstock.config.name" . | quote }}}
{{- else if include "penstock.mountsPolicy" . }}
  - name: "router-config"
    configMap: {name: {{ include "penstock.router.configName" . | quote }}}
{{- end }}
{{- with .root.Values.model.cache }}
  - name: "model-cache"
    persistentVolumeClaim: {claimName: {{ quote .pvc }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "penstock.resources" -}}
{{- $limits := dict -}}{{- $requests := dict -}}
{{- with .component.resources.cpu -}}{{- $_ := set $requests "cpu" . -}}{{- end -}}
{{- with .component.resources.memory -}}{{- $_ := set $requests "memory" . -}}{{- $_ := set $limits "memory" . -}}{{- end -}}
{{- if .pool -}}
  {{- $gpus := include "penstock.gpus" . -}}
  {{- if ne $gpus "0" -}}{{- $_ := set $limits "nvidia.com/gpu" $gpus -}}{{- end -}}
  {{- if include "penstock.rdma" . -}}
    {{- $resource := include "penstock.rdmaResource" .root -}}
    {{- $devices := .root.Values.kv_transfer.rdma_devices | default $gpus | int64 | toString -}}
    {{- $_ := set $limits $resource $devices -}}{{- $_ := set $requests $resource $devices -}}
  {{- end -}}
{{- end -}}
{{- $resources := dict -}}
{{- with $limits -}}{{- $_ := set $resources "limits" . -}}{{- end -}}
{{- with $requests -}}{{- $_ := set $resources "requests" . -}}{{- end -}}
{{- if and .pool (include "penstock.mnnvl" .) -}}
  {{- $_ := set $resources "claims" (list (dict "name" "compute-domain-channel")) -}}
{{- end -}}
{{- toJson $resources -}}
{{- end -}}

