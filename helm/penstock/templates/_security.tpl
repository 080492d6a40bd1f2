{{/*
Security contexts. Dynamo's images have the user dynamo, 1000, with group 0. RDMA pins memory, and only
root keeps a capability that a container gets: other users lose it at the first exec. So pods with RDMA
devices run as root with no other capability, unless the nodes have no locked-memory limit
(`cluster.security: nonroot`). Engines on several nodes start each other over SSH, which needs more
capabilities. EFA pins memory through a driver that only privileged containers can access.
*/}}

{{/* "root" or "user", or empty where the image decides; takes a component. */}}
{{- define "penstock.runsAs" -}}
{{- $security := .root.Values.cluster.security -}}
{{- if ne $security "image" -}}
{{- if and (eq $security "least") .pool (include "penstock.rdma" .) -}}root{{- else -}}user{{- end -}}
{{- end -}}
{{- end -}}

{{/* securityContext of the pod, as YAML. */}}
{{- define "penstock.podSecurity" -}}
{{- $as := include "penstock.runsAs" . -}}
{{- if eq $as "user" }}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  fsGroup: 1000
  fsGroupChangePolicy: "OnRootMismatch"
  seccompProfile: {type: "RuntimeDefault"}
{{- else if eq $as "root" }}
securityContext:
  runAsUser: 0
  fsGroup: 1000
  fsGroupChangePolicy: "OnRootMismatch"
  seccompProfile: {type: "RuntimeDefault"}
{{- end }}
{{- end -}}

{{/* securityContext of a container, as YAML. */}}
{{- define "penstock.containerSecurity" -}}
{{- $rdma := and .pool (include "penstock.rdma" .) -}}
{{- $as := include "penstock.runsAs" . -}}
{{- if and $rdma (include "penstock.efa" .root) }}
securityContext: {privileged: true}
{{- else if eq $as "" }}
{{- if $rdma }}
securityContext: {capabilities: {add: ["IPC_LOCK"]}}
{{- end }}
{{- else if and $rdma (ge (int64 .pool.nodes) 2) }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {add: ["IPC_LOCK"]}
{{- else }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities:
    drop: ["ALL"]
    {{- if $rdma }}
    add: ["IPC_LOCK"]
    {{- end }}
{{- end }}
{{- end -}}
