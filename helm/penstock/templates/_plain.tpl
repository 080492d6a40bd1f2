{{/*
Platform plain, for clusters without the operator. Adds what the operator of 1.6.1 adds to a pod
template (operator/internal/dynamo, component_worker.go and component_frontend.go): namespace and
generation, ports, probes, shared memory.
*/}}

{{/*
Dynamo namespace of the graph. A frontend uses the workers of every namespace that starts with its own
and a dash: in an etcd shared by several graphs, `llm-gpt` would use those of `llm-gpt-oss`.
*/}}
{{- define "penstock.plain.namespace" -}}
{{- $name := printf "%s-%s" .Release.Namespace .Release.Name | replace "." "-" -}}
{{- printf "%s-%s" $name (printf "%s/%s" .Release.Namespace .Release.Name | sha256sum | trunc 8) -}}
{{- end -}}

{{/*
Generation of the workers: a hash of all their pod templates, without replicas. Old and new workers
never share a Dynamo namespace, so no KV blocks are transferred between generations.
*/}}
{{- define "penstock.plain.generation" -}}
{{- $templates := list -}}
{{- range $name := include "penstock.pools" . | fromJsonArray -}}
  {{- $pool := include "penstock.pool" (list $ $name) | fromJson -}}
  {{- $templates = append $templates (include "penstock.worker.podTemplate" (dict "root" $ "name" $name "pool" $pool)) -}}
  {{- $templates = append $templates ($pool.shared_memory | default "") -}}
{{- end -}}
{{- join "\n" $templates | sha256sum | trunc 8 -}}
{{- end -}}

{{/* The pod template of (dict root name template pool) with the operator's additions, as YAML. */}}
{{- define "penstock.plain.podTemplate" -}}
{{- $template := .template | fromYaml -}}
{{- $main := first $template.spec.containers -}}
{{- $added := include "penstock.plain.container" . | fromYaml -}}
{{- $named := dict -}}
{{- range $main.env -}}{{- $_ := set $named .name true -}}{{- end -}}
{{- $env := $main.env -}}
{{- range $added.env -}}
  {{- if not (hasKey $named .name) -}}{{- $env = append $env . -}}{{- end -}}
{{- end -}}
{{- $_ := set $main "env" $env -}}
{{- $_ := set $main "ports" (concat ($main.ports | default list) ($added.ports | default list)) -}}
{{- range $probe := list "startupProbe" "livenessProbe" "readinessProbe" -}}
  {{- $_ := set $main $probe (get $added $probe) -}}
{{- end -}}
{{- if .pool -}}
  {{- $size := .pool.shared_memory | default "8Gi" -}}
  {{- if ne $size "0" -}}
    {{- $shm := dict "name" "shared-memory" "emptyDir" (dict "medium" "Memory" "sizeLimit" $size) -}}
    {{- $_ := set $main "volumeMounts" (append ($main.volumeMounts | default list) (dict "name" "shared-memory" "mountPath" "/dev/shm")) -}}
    {{- $_ := set $template.spec "volumes" (append ($template.spec.volumes | default list) $shm) -}}
  {{- end -}}
{{- end -}}
{{- include "penstock.yaml" $template -}}
{{- end -}}

{{- define "penstock.plain.container" -}}
{{- $namespace := include "penstock.plain.namespace" .root -}}
env:
  - {name: "POD_NAME", valueFrom: {fieldRef: {fieldPath: "metadata.name"}}}
  - {name: "POD_NAMESPACE", valueFrom: {fieldRef: {fieldPath: "metadata.namespace"}}}
  - {name: "POD_UID", valueFrom: {fieldRef: {fieldPath: "metadata.uid"}}}
  - {name: "DYN_NAMESPACE", value: {{ quote $namespace }}}
  - {name: "DYN_COMPONENT", value: {{ quote .name }}}
{{- if .pool }}
  - {name: "DYN_NAMESPACE_WORKER_SUFFIX", value: {{ quote .generation }}}
  - {name: "DYN_SYSTEM_ENABLED", value: "true"}
  - {name: "DYN_SYSTEM_PORT", value: "9090"}
  - {name: "DYN_HEALTH_CHECK_ENABLED", value: "true"}
  - {name: "NIXL_TELEMETRY_ENABLE", value: "n"}
ports:
  - {name: "system", containerPort: 9090, protocol: "TCP"}
startupProbe:
  httpGet: {path: "/live", port: "system"}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 720
livenessProbe:
  httpGet: {path: "/live", port: "system"}
  periodSeconds: 5
  timeoutSeconds: 4
  failureThreshold: 3
readinessProbe:
  exec:
    command:
      {{- include "penstock.plain.ready" (list .root "9090" (printf "%s-frontends:%s" .root.Release.Name (include "penstock.number" .root.Values.frontend.port))) | nindent 6 }}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 3
{{- else }}
  - {name: "DYN_NAMESPACE_PREFIX", value: {{ quote $namespace }}}
startupProbe:
  httpGet: {path: "/live", port: "http"}
  periodSeconds: 10
  timeoutSeconds: 1
  failureThreshold: 30
livenessProbe:
  httpGet: {path: "/live", port: "http"}
  initialDelaySeconds: 15
  periodSeconds: 10
  timeoutSeconds: 1
  failureThreshold: 3
readinessProbe:
  exec:
    command:
      {{- include "penstock.plain.ready" (list .root (include "penstock.number" .root.Values.frontend.port)) | nindent 6 }}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 3
{{- end }}
{{- end -}}

{{/* The command of a readiness probe, (list root argument…). Without comments: see penstock.group.script. */}}
{{- define "penstock.plain.ready" -}}
{{- $script := include "penstock.group.script" (list (first .) "ready.py") -}}
{{- concat (list "python3" "-c" $script) (rest .) | toYaml -}}
{{- end -}}

{{/* "true" where the chart installs etcd. */}}
{{- define "penstock.ownEtcd" -}}
{{- if and (eq .Values.platform "plain") (eq (include "penstock.discovery" .) "etcd") (not .Values.infrastructure.etcd_endpoints) -}}true{{- end -}}
{{- end -}}

{{- define "penstock.etcd.name" -}}
{{- printf "%s-etcd" .Release.Name -}}
{{- end -}}

{{/* Name of the StatefulSet. It contains the number of members, as none can join later. */}}
{{- define "penstock.etcd.set" -}}
{{- printf "%s%s" (include "penstock.etcd.name" .) (ternary "" "3" (eq (int64 .Values.cluster.etcd.replicas) 1)) -}}
{{- end -}}

{{/* Pod of one member; takes a component. */}}
{{- define "penstock.etcd.podSpec" -}}
{{- $name := include "penstock.etcd.name" .root -}}
{{- $set := include "penstock.etcd.set" .root -}}
{{- $etcd := .root.Values.cluster.etcd -}}
{{- $peers := list -}}
{{- range $at := until (int $etcd.replicas) -}}
  {{- $peers = append $peers (printf "%s-%d=http://%s-%d.%s-peers:2380" $set $at $set $at $name) -}}
{{- end -}}
serviceAccountName: {{ include "penstock.serviceAccount" .root | quote }}
automountServiceAccountToken: false
{{- include "penstock.podSecurity" . }}
{{- include "penstock.placement" . }}
containers:
  - name: "etcd"
    image: {{ quote $etcd.image }}
    command: ["etcd"]
    args:
      - "--name=$(POD_NAME)"
      - "--data-dir=/var/lib/etcd/data"
      - "--listen-client-urls=http://0.0.0.0:2379"
      - "--listen-peer-urls=http://0.0.0.0:2380"
      - {{ printf "--advertise-client-urls=http://%s:2379" $name | quote }}
      - {{ printf "--initial-advertise-peer-urls=http://$(POD_NAME).%s-peers:2380" $name | quote }}
      - {{ printf "--initial-cluster=%s" (join "," $peers) | quote }}
      # Leases and model cards change often, and the history of a week would fill the volume.
      - "--auto-compaction-mode=periodic"
      - "--auto-compaction-retention=1h"
    env:
      - {name: "POD_NAME", valueFrom: {fieldRef: {fieldPath: "metadata.name"}}}
    ports:
      - {name: "client", containerPort: 2379, protocol: "TCP"}
      - {name: "peer", containerPort: 2380, protocol: "TCP"}
    startupProbe:
      httpGet: {path: "/health", port: "client"}
      periodSeconds: 5
      failureThreshold: 60
    livenessProbe:
      tcpSocket: {port: "client"}
      periodSeconds: 10
      failureThreshold: 6
    readinessProbe:
      httpGet: {path: "/health", port: "client"}
      periodSeconds: 5
    {{- include "penstock.containerSecurity" . | nindent 4 }}
    volumeMounts:
      - {name: "data", mountPath: "/var/lib/etcd"}
{{- end -}}
