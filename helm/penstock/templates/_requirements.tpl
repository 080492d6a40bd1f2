{{/*
What a graph must satisfy before anything is rendered, as a JSON list of problems. The graph model
and values.schema.json refuse most of it too; these hold with --skip-schema-validation as well, and
say it in words. Each rule: (list place message fix).
*/}}
{{- define "penstock.problems" -}}
{{- $problems := list -}}
{{- range $topic := list "pools" "device" "engine" "transfer" "fabric" "routing" "model" "platform" "cluster" "autoscaling" "planner" -}}
  {{- $problems = concat $problems (include (printf "penstock.problems.%s" $topic) $ | fromJsonArray) -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.pools" -}}
{{- $problems := list -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .Release.Name) -}}
  {{- $problems = append $problems (list "release name" (printf "%q cannot begin the names of Services" .Release.Name) "use lower-case letters, digits and dashes, a letter first") -}}
{{- end -}}
{{- $pools := include "penstock.pools" . | fromJsonArray -}}
{{- if and (has "worker" $pools) (gt (len $pools) 1) -}}
  {{- $problems = append $problems (list "worker" (printf "stands beside %s" (first $pools)) "keep worker, or prefill and decode") -}}
{{- else if eq (len $pools) 0 -}}
  {{- $problems = append $problems (list "worker" "no pool of workers" "add prefill and decode, or worker") -}}
{{- else if not (has "worker" $pools) -}}
  {{- range $pair := list (list "prefill" "decode") (list "decode" "prefill") -}}
    {{- if and (has (first $pair) $pools) (not (has (last $pair) $pools)) -}}
      {{- $problems = append $problems (list (last $pair) (printf "missing: the graph has %s without %s" (first $pair) (last $pair)) (printf "add %s, or use one pool called worker" (last $pair))) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range $name := $pools -}}
  {{- $pool := include "penstock.pool" (list $ $name) | fromJson -}}
  {{- $gpus := include "penstock.gpus" (dict "root" $ "pool" $pool) | int64 -}}
  {{- with $.Values.hardware.gpus_per_node -}}
    {{- if gt $gpus (int64 .) -}}
      {{- $problems = append $problems (list (printf "%s.gpus" $name) (printf "%d on each node, and hardware.gpus_per_node is %d" $gpus (int64 .)) "use fewer, or more nodes") -}}
    {{- end -}}
  {{- end -}}
  {{- if and (eq $gpus 0) (eq $.Values.engine.kind "trtllm") -}}
    {{- $problems = append $problems (list (printf "%s.gpus" $name) "TensorRT-LLM does not start without a GPU" "set at least 1") -}}
  {{- end -}}
  {{- if and (ge (int64 $pool.nodes) 2) (eq $.Values.engine.kind "mocker") -}}
    {{- $problems = append $problems (list (printf "%s.nodes" $name) "the mocker does not span nodes" "set 1, and dp_size in engine.config") -}}
  {{- end -}}
{{- end -}}
{{- range $place := list "frontend" "prefill" "decode" "worker" "" -}}
  {{- $component := ternary $.Values (get $.Values $place | default dict) (eq $place "") -}}
  {{- range $key, $fix := dict "containers" "use env, args and resources" "terminationGracePeriodSeconds" "use the graph's drain_timeout_s" "restartPolicy" "remove it" -}}
    {{- if hasKey (get $component "pod" | default dict) $key -}}
      {{- $problems = append $problems (list (printf "%s.pod.%s" $place $key | trimPrefix ".") "is set by the chart" $fix) -}}
    {{- end -}}
  {{- end -}}
  {{- range (get $component "pod" | default dict).volumes -}}
    {{- if has .name (list "engine-config" "engine-ssh-key" "model-cache" "shared-memory") -}}
      {{- $problems = append $problems (list (printf "%s.pod.volumes" $place | trimPrefix ".") (printf "%s is the name of a volume of the chart's" .name) "use another name") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.device" -}}
{{- $problems := list -}}
{{- $engine := .Values.engine -}}
{{- if and (eq $engine.device "cpu") (ne $engine.kind "vllm") -}}
  {{- $problems = append $problems (list "engine.device" (printf "%s does not run on a CPU" $engine.kind) "use kind: vllm, or remove device") -}}
{{- else -}}
{{- range $name := include "penstock.pools" . | fromJsonArray -}}
  {{- $pool := include "penstock.pool" (list $ $name) | fromJson -}}
  {{- $gpus := include "penstock.gpus" (dict "root" $ "pool" $pool) | int64 -}}
  {{- if and (eq $engine.device "cpu") $gpus -}}
    {{- $problems = append $problems (list (printf "%s.gpus" $name) (printf "%d, and engine.device is cpu" $gpus) "remove gpus, or device") -}}
  {{- else if and (eq $engine.device "cpu") (ge (int64 $pool.nodes) 2) -}}
    {{- $problems = append $problems (list (printf "%s.nodes" $name) (printf "%d, and engine.device is cpu" (int64 $pool.nodes)) "remove nodes") -}}
  {{- else if and (eq $engine.device "cpu") (mod (get (include "penstock.config.said" (dict "root" $ "name" $name "pool" $pool) | fromJson) "block-size" | default 32 | int64) 32) -}}
    {{- $problems = append $problems (list (printf "%s.config.block-size" $name) "is no multiple of 32, which vLLM's attention on a CPU needs" "use 32") -}}
  {{- else if and (eq $engine.device "cpu") (not $pool.image) (not $engine.image) -}}
    {{- $problems = append $problems (list (printf "%s.image" $name) "unset, and NVIDIA publishes no image for vLLM on a CPU" "set engine.image to one of yours; `penstock up` does not use it, so any name will do there") -}}
  {{- else if and (eq $engine.device "gpu") (eq $engine.kind "vllm") (eq $gpus 0) -}}
    {{- $problems = append $problems (list (printf "%s.gpus" $name) "0, and engine.device is gpu" "set at least 1, or engine.device: cpu") -}}
  {{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.engine" -}}
{{- $problems := list -}}
{{- $kind := .Values.engine.kind -}}
{{- with .Values.speculation -}}
  {{- if eq $kind "mocker" -}}
    {{- $problems = append $problems (list "speculation" "the mocker drafts no tokens" "remove it, or set decode_speedup_ratio in engine.config.engine") -}}
  {{- end -}}
  {{- if and (eq .method "eagle3") (not .draft_model) -}}
    {{- $problems = append $problems (list "speculation.draft_model" "method eagle3 needs a draft model" "name one, such as nvidia/gpt-oss-120b-Eagle3-v3") -}}
  {{- else if and (ne .method "eagle3") .draft_model -}}
    {{- $problems = append $problems (list "speculation.draft_model" (printf "method %s takes no draft model" .method) "remove draft_model") -}}
  {{- end -}}
{{- end -}}
{{- /* Arguments that the engine's file silently outvotes: with TensorRT-LLM those the chart writes
       into it, with the mocker all that describe the engine. */ -}}
{{- $outvoted := get (dict
  "trtllm" "^--(tensor-parallel-size|max-seq-len|override-engine-args)(=|$)"
  "mocker" "^--(num-gpu-blocks-override|block-size|max-model-len|max-num-seqs|max-num-batched-tokens|(no-)?enable-(prefix-caching|chunked-prefill)|preemption-mode|(decode-)?speedup-ratio|data-parallel-size|startup-time|planner-profile-data|ai[sc]-[a-z-]+|gpu-memory-utilization|mem-fraction-static|free-gpu-memory-fraction|reasoning|response-replay-trace-path|engine-type|sglang-(schedule-policy|page-size|max-prefill-tokens|chunked-prefill-size|clip-max-new-tokens|schedule-conservativeness)|trtllm-capacity-scheduler-policy|kv-transfer-(bandwidth|timing-mode)|num-host-blocks|host-offload-[a-z0-9-]+|extra-engine-args)(=|$)"
  "vllm" "^--(config|model)(=|$)"
  "sglang" "^--(config|model-path)(=|$)") $kind -}}
{{- range $place := list "engine" "prefill" "decode" "worker" -}}
  {{- range $arg := (get (get $.Values $place | default dict) "args" | default list) -}}
    {{- if regexMatch $outvoted $arg -}}
      {{- $problems = append $problems (list (printf "%s.args" $place) (printf "%s has no effect beside the file that the chart writes" $arg) "put it into engine.config or the pool's config") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if eq $kind "mocker" -}}
  {{- range $place := list "engine" "prefill" "decode" "worker" -}}
    {{- $engine := get (get (get $.Values $place | default dict) "config" | default dict) "engine" | default dict -}}
    {{- if hasKey $engine "worker_type" -}}
      {{- $problems = append $problems (list (printf "%s.config.engine.worker_type" $place) "follows from the pool" "remove it") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.transfer" -}}
{{- $problems := list -}}
{{- $kind := .Values.engine.kind -}}
{{- $transfer := .Values.kv_transfer -}}
{{- $backends := get (dict "trtllm" (list "nixl" "ucx" "mooncake" "mpi") "vllm" (list "nixl") "sglang" (list "nixl" "mooncake") "mocker" (list "nixl")) $kind -}}
{{- if not (has $transfer.backend $backends) -}}
  {{- $problems = append $problems (list "kv_transfer.backend" (printf "%s does not move KV with %s" $kind $transfer.backend) (printf "use %s" (join " or " $backends))) -}}
{{- end -}}
{{- if and (eq $transfer.transport "tcp") (or (eq $transfer.backend "mpi") (and (eq $transfer.backend "mooncake") (eq $kind "trtllm"))) -}}
  {{- $problems = append $problems (list "kv_transfer.transport" (printf "tcp is a choice of UCX, which backend %s does not use" $transfer.backend) "use auto, or backend nixl or ucx") -}}
{{- end -}}
{{- if and $transfer.buffer_tokens (ne $kind "trtllm") -}}
  {{- $problems = append $problems (list "kv_transfer.buffer_tokens" (printf "%s has no transfer buffer to size" $kind) "remove it") -}}
{{- end -}}
{{- if eq (include "penstock.transport" .) "rdma" -}}
  {{- range $name := list "prefill" "decode" -}}
    {{- if kindIs "map" (get $.Values $name) -}}
      {{- $pool := include "penstock.pool" (list $ $name) | fromJson -}}
      {{- if eq (include "penstock.gpus" (dict "root" $ "pool" $pool)) "0" -}}
        {{- $problems = append $problems (list (ternary "kv_transfer.transport" "hardware.fabric" (eq $transfer.transport "rdma")) (printf "rdma asks for a device per GPU, and %s has none" $name) "use auto or tcp") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.routing" -}}
{{- $problems := list -}}
{{- $router := .Values.router -}}
{{- $infrastructure := .Values.infrastructure -}}
{{- if ne $router.mode "kv" -}}
  {{- range $name := list "overlap_score_credit" "prefill_load_scale" "temperature" "ttl_s" "conditional_disagg" -}}
    {{- if and (hasKey $router $name) (not (kindIs "invalid" (get $router $name))) -}}
      {{- $problems = append $problems (list (printf "router.%s" $name) (printf "has no effect with router.mode %s" $router.mode) (printf "set router.mode: kv, or remove %s" $name)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and $router.conditional_disagg (not $router.kv_events) -}}
  {{- $problems = append $problems (list "router.conditional_disagg" "needs KV events, and router.kv_events is false" "set router.kv_events: true, or remove conditional_disagg") -}}
{{- end -}}
{{- if and $infrastructure.etcd_endpoints (ne (include "penstock.discovery" .) "etcd") -}}
  {{- $problems = append $problems (list "infrastructure.etcd_endpoints" (printf "has no effect with discovery %s" (include "penstock.discovery" .)) "set discovery: etcd, or remove etcd_endpoints") -}}
{{- end -}}
{{- if and $infrastructure.nats_url (ne $infrastructure.events "nats") (ne $infrastructure.requests "nats") -}}
  {{- $problems = append $problems (list "infrastructure.nats_url" "has no effect: neither events nor requests go through NATS" "set events or requests to nats, or remove nats_url") -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}
