"""Filled examples of sections whose fields have no default; `values.yaml` shows them as comments.

Tests load each one in a complete graph, so they stay valid.
"""

from __future__ import annotations

from collections.abc import Mapping

# Section after whose description the example is shown → YAML of one or several sections.
EXAMPLES: Mapping[str, str] = {
    "model": """\
model:
  id: openai/gpt-oss-120b
  revision: b5c939de8f754692c1647ca79fbf85e8c1e70f8a
  context_length: 131072
  reasoning_parser: gpt_oss
  tool_call_parser: harmony
  cache:
    pvc: model-cache
    create: {size: 200Gi}
    download: true
  token_secret: hf-token-secret
""",
    "hardware": """\
hardware:
  gpu: h200
  gpus_per_node: 8
  nodes: 2
  gpu_hour_price: 2.5
  fabric: ib
""",
    "slo": """\
slo:
  ttft_ms: 1000
  itl_ms: 20
""",
    "gateway": """\
gateway:
  hostname: llm.example.com
  tls: {secret: llm-tls}
  rate_limit: {requests: 600, unit: minute}
""",
    "prefill": """\
prefill:
  replicas: 4
  gpus: 1
  shared_memory: 80Gi
  config: {max_batch_size: 64, max_num_tokens: 16384}
decode:
  replicas: 1
  gpus: 4
  shared_memory: 80Gi
  config: {max_batch_size: 512, max_num_tokens: 16384}
""",
    "worker": """\
worker:
  gpus: 2
  autoscaling:
    owner: keda
    min: 2
    max: 8
    signal: kv_usage
    target: 0.8
cluster:
  monitoring: {pod_monitors: true}
""",
    "speculation": """\
speculation:
  method: eagle3
  draft_model: nvidia/gpt-oss-120b-Eagle3-v3
  draft_tokens: 3
""",
}
