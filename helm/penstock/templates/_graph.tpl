{{/*
Values that depend on several fields of the graph. Most helpers below take a pool as a dict: root,
name (prefill, decode, worker) and pool (penstock.pool).
*/}}

{{/* Names of the pools that the graph has, in the order in which requests pass them, as JSON. */}}
{{- define "penstock.pools" -}}
{{- $pools := list -}}
{{- range $name := list "prefill" "decode" "worker" -}}
  {{- if kindIs "map" (get $.Values $name) -}}{{- $pools = append $pools $name -}}{{- end -}}
{{- end -}}
{{- toJson $pools -}}
{{- end -}}

{{/* The pool (list root name) over the defaults of a pool, as JSON. */}}
{{- define "penstock.pool" -}}
{{- $root := index . 0 -}}
{{- $pool := get (include "penstock.defaults" $root | fromJson) "pool" -}}
{{- include "penstock.merge" (list $pool (get $root.Values (index . 1))) -}}
{{- toJson $pool -}}
{{- end -}}

{{/* Defaults of the sections that a graph may leave out, generated from the model, as JSON. */}}
{{- define "penstock.defaults" -}}
{{- include "penstock.file" (list . "files/pool-defaults.yaml") -}}
{{- end -}}

{{/* The file of (list root path) as JSON. It is parsed once a render, and kept in `.Values`. */}}
{{- define "penstock.file" -}}
{{- $root := index . 0 -}}{{- $path := index . 1 -}}
{{- if not (hasKey $root.Values $path) -}}
  {{- $_ := set $root.Values $path ($root.Files.Get $path | fromYaml | toJson) -}}
{{- end -}}
{{- get $root.Values $path -}}
{{- end -}}

{{/* Draft tokens per step; takes a pool. */}}
{{- define "penstock.speculation.tokens" -}}
{{- $defaults := include "penstock.defaults" .root | fromJson -}}
{{- .root.Values.speculation.draft_tokens | default $defaults.speculation.draft_tokens | int64 -}}
{{- end -}}

{{/* Version of Dynamo that the graph targets. */}}
{{- define "penstock.dynamo" -}}
{{- .Values.dynamo | default .Chart.AppVersion -}}
{{- end -}}

{{/* Its three numbers: 1.7.0 of 1.7.0.dev20261026. */}}
{{- define "penstock.dynamo.release" -}}
{{- $numbers := "^[0-9]+\\.[0-9]+\\.[0-9]+" -}}
{{- regexFind $numbers (include "penstock.dynamo" .) | default (regexFind $numbers .Chart.AppVersion) -}}
{{- end -}}

{{- define "penstock.image" -}}
{{- $version := include "penstock.dynamo" . -}}
{{- $tag := ternary (printf "%s-efa" $version) $version (and (eq (include "penstock.efa" .) "true") (not (has .Values.engine.kind (list "mocker" "llamacpp")))) -}}
{{- $repository := get (dict "trtllm" "tensorrtllm-runtime" "vllm" "vllm-runtime" "sglang" "sglang-runtime" "llamacpp" "" "mocker" "dynamo-planner") .Values.engine.kind -}}
{{- .Values.engine.image | default (printf "nvcr.io/nvidia/ai-dynamo/%s:%s" $repository $tag) -}}
{{- end -}}

{{/*
runtimeVersionOverride of (list root image). The operator takes Dynamo's version from the image tag
and rejects at admission a digest, `latest` or any other tag that is not a version. With `dynamo`, a
tag with other numbers, such as my-runtime:2.3.4, is not Dynamo's version.
*/}}
{{- define "penstock.runtimeVersion" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- $name := regexReplaceAll "@.*$" $image "" -}}
{{- $tag := regexFind ":[^/:]+$" $name | trimPrefix ":" -}}
{{- $version := regexFind "[0-9]+\\.[0-9]+\\.[0-9]+" $tag -}}
{{- $stated := regexFind "^v?[0-9]+\\.[0-9]+\\.[0-9]+" $tag | trimPrefix "v" -}}
{{- $release := include "penstock.dynamo.release" $root -}}
{{- if and $root.Values.dynamo $stated (ne $stated $release) (not (contains "@" $image)) -}}
{{- $release -}}
{{- else if or (contains "@" $image) (not (regexMatch "^[0-9]+\\.[0-9]+\\.[0-9]+([-+].*)?$" $tag)) -}}
{{- $version | default $release -}}
{{- end -}}
{{- end -}}

{{/* GPUs of one replica on each of its nodes. */}}
{{- define "penstock.gpus" -}}
{{- if kindIs "invalid" .pool.gpus -}}
{{- ternary 0 1 (or (has .root.Values.engine.kind (list "mocker" "llamacpp")) (eq .root.Values.engine.device "cpu")) -}}
{{- else -}}{{ int64 .pool.gpus }}{{- end -}}
{{- end -}}

{{/* GPUs of one replica over all its nodes. */}}
{{- define "penstock.totalGpus" -}}
{{- mul (include "penstock.gpus" . | int64) (int64 .pool.nodes) -}}
{{- end -}}

{{/* Tensor parallelism: GPUs of one replica / .divisor. Fails where the division leaves a remainder. */}}
{{- define "penstock.tensorParallel" -}}
{{- $total := include "penstock.totalGpus" . | int64 -}}
{{- $divisor := int64 .divisor -}}
{{- if or (lt $divisor 1) (mod $total (max 1 $divisor)) -}}
{{- include "penstock.refuse" (list (printf "%s.gpus" .name) (printf "a replica has %d GPUs, which is not divisible by %d, the parallelism in its config" $total $divisor) "Change `gpus`, `nodes` or the config, or set the tensor parallelism in the config.") -}}
{{- end -}}
{{- div $total $divisor -}}
{{- end -}}

{{- define "penstock.servedName" -}}
{{- .Values.model.served_name | default .Values.model.id -}}
{{- end -}}

{{/* "true" where the router uses KV events, which workers with a prefix cache must then publish. */}}
{{- define "penstock.kvEvents" -}}
{{- if and (eq .Values.router.mode "kv") .Values.router.kv_events -}}true{{- end -}}
{{- end -}}

{{/* "true" where frontends share load state. Independent of their number, so that scaling changes no flag. */}}
{{- define "penstock.replicaSync" -}}
{{- if and (eq .Values.router.mode "kv") .Values.router.replica_sync -}}true{{- end -}}
{{- end -}}

{{/* Labels of every object except pods. */}}
{{- define "penstock.objectLabels" -}}
{{ include "penstock.labels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{/*
Frontend and pools, as a JSON list of {name, owner, replicas, most, nodes, pods}.
owner: who sets the replicas, graph without an autoscaler; replicas: of the graph, or the minimum of the
autoscaler; most: the maximum, 0 without one; pods: of those replicas, on all nodes.
*/}}
{{- define "penstock.components" -}}
{{- $components := list -}}
{{- range $name := prepend (include "penstock.pools" . | fromJsonArray) "frontend" -}}
  {{- $c := dict "root" $ "name" $name -}}
  {{- $autoscaling := include "penstock.autoscaling" $c | fromJson -}}
  {{- $replicas := include "penstock.replicas" $c | int64 -}}
  {{- $nodes := include "penstock.nodes" $c | int64 -}}
  {{- $component := dict "name" $name "owner" ($autoscaling.owner | default "graph") "replicas" $replicas "nodes" $nodes "pods" (mul $replicas $nodes) -}}
  {{- $components = append $components (set $component "most" ($autoscaling.max | default 0)) -}}
{{- end -}}
{{- toJson $components -}}
{{- end -}}

{{/* "true" for a graph with several nodes or a topology, for which the operator needs Grove (or LeaderWorkerSet). */}}
{{- define "penstock.needsGrove" -}}
{{- range $name := include "penstock.pools" . | fromJsonArray -}}
  {{- if ge (int64 (include "penstock.pool" (list $ $name) | fromJson).nodes) 2 -}}true{{- end -}}
{{- end -}}
{{- if .Values.cluster.topology -}}true{{- end -}}
{{- end -}}

{{/* ServiceAccount of every pod; empty where the operator creates one. */}}
{{- define "penstock.serviceAccount" -}}
{{- .Values.cluster.service_account | default (ternary .Release.Name "" (eq .Values.platform "plain")) -}}
{{- end -}}

{{- define "penstock.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}
