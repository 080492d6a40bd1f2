{{/*
The problems of a graph, as a JSON list of (list place message fix). The graph model and
values.schema.json refuse most of them too. These checks also run with --skip-schema-validation, and
their messages name a fix. Messages that the model shares come from files/requirements.yaml.
*/}}
{{- define "penstock.problems" -}}
{{- $problems := list -}}
{{- range $topic := list "renamedKeys" "version" "config" "pools" "device" "engine" "transfer" "fabric" "routing" "model" "platform" "cluster" "autoscaling" "planner" -}}
  {{- $problems = concat $problems (include (printf "penstock.problems.%s" $topic) $ | fromJsonArray) -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{/* Contents of files/requirements.yaml, as JSON. */}}
{{- define "penstock.requirements" -}}
{{- include "penstock.file" (list . "files/requirements.yaml") -}}
{{- end -}}

{{/* The problem of (list root place message arguments), with a message that the model shares. */}}
{{- define "penstock.message" -}}
{{- $text := get (include "penstock.requirements" (index . 0) | fromJson).messages (index . 2) -}}
{{- $message := $text.message -}}
{{- $fix := $text.fix -}}
{{- range $name, $value := index . 3 -}}
  {{- $message = replace (printf "{%s}" $name) (toString $value) $message -}}
  {{- $fix = replace (printf "{%s}" $name) (toString $value) $fix -}}
{{- end -}}
{{- toJson (list (index . 1) $message $fix) -}}
{{- end -}}

{{- define "penstock.problems.version" -}}
{{- $problems := list -}}
{{- $dynamo := $.Values.dynamo -}}
{{- $requirements := include "penstock.requirements" $ | fromJson -}}
{{- $versions := $requirements.dynamo_versions -}}
{{- $known := and (kindIs "string" $dynamo) (has $dynamo $versions) -}}
{{- if not (or $known (kindIs "invalid" $dynamo)) -}}
  {{- $meant := "" -}}
  {{- range $version := reverse $versions -}}
    {{- $isNearer := or (not $meant) (le (len $version) (len $meant)) -}}
    {{- if and (toString $dynamo) (hasPrefix (toString $dynamo) $version) $isNearer -}}{{- $meant = $version -}}{{- end -}}
  {{- end -}}
  {{- $fix := ternary (printf "Did you mean `%s`?" $meant) "Write one of them." (ne $meant "") -}}
  {{- $got := ternary (printf "%q" $dynamo) (toJson $dynamo) (kindIs "string" $dynamo) -}}
  {{- $problems = append $problems (list "dynamo" (printf "must be one of %s, got %s" (join ", " $versions) $got) $fix) -}}
{{- end -}}
{{- if and $known (eq $.Values.engine.kind "mocker") (semverCompare "<1.6.0" (include "penstock.dynamo.release" $)) -}}
  {{- $problems = append $problems (include "penstock.message" (list $ "dynamo" "mocker_version" (dict "dynamo" $dynamo)) | fromJsonArray) -}}
{{- end -}}
{{- if and $known (eq $.Values.engine.kind "llamacpp") (ne (toString $dynamo) $.Chart.AppVersion) -}}
  {{- $problems = append $problems (include "penstock.message" (list $ "dynamo" "llamacpp_version" (dict "own" $.Chart.AppVersion)) | fromJsonArray) -}}
{{- end -}}
{{- $names := join "|" $versions | replace "." "[.]" -}}
{{- range $place := ternary (list "engine" "frontend" "prefill" "decode" "worker" "planner") list $known -}}
  {{- $image := get (get $.Values $place | default dict) "image" | default "" -}}
  {{- $tag := ternary "" (regexFind ":[^/:]+$" $image | trimPrefix ":") (contains "@" $image) -}}
  {{- $isVersion := regexMatch (printf "^v?(%s)(-[A-Za-z].*)?$" $names) $tag -}}
  {{- $isVersion = and $isVersion (not (regexMatch (printf "^v?(%s)%s" $names $requirements.pre_release_in_tag) $tag)) -}}
  {{- $found := regexFind $names $tag -}}
  {{- if and $isVersion (ne $found $dynamo) -}}
    {{- $proposed := printf "%s:%s" (trimSuffix (printf ":%s" $tag) $image) (regexReplaceAll (printf "^(v?)(%s)" $names) $tag (printf "${1}%s" $dynamo)) -}}
    {{- $arguments := dict "image" $image "release" $found "dynamo" $dynamo "proposed" $proposed -}}
    {{- $problems = append $problems (include "penstock.message" (list $ (printf "%s.image" $place) "image_version" $arguments) | fromJsonArray) -}}
  {{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.pools" -}}
{{- $problems := list -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .Release.Name) -}}
  {{- $problems = append $problems (list "Release.Name" (printf "%q is not a valid Service name" .Release.Name) "Use lower-case letters, digits and dashes, and begin with a letter.") -}}
{{- end -}}
{{- $pools := include "penstock.pools" . | fromJsonArray -}}
{{- if and (has "worker" $pools) (gt (len $pools) 1) -}}
  {{- $problems = append $problems (include "penstock.message" (list $ "worker" "worker_with_other_pool" (dict "pool" (first $pools))) | fromJsonArray) -}}
{{- else if eq (len $pools) 0 -}}
  {{- $problems = append $problems (include "penstock.message" (list $ "worker" "no_pool" (dict)) | fromJsonArray) -}}
{{- else if not (has "worker" $pools) -}}
  {{- range $pair := list (list "prefill" "decode") (list "decode" "prefill") -}}
    {{- if and (has (first $pair) $pools) (not (has (last $pair) $pools)) -}}
      {{- $problems = append $problems (include "penstock.message" (list $ (last $pair) "pool_missing" (dict "pool" (first $pair) "missing" (last $pair))) | fromJsonArray) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range $name := $pools -}}
  {{- $pool := include "penstock.pool" (list $ $name) | fromJson -}}
  {{- $gpus := include "penstock.gpus" (dict "root" $ "pool" $pool) | int64 -}}
  {{- with $.Values.hardware.gpus_per_node -}}
    {{- if gt $gpus (int64 .) -}}
      {{- $problems = append $problems (list (printf "%s.gpus" $name) (printf "needs %d GPUs per node, but `hardware.gpus_per_node` is %d" $gpus (int64 .)) "Use fewer GPUs per node, or more `nodes`.") -}}
    {{- end -}}
  {{- end -}}
  {{- if and (eq $gpus 0) (eq $.Values.engine.kind "trtllm") -}}
    {{- $problems = append $problems (list (printf "%s.gpus" $name) "is 0, but TensorRT-LLM needs a GPU" "Set `gpus` to at least 1.") -}}
  {{- end -}}
  {{- if and (ge (int64 $pool.nodes) 2) (eq $.Values.engine.kind "llamacpp") -}}
    {{- $problems = append $problems (list (printf "%s.nodes" $name) (printf "is %d, but llama.cpp runs on a single node" (int64 $pool.nodes)) "Set `nodes: 1`.") -}}
  {{- end -}}
  {{- if and (ge (int64 $pool.nodes) 2) (eq $.Values.engine.kind "mocker") -}}
    {{- $problems = append $problems (list (printf "%s.nodes" $name) (printf "is %d, but the mocker runs on a single node" (int64 $pool.nodes)) "Set `nodes: 1`, and set `dp_size` in `engine.config`.") -}}
  {{- end -}}
{{- end -}}
{{- range $name := $pools -}}
  {{- $pool := get $.Values $name -}}
  {{- if and $pool.queue_limit (not $pool.request_limit) -}}
    {{- $problems = append $problems (include "penstock.message" (list $ (printf "%s.queue_limit" $name) "queue_without_request_limit" (dict)) | fromJsonArray) -}}
  {{- end -}}
  {{- if and $pool.request_limit (eq $.Values.infrastructure.requests "nats") -}}
    {{- $problems = append $problems (include "penstock.message" (list $ (printf "%s.request_limit" $name) "request_limit_with_nats" (dict)) | fromJsonArray) -}}
  {{- end -}}
{{- end -}}
{{- range $place := list "frontend" "prefill" "decode" "worker" "" -}}
  {{- $component := ternary $.Values (get $.Values $place | default dict) (eq $place "") -}}
  {{- range $key, $fix := (include "penstock.requirements" $ | fromJson).pod_keys_of_the_chart -}}
    {{- if hasKey (get $component "pod" | default dict) $key -}}
      {{- $problems = append $problems (include "penstock.message" (list $ (printf "%s.pod.%s" $place $key | trimPrefix ".") "set_by_chart" (dict "fix" $fix)) | fromJsonArray) -}}
    {{- end -}}
  {{- end -}}
  {{- range (get $component "pod" | default dict).volumes -}}
    {{- if has .name (list "engine-config" "router-config" "engine-ssh-key" "model-cache" "shared-memory") -}}
      {{- $problems = append $problems (list (printf "%s.pod.volumes" $place | trimPrefix ".") (printf "the chart already uses the volume name %s" .name) "Use another name.") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{/* Values of the engine's config with which the chart computes. A 0 counts as unset; engines read "2" as 2. */}}
{{- define "penstock.problems.config" -}}
{{- $problems := list -}}
{{- $kind := .Values.engine.kind -}}
{{- $numbers := get (dict
  "trtllm" (list "pipeline_parallel_size" "context_parallel_size" "kv_cache_config.tokens_per_block")
  "vllm" (list "pipeline-parallel-size" "data-parallel-size")
  "sglang" (list "pp-size" "dp-size")) $kind | default list -}}
{{- $maps := get (dict "trtllm" (list "kv_cache_config") "mocker" (list "engine")) $kind | default list -}}
{{- range $place := list "engine" "prefill" "decode" "worker" -}}
  {{- $values := dict -}}
  {{- range $key, $value := get (get $.Values $place | default dict) "config" | default dict -}}
    {{- $at := printf "%s.config.%s" $place $key -}}
    {{- if has $key $maps -}}
      {{- if kindIs "map" $value -}}
        {{- range $inner, $number := $value -}}{{- $_ := set $values (printf "%s.%s" $key $inner) (list (printf "%s.%s" $at $inner) $number) -}}{{- end -}}
      {{- else if not (kindIs "invalid" $value) -}}
        {{- $problems = append $problems (list $at (printf "must be a mapping, got %s" (toJson $value)) (printf "Write `key: value` lines below `%s`." $key)) -}}
      {{- end -}}
    {{- else -}}
      {{- $_ := set $values (ternary (replace "_" "-" $key) $key (has $kind (list "vllm" "sglang"))) (list $at $value) -}}
    {{- end -}}
  {{- end -}}
  {{- range $name := $numbers -}}
    {{- if hasKey $values $name -}}
      {{- $at := first (get $values $name) -}}
      {{- $value := last (get $values $name) -}}
      {{- $isNumber := has (kindOf $value) (list "int" "int64" "float64") -}}
      {{- $isCount := and $isNumber (ge (float64 $value) 0.0) (eq (floor $value) (float64 $value)) -}}
      {{- $isText := and (kindIs "string" $value) (regexMatch "^[0-9]+$" (toString $value)) -}}
      {{- if not (or $isCount $isText (kindIs "invalid" $value)) -}}
        {{- $problems = append $problems (list $at (printf "must be a positive integer, got %s" (toJson $value)) "Write an integer, or remove the key.") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.device" -}}
{{- $problems := list -}}
{{- $engine := .Values.engine -}}
{{- if and (eq $engine.device "cpu") (not (has $engine.kind (list "vllm" "llamacpp"))) -}}
  {{- $problems = append $problems (list "engine.device" (printf "is cpu, but %s does not run on a CPU" $engine.kind) "Set `engine.kind: vllm`, or remove `device`.") -}}
{{- else -}}
{{- range $name := include "penstock.pools" . | fromJsonArray -}}
  {{- $pool := include "penstock.pool" (list $ $name) | fromJson -}}
  {{- $gpus := include "penstock.gpus" (dict "root" $ "pool" $pool) | int64 -}}
  {{- if and (eq $engine.device "cpu") $gpus -}}
    {{- $problems = append $problems (list (printf "%s.gpus" $name) (printf "is %d, but `engine.device` is cpu" $gpus) "Remove `gpus` or `device`.") -}}
  {{- else if and (eq $engine.device "cpu") (ge (int64 $pool.nodes) 2) -}}
    {{- $problems = append $problems (list (printf "%s.nodes" $name) (printf "is %d, but `engine.device` is cpu" (int64 $pool.nodes)) "Remove `nodes`.") -}}
  {{- else if and (eq $engine.device "cpu") (eq $engine.kind "vllm") (mod (get (include "penstock.config.user" (dict "root" $ "name" $name "pool" $pool) | fromJson) "block-size" | default 32 | int64) 32) -}}
    {{- $problems = append $problems (list (printf "%s.config.block-size" $name) "is not a multiple of 32, which vLLM needs on a CPU" "Set it to 32.") -}}
  {{- else if and (eq $engine.device "cpu") (eq $engine.kind "vllm") (not $pool.image) (not $engine.image) -}}
    {{- $problems = append $problems (list (printf "%s.image" $name) "is unset, and NVIDIA publishes no image of vLLM for CPUs" "Set `engine.image` to your own image. `penstock up` ignores its value.") -}}
  {{- else if and (eq $engine.device "gpu") (eq $engine.kind "vllm") (eq $gpus 0) -}}
    {{- $problems = append $problems (list (printf "%s.gpus" $name) "is 0, but `engine.device` is gpu" "Set `gpus` to at least 1, or set `engine.device: cpu`.") -}}
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
    {{- $problems = append $problems (include "penstock.message" (list $ "speculation" "speculation_with_mocker" (dict)) | fromJsonArray) -}}
  {{- else if eq $kind "llamacpp" -}}
    {{- $problems = append $problems (include "penstock.message" (list $ "speculation" "speculation_with_llamacpp" (dict)) | fromJsonArray) -}}
  {{- end -}}
  {{- if and (eq .method "eagle3") (not .draft_model) -}}
    {{- $problems = append $problems (include "penstock.message" (list $ "speculation.draft_model" "draft_model_missing" (dict "method" .method)) | fromJsonArray) -}}
  {{- else if and (ne .method "eagle3") .draft_model -}}
    {{- $problems = append $problems (include "penstock.message" (list $ "speculation.draft_model" "draft_model_unused" (dict "method" .method)) | fromJsonArray) -}}
  {{- end -}}
{{- end -}}
{{- /* Arguments that the engine ignores in favor of its file: with TensorRT-LLM those that the chart
       writes into it, with the mocker all that describe the engine. */ -}}
{{- $ignored := get (dict
  "trtllm" "^--(tensor-parallel-size|max-seq-len|override-engine-args)(=|$)"
  "mocker" "^--(num-gpu-blocks-override|block-size|max-model-len|max-num-seqs|max-num-batched-tokens|(no-)?enable-(prefix-caching|chunked-prefill)|preemption-mode|(decode-)?speedup-ratio|data-parallel-size|startup-time|planner-profile-data|ai[sc]-[a-z-]+|gpu-memory-utilization|mem-fraction-static|free-gpu-memory-fraction|reasoning|response-replay-trace-path|engine-type|sglang-(schedule-policy|page-size|max-prefill-tokens|chunked-prefill-size|clip-max-new-tokens|schedule-conservativeness)|trtllm-capacity-scheduler-policy|kv-transfer-(bandwidth|timing-mode)|num-host-blocks|host-offload-[a-z0-9-]+|extra-engine-args)(=|$)"
  "vllm" "^--(config|model)(=|$)"
  "llamacpp" "^--(config|model)(=|$)"
  "sglang" "^--(config|model-path)(=|$)") $kind -}}
{{- range $place := list "engine" "prefill" "decode" "worker" -}}
  {{- range $arg := (get (get $.Values $place | default dict) "args" | default list) -}}
    {{- if regexMatch $ignored $arg -}}
      {{- $problems = append $problems (list (printf "%s.args" $place) (printf "%s has no effect: the engine reads the file that the chart writes" $arg) "Set it in `engine.config` or in the `config` of the pool.") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and (eq $kind "llamacpp") (not .Values.engine.image) -}}
  {{- $problems = append $problems (include "penstock.message" (list $ "engine.image" "llamacpp_image" (dict)) | fromJsonArray) -}}
{{- end -}}
{{- if eq $kind "mocker" -}}
  {{- range $place := list "engine" "prefill" "decode" "worker" -}}
    {{- $engine := get (get (get $.Values $place | default dict) "config" | default dict) "engine" -}}
    {{- if and (kindIs "map" $engine) (hasKey $engine "worker_type") -}}
      {{- $problems = append $problems (list (printf "%s.config.engine.worker_type" $place) "is derived from the pool" "Remove `worker_type`.") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "penstock.problems.transfer" -}}
{{- $problems := list -}}
{{- $kind := .Values.engine.kind -}}
{{- $transfer := .Values.kv_transfer -}}
{{- $backends := get (dict "trtllm" (list "nixl" "ucx" "mooncake" "mpi") "vllm" (list "nixl") "sglang" (list "nixl" "mooncake") "llamacpp" (list "nixl") "mocker" (list "nixl")) $kind -}}
{{- if not (has $transfer.backend $backends) -}}
  {{- $problems = append $problems (list "kv_transfer.backend" (printf "%s does not support the KV transfer backend %s" $kind $transfer.backend) (printf "Use %s." (join " or " $backends))) -}}
{{- end -}}
{{- if and (eq $transfer.transport "tcp") (or (eq $transfer.backend "mpi") (and (eq $transfer.backend "mooncake") (eq $kind "trtllm"))) -}}
  {{- $problems = append $problems (list "kv_transfer.transport" (printf "is tcp, which only UCX supports; backend %s does not use UCX" $transfer.backend) "Set `transport: auto`, or use the backend nixl or ucx.") -}}
{{- end -}}
{{- if and $transfer.buffer_tokens (ne $kind "trtllm") -}}
  {{- $problems = append $problems (list "kv_transfer.buffer_tokens" (printf "has no effect: %s has no transfer buffer" $kind) "Remove `buffer_tokens`.") -}}
{{- end -}}
{{- if eq (include "penstock.transport" .) "rdma" -}}
  {{- range $name := list "prefill" "decode" -}}
    {{- if kindIs "map" (get $.Values $name) -}}
      {{- $pool := include "penstock.pool" (list $ $name) | fromJson -}}
      {{- if eq (include "penstock.gpus" (dict "root" $ "pool" $pool)) "0" -}}
        {{- $problems = append $problems (list (ternary "kv_transfer.transport" "hardware.fabric" (eq $transfer.transport "rdma")) (printf "rdma requests one device per GPU, but %s has no GPU" $name) "Set `kv_transfer.transport` to auto or tcp.") -}}
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
  {{- range $name := (include "penstock.requirements" $ | fromJson).router_keys_of_kv_mode -}}
    {{- if and (hasKey $router $name) (not (kindIs "invalid" (get $router $name))) -}}
      {{- $problems = append $problems (include "penstock.message" (list $ (printf "router.%s" $name) "kv_mode_only" (dict "mode" $router.mode "name" $name)) | fromJsonArray) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and $router.queue_policy (kindIs "invalid" $router.queue_threshold) -}}
  {{- $problems = append $problems (include "penstock.message" (list $ "router.queue_policy" "queue_policy_without_queue" (dict)) | fromJsonArray) -}}
{{- end -}}
{{- if and $router.conditional_disagg (not $router.kv_events) -}}
  {{- $problems = append $problems (list "router.conditional_disagg" "needs KV events, but `router.kv_events` is false" "Set `router.kv_events: true`, or remove `conditional_disagg`.") -}}
{{- end -}}
{{- if and $infrastructure.etcd_endpoints (ne (include "penstock.discovery" .) "etcd") -}}
  {{- $problems = append $problems (list "infrastructure.etcd_endpoints" (printf "has no effect with `discovery: %s`" (include "penstock.discovery" .)) "Set `discovery: etcd`, or remove `etcd_endpoints`.") -}}
{{- end -}}
{{- if and $infrastructure.nats_url (ne $infrastructure.events "nats") (ne $infrastructure.requests "nats") -}}
  {{- $problems = append $problems (list "infrastructure.nats_url" "has no effect: neither events nor requests use NATS" "Set `events` or `requests` to nats, or remove `nats_url`.") -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}
