{{/* What the parts of a graph that only a cluster has must satisfy; see _requirements.tpl. */}}

{{- define "penstock.problems.fabric" -}}
{{- $problems := list -}}
{{- $fabric := .Values.hardware.fabric -}}
{{- $transfer := .Values.kv_transfer -}}
{{- if and (eq $transfer.transport "rdma") (has (toString $fabric) (list "mnnvl" "none")) -}}
  {{- $problems = append $problems (list "kv_transfer.transport" (printf "rdma, and hardware.fabric is %s" $fabric) "remove transport, or correct the fabric") -}}
{{- end -}}
{{- if ne (include "penstock.transport" .) "rdma" -}}
  {{- range $key := list "rdma_resource" "rdma_devices" -}}
    {{- if get $transfer $key -}}
      {{- $problems = append $problems (list (printf "kv_transfer.%s" $key) "has no effect: no pod gets RDMA devices" "set hardware.fabric to ib, roce or efa, or remove it") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and (include "penstock.efa" .) (not (has "worker" (include "penstock.pools" . | fromJsonArray))) (ne $transfer.backend "nixl") -}}
  {{- $problems = append $problems (list "kv_transfer.backend" (printf "%s does not move KV over EFA" $transfer.backend) "use nixl") -}}
{{- end -}}
{{- if and (eq (toString $fabric) "mnnvl") .Values.hardware.gpu (not (include "penstock.gpuFacts" . | fromJson).arm) -}}
  {{- $problems = append $problems (list "hardware.fabric" (printf "mnnvl, and %s has no NVLink between nodes" .Values.hardware.gpu) "use ib, roce, efa or none") -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.model" -}}
{{- $problems := list -}}
{{- with .Values.model.cache -}}
  {{- if and .download .offline -}}
    {{- $problems = append $problems (list "model.cache.offline" "stands beside download, which asks the hub" "remove one of them") -}}
  {{- end -}}
  {{- if has (.mount_path | default "") (list "/etc/penstock" "/dev/shm") -}}
    {{- $problems = append $problems (list "model.cache.mount_path" (printf "%s is where the chart mounts something else" .mount_path) "use a folder of its own, such as /opt/model-cache") -}}
  {{- end -}}
{{- end -}}
{{- $model := .Values.model -}}
{{- $draft := .Values.speculation | default dict -}}
{{- $commit := "^[0-9a-f]{40}$" -}}
{{- if include "penstock.downloads" . -}}
  {{- if $model.path -}}
    {{- $problems = append $problems (list "model.path" "stands beside model.cache.download, which decides where the files are" "remove one of them") -}}
  {{- end -}}
  {{- if not (regexMatch $commit ($model.revision | default "")) -}}
    {{- $known := get (dict "openai/gpt-oss-120b" "b5c939de8f754692c1647ca79fbf85e8c1e70f8a") $model.id | default "the 40 digits that the hub shows" -}}
    {{- $problems = append $problems (list "model.revision" (printf "%s, and model.cache.download fetches one commit, the same for every pod" ($model.revision | default "unset")) (printf "set the commit: %s" $known)) -}}
  {{- end -}}
  {{- if and $draft.draft_model (not (hasPrefix "/" $draft.draft_model)) (not (regexMatch $commit ($draft.draft_revision | default ""))) -}}
    {{- $problems = append $problems (list "speculation.draft_revision" (printf "%s, and model.cache.download fetches one commit" ($draft.draft_revision | default "unset")) "set the draft model's commit, or a draft_model that is a path") -}}
  {{- end -}}
{{- else if $draft.draft_revision -}}
  {{- $problems = append $problems (list "speculation.draft_revision" "has no effect without model.cache.download" "remove it, or let the chart fetch the models") -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.platform" -}}
{{- $problems := list -}}
{{- if eq .Values.platform "plain" -}}
  {{- if eq (include "penstock.discovery" .) "kubernetes" -}}
    {{- $problems = append $problems (list "infrastructure.discovery" "kubernetes needs the Dynamo operator, and platform is plain" "remove it: plain uses etcd") -}}
  {{- end -}}
  {{- if .Values.cluster.topology -}}
    {{- $problems = append $problems (list "cluster.topology" "is Grove's, and platform is plain" "use platform: dynamo, or pod.affinity") -}}
  {{- end -}}
{{- end -}}
{{- $problems = concat $problems (include "penstock.problems.groups" . | fromJsonArray) -}}
{{- toJson $problems -}}
{{- end -}}

{{/* Engines on several nodes, with platform plain. */}}
{{- define "penstock.problems.groups" -}}
{{- $problems := list -}}
{{- $kind := .Values.engine.kind -}}
{{- $groups := list -}}
{{- range $name := ternary (include "penstock.pools" . | fromJsonArray) list (eq .Values.platform "plain") -}}
  {{- $c := dict "root" $ "name" $name "pool" (include "penstock.pool" (list $ $name) | fromJson) -}}
  {{- $gpus := include "penstock.gpus" $c | int64 -}}
  {{- if ge (int64 $c.pool.nodes) 2 -}}
    {{- $groups = append $groups $name -}}
    {{- /* LeaderWorkerSet names StatefulSets so, and puts their names and a hash into labels. */ -}}
    {{- $set := printf "%s-%s-99" $.Release.Name $name -}}
    {{- if gt (len $set) 52 -}}
      {{- $problems = append $problems (list "release name" (printf "%q makes the name %s of %d characters, and 52 is the limit of engines on several nodes" $.Release.Name $set (len $set)) (printf "use one of at most %d characters" (sub 52 (sub (len $set) (len $.Release.Name))))) -}}
    {{- end -}}
    {{- if and (eq $kind "vllm") (eq $.Values.engine.device "gpu") $gpus -}}
      {{- $config := include "penstock.config" $c | fromJson -}}
      {{- $takes := mul (include "penstock.vllm.rank" $c | int64) (get $config "data-parallel-size" | default 1) -}}
      {{- if le $takes $gpus -}}
        {{- $problems = append $problems (list (printf "%s.nodes" $name) (printf "%d, and the parallelism of its config takes %d GPUs, which one node has" (int64 $c.pool.nodes) $takes) "set 1 and more replicas, or remove the parallelism from the config") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $usesSsh := and (eq $kind "trtllm") $groups -}}
{{- if and $usesSsh (not .Values.cluster.ssh_secret) -}}
  {{- $problems = append $problems (list "cluster.ssh_secret" (printf "unset, and TensorRT-LLM starts %s on several nodes with ssh" (join " and " $groups)) "make the key as the chart's README says, and name its Secret") -}}
{{- else if and .Values.cluster.ssh_secret (not $usesSsh) -}}
  {{- $problems = append $problems (list "cluster.ssh_secret" "has no effect: only TensorRT-LLM on several nodes uses it, with platform plain" "remove it") -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.cluster" -}}
{{- $problems := list -}}
{{- if and (lt (int64 .Values.frontend.port) 1024) (ne .Values.cluster.security "image") -}}
  {{- $problems = append $problems (list "frontend.port" (printf "%d, and pods are user 1000, which may not bind a port below 1024" (int64 .Values.frontend.port)) "use 8000: the Service's port is its own") -}}
{{- end -}}
{{- $policy := .Values.cluster.network_policy -}}
{{- if not $policy.enabled -}}
  {{- range $key := list "clients" "scrapers" "egress" -}}
    {{- if get $policy $key -}}
      {{- $problems = append $problems (list (printf "cluster.network_policy.%s" $key) "has no effect: network_policy.enabled is false" "set enabled: true, or remove it") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.cluster.monitoring.labels (not .Values.cluster.monitoring.pod_monitors) -}}
  {{- $problems = append $problems (list "cluster.monitoring.labels" "have no effect: monitoring.pod_monitors is false" "set pod_monitors: true, or remove them") -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}
