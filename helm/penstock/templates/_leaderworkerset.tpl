{{/*
Engines on several nodes with platform plain. A replica is a group of pods, a leader and its workers,
that the controller of LeaderWorkerSet creates. The controller adds LWS_LEADER_ADDRESS, LWS_WORKER_INDEX
and LWS_GROUP_SIZE before the variables of a container (lws, pkg/utils/pod), so arguments can use them.

The flags are the same as the operator's (operator/internal/dynamo, backend_vllm.go, _sglang.go,
_trtllm.go). The operator's pods wait for the leader with an init container. Here torch's rendezvous
waits, also for a name that does not resolve yet. Tested with vLLM on CPUs, not on GPUs and not under
the controller.
*/}}

{{/* Nodes of a replica; takes a component. */}}
{{- define "penstock.nodes" -}}
{{- if eq .name "frontend" -}}1{{- else -}}{{ int64 (include "penstock.pool" (list .root .name) | fromJson).nodes }}{{- end -}}
{{- end -}}

{{/* Pod template of a pool for .role, leader or worker, as YAML. */}}
{{- define "penstock.group.podTemplate" -}}
{{- $template := include "penstock.plain.podTemplate" . | fromYaml -}}
{{- $main := first $template.spec.containers -}}
{{- if and (eq .role "worker") (not (include "penstock.group.serves" .)) -}}
  {{- /* Workers serve no HTTP: they get no probes, and no port that a PodMonitor would select. */ -}}
  {{- range $key := list "ports" "startupProbe" "livenessProbe" "readinessProbe" -}}{{- $_ := unset $main $key -}}{{- end -}}
{{- end -}}
{{- $c := merge (dict "main" $main "spec" $template.spec) . -}}
{{- include (printf "penstock.group.%s" .root.Values.engine.kind) $c -}}
{{- include "penstock.yaml" $template -}}
{{- end -}}

{{/*
"true" where workers of the group serve requests, which is where each node has complete data parallel
ranks of vLLM. In all other groups only the leader does.
*/}}
{{- define "penstock.group.serves" -}}
{{- if eq .root.Values.engine.kind "vllm" -}}
{{- if le (include "penstock.vllm.rank" . | int64) (include "penstock.gpus" . | int64) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{- define "penstock.group.vllm" -}}
{{- $isLeader := eq .role "leader" -}}
{{- $flags := list -}}
{{- if not (include "penstock.group.serves" .) -}}
  {{- $flags = list "--distributed-executor-backend" "mp" "--nnodes" (int64 .pool.nodes | toString) "--node-rank" (ternary "0" "$(LWS_WORKER_INDEX)" $isLeader) "--master-addr" "$(LWS_LEADER_ADDRESS)" "--master-port" "29500" -}}
  {{- if not $isLeader -}}{{- $flags = append $flags "--headless" -}}{{- end -}}
{{- else -}}
  {{- $local := div (include "penstock.gpus" . | int64) (include "penstock.vllm.rank" . | int64) -}}
  {{- $flags = list "--data-parallel-hybrid-lb" "--data-parallel-size-local" (toString $local) "--data-parallel-address" "$(LWS_LEADER_ADDRESS)" "--data-parallel-rpc-port" "13445" -}}
  {{- if $isLeader -}}
    {{- $flags = concat $flags (list "--data-parallel-start-rank" "0") -}}
  {{- else -}}
    {{- /* The kubelet cannot multiply, so a shell does. */ -}}
    {{- $script := printf "exec \"$@\" --data-parallel-start-rank $((%d * LWS_WORKER_INDEX))" $local -}}
    {{- $_ := set .main "command" (concat (list "sh" "-c" $script "worker") .main.command) -}}
  {{- end -}}
{{- end -}}
{{- $_ := set .main "args" (concat .main.args $flags) -}}
{{- include "penstock.group.env" (list .main (dict "name" "VLLM_NIXL_SIDE_CHANNEL_HOST" "valueFrom" (dict "fieldRef" (dict "fieldPath" "status.podIP")))) -}}
{{- end -}}

{{- define "penstock.group.sglang" -}}
{{- $rank := ternary "0" "$(LWS_WORKER_INDEX)" (eq .role "leader") -}}
{{- $_ := set .main "args" (concat .main.args (list "--dist-init-addr" "$(LWS_LEADER_ADDRESS):29500" "--nnodes" (int64 .pool.nodes | toString) "--node-rank" $rank)) -}}
{{- end -}}

{{/* TensorRT-LLM: mpirun on the leader starts the ranks of all nodes over SSH. */}}
{{- define "penstock.group.trtllm" -}}
{{- include "penstock.group.env" (list .main (dict "name" "OMPI_MCA_orte_keep_fqdn_hostnames" "value" "1")) -}}
{{- /* 292 is 0444, as with cluster.security image the owner of the files is unknown. */ -}}
{{- $key := dict "name" "engine-ssh-key" "secret" (dict "secretName" .root.Values.cluster.ssh_secret "defaultMode" 292) -}}
{{- $_ := set .spec "volumes" (append .spec.volumes $key) -}}
{{- $_ := set .main "volumeMounts" (append .main.volumeMounts (dict "name" "engine-ssh-key" "mountPath" "/ssh-pk" "readOnly" true)) -}}
{{- if eq .role "leader" -}}
  {{- $ranks := include "penstock.totalGpus" . -}}
  {{- $variables := splitList " " "CPATH CUDA_VISIBLE_DEVICES HF_DATASETS_CACHE HF_ENDPOINT HF_HOME HF_TOKEN HOME HUGGING_FACE_HUB_TOKEN LD_LIBRARY_PATH MODEL_PATH NCCL_DEBUG NCCL_IB_DISABLE NCCL_P2P_DISABLE PATH PYTHONPATH TENSORRT_LLM_CACHE_DIR TOKENIZERS_PARALLELISM TRANSFORMERS_CACHE TRITON_PTXAS_PATH TRTLLM_USE_UCX_KVCACHE USER" -}}
  {{- range .main.env -}}{{- $variables = append $variables .name -}}{{- end -}}
  {{- $script := list (include "penstock.group.script" (list .root "mpi-leader.sh")) "leader" $ranks (join " " ($variables | uniq | sortAlpha)) -}}
  {{- $_ := set .main "args" (concat $script .main.command .main.args) -}}
{{- else -}}
  {{- $_ := set .main "args" (list (include "penstock.group.script" (list .root "mpi-worker.sh"))) -}}
  {{- $_ := set .main "ports" (list (dict "name" "ssh" "containerPort" 2222 "protocol" "TCP")) -}}
  {{- $_ := set .main "readinessProbe" (dict "tcpSocket" (dict "port" "ssh") "initialDelaySeconds" 20 "periodSeconds" 20 "timeoutSeconds" 5 "failureThreshold" 10) -}}
{{- end -}}
{{- $_ := set .main "command" (list "bash" "-c") -}}
{{- end -}}

{{/* A launch script, (list root file), without comments: editing a comment must not restart pods. */}}
{{- define "penstock.group.script" -}}
{{- regexReplaceAll "(?m)^ *# .*\n" ((index . 0).Files.Get (printf "files/%s" (index . 1))) "" -}}
{{- end -}}

{{/* Add a variable, (list container variable), unless the graph sets it. */}}
{{- define "penstock.group.env" -}}
{{- $main := index . 0 -}}{{- $variable := index . 1 -}}
{{- $names := list -}}
{{- range $main.env -}}{{- $names = append $names .name -}}{{- end -}}
{{- if not (has $variable.name $names) -}}{{- $_ := set $main "env" (append $main.env $variable) -}}{{- end -}}
{{- end -}}

{{/* "true" where a replica of some component spans several nodes. */}}
{{- define "penstock.hasGroups" -}}
{{- $found := "" -}}
{{- range include "penstock.components" . | fromJsonArray -}}
  {{- if ge (int64 .nodes) 2 -}}{{- $found = "true" -}}{{- end -}}
{{- end -}}
{{- $found -}}
{{- end -}}
