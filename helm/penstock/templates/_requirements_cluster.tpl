{{/* The problems of the fields that matter only on a cluster; see _requirements.tpl. */}}

{{- define "penstock.problems.fabric" -}}
{{- $problems := list -}}
{{- $fabric := .Values.hardware.fabric -}}
{{- $transfer := .Values.kv_transfer -}}
{{- if and (eq $transfer.transport "rdma") (has (toString $fabric) (list "mnnvl" "none")) -}}
  {{- $problems = append $problems (list "kv_transfer.transport" (printf "is rdma, but `hardware.fabric` is %s" $fabric) "Remove `transport`, or correct `hardware.fabric`.") -}}
{{- end -}}
{{- if ne (include "penstock.transport" .) "rdma" -}}
  {{- range $key := list "rdma_resource" "rdma_devices" -}}
    {{- if get $transfer $key -}}
      {{- $problems = append $problems (list (printf "kv_transfer.%s" $key) "has no effect: no pod gets RDMA devices" (printf "Set `hardware.fabric` to ib, roce or efa, or remove `%s`." $key)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and (include "penstock.efa" .) (not (has "worker" (include "penstock.pools" . | fromJsonArray))) (ne $transfer.backend "nixl") -}}
  {{- $problems = append $problems (list "kv_transfer.backend" (printf "%s does not support EFA" $transfer.backend) "Use nixl.") -}}
{{- end -}}
{{- if and (eq (toString $fabric) "mnnvl") .Values.hardware.gpu (not (include "penstock.gpuFacts" . | fromJson).arm) -}}
  {{- $problems = append $problems (list "hardware.fabric" (printf "is mnnvl, but %s has no NVLink between nodes" .Values.hardware.gpu) "Use ib, roce, efa or none.") -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.model" -}}
{{- $problems := list -}}
{{- with .Values.model.cache -}}
  {{- if and .download .offline -}}
    {{- $problems = append $problems (list "model.cache.offline" "cannot be combined with `download`, which fetches files from the Hugging Face Hub" "Remove `offline` or `download`.") -}}
  {{- end -}}
  {{- if has (.mount_path | default "") (list "/etc/penstock" "/dev/shm") -}}
    {{- $problems = append $problems (list "model.cache.mount_path" (printf "the chart already mounts something at %s" .mount_path) "Use another directory, such as `/opt/model-cache`.") -}}
  {{- end -}}
{{- end -}}
{{- $model := .Values.model -}}
{{- $draft := .Values.speculation | default dict -}}
{{- $commit := "^[0-9a-f]{40}$" -}}
{{- if include "penstock.downloads" . -}}
  {{- if $model.path -}}
    {{- $problems = append $problems (list "model.path" "cannot be combined with `model.cache.download`, which sets the path" "Remove `model.path` or `download`.") -}}
  {{- end -}}
  {{- if not (regexMatch $commit ($model.revision | default "")) -}}
    {{- $known := get (dict "openai/gpt-oss-120b" "b5c939de8f754692c1647ca79fbf85e8c1e70f8a") $model.id -}}
    {{- $fix := ternary (printf "Set the commit: `%s`" $known) "Set the 40-digit commit that the Hugging Face Hub shows." (not (empty $known)) -}}
    {{- $problems = append $problems (list "model.revision" (printf "is %s, but `model.cache.download` needs a commit, the same for every pod" ($model.revision | default "unset")) $fix) -}}
  {{- end -}}
  {{- if and $draft.draft_model (not (hasPrefix "/" $draft.draft_model)) (not (regexMatch $commit ($draft.draft_revision | default ""))) -}}
    {{- $problems = append $problems (list "speculation.draft_revision" (printf "is %s, but `model.cache.download` needs a commit" ($draft.draft_revision | default "unset")) "Set the commit of the draft model, or set `draft_model` to a path.") -}}
  {{- end -}}
{{- else if $draft.draft_revision -}}
  {{- $problems = append $problems (list "speculation.draft_revision" "has no effect without `model.cache.download`" "Remove `draft_revision`, or set `model.cache.download: true`.") -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.platform" -}}
{{- $problems := list -}}
{{- if eq .Values.platform "plain" -}}
  {{- if eq (include "penstock.discovery" .) "kubernetes" -}}
    {{- $problems = append $problems (list "infrastructure.discovery" "is kubernetes, which needs the Dynamo operator, but `platform` is plain" "Remove `discovery`. Platform plain uses etcd.") -}}
  {{- end -}}
  {{- if .Values.cluster.topology -}}
    {{- $problems = append $problems (list "cluster.topology" "needs Grove, but `platform` is plain" "Set `platform: dynamo`, or use `pod.affinity`.") -}}
  {{- end -}}
{{- end -}}
{{- $problems = concat $problems (include "penstock.problems.groups" . | fromJsonArray) -}}
{{- toJson $problems -}}
{{- end -}}

{{/* The problems of engines on several nodes, with platform plain. */}}
{{- define "penstock.problems.groups" -}}
{{- $problems := list -}}
{{- $kind := .Values.engine.kind -}}
{{- $groups := list -}}
{{- range $name := ternary (include "penstock.pools" . | fromJsonArray) list (eq .Values.platform "plain") -}}
  {{- $c := dict "root" $ "name" $name "pool" (include "penstock.pool" (list $ $name) | fromJson) -}}
  {{- $gpus := include "penstock.gpus" $c | int64 -}}
  {{- if ge (int64 $c.pool.nodes) 2 -}}
    {{- $groups = append $groups $name -}}
    {{- /* LeaderWorkerSet gives its StatefulSets such names, and puts them with a hash into labels. */ -}}
    {{- $set := printf "%s-%s-99" $.Release.Name $name -}}
    {{- if gt (len $set) 52 -}}
      {{- $problems = append $problems (list "Release.Name" (printf "%q gives the name %s of %d characters, and 52 is the limit for engines on several nodes" $.Release.Name $set (len $set)) (printf "Use a name of at most %d characters." (sub 52 (sub (len $set) (len $.Release.Name))))) -}}
    {{- end -}}
    {{- if and (eq $kind "vllm") (eq $.Values.engine.device "gpu") $gpus -}}
      {{- $config := include "penstock.config" $c | fromJson -}}
      {{- $takes := mul (include "penstock.vllm.rank" $c | int64) (get $config "data-parallel-size" | default 1) -}}
      {{- if le $takes $gpus -}}
        {{- $problems = append $problems (list (printf "%s.nodes" $name) (printf "is %d, but the parallelism in its config uses only %d GPUs, which fit on one node" (int64 $c.pool.nodes) $takes) "Set `nodes: 1` and more `replicas`, or remove the parallelism from the config.") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $usesSsh := and (eq $kind "trtllm") $groups -}}
{{- if and $usesSsh (not .Values.cluster.ssh_secret) -}}
  {{- $problems = append $problems (list "cluster.ssh_secret" (printf "is unset, but TensorRT-LLM starts %s on several nodes over SSH" (join " and " $groups)) "Create the key as the README of the chart describes, and set `ssh_secret` to its Secret.") -}}
{{- else if and .Values.cluster.ssh_secret (not $usesSsh) -}}
  {{- $problems = append $problems (list "cluster.ssh_secret" "has no effect: only TensorRT-LLM on several nodes with platform plain uses it" "Remove `ssh_secret`.") -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.cluster" -}}
{{- $problems := list -}}
{{- if and (lt (int64 .Values.frontend.port) 1024) (ne .Values.cluster.security "image") -}}
  {{- $problems = append $problems (list "frontend.port" (printf "is %d, but the pods run as user 1000, which cannot bind ports below 1024" (int64 .Values.frontend.port)) "Use 8000. The Service has a port of its own.") -}}
{{- end -}}
{{- $policy := .Values.cluster.network_policy -}}
{{- if not $policy.enabled -}}
  {{- range $key := list "clients" "scrapers" "egress" -}}
    {{- if get $policy $key -}}
      {{- $problems = append $problems (list (printf "cluster.network_policy.%s" $key) "has no effect: `network_policy.enabled` is false" (printf "Set `enabled: true`, or remove `%s`." $key)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.cluster.monitoring.labels (not .Values.cluster.monitoring.pod_monitors) -}}
  {{- $problems = append $problems (list "cluster.monitoring.labels" "has no effect: `monitoring.pod_monitors` is false" "Set `pod_monitors: true`, or remove `labels`.") -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}
