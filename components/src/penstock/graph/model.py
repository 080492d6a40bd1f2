"""The graph YAML, field by field. Each default stands here and nowhere else.

`penstock generate` derives from it the chart's values.yaml, values.schema.json and the reference.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from penstock.graph.choices import Device, EngineKind, Probe, RouterMode
from penstock.graph.cluster import Cluster, ModelCache
from penstock.graph.component import (
    Frontend,
    Planner,
    WorkerPool,
    owner_of,
    refuse_pod_keys_of_the_chart,
)
from penstock.graph.hardware import Hardware
from penstock.graph.messages import problem
from penstock.graph.slo import Slo
from penstock.strict_yaml.base import (
    Count,
    Env,
    Items,
    ObjectName,
    Opaque,
    Positive,
    Spec,
    Text,
    invalid,
)


class Model(Spec):
    id: Text = Field(description="Hugging Face id, such as openai/gpt-oss-120b.")
    path: Text | None = Field(
        default=None,
        description="Directory with the model's files as the process sees it; unset: found by id.",
    )
    revision: Text | None = Field(
        default=None,
        description="Commit, branch or tag on the hub; unset: the engine's choice (main).",
    )
    served_name: Text | None = Field(
        default=None, description="Name in /v1/models and in requests; unset: the id."
    )
    context_length: Positive | None = Field(
        default=None,
        description="Longest sequence, prompt and answer, in tokens; unset: the engine's limit.",
    )
    reasoning_parser: Text | None = Field(
        default=None, description="Dynamo reasoning parser, such as gpt_oss; unset: none."
    )
    tool_call_parser: Text | None = Field(
        default=None, description="Dynamo tool-call parser, such as harmony; unset: none."
    )
    harmony_vocabulary: Text | None = Field(
        default=None,
        description="Directory in the pods with o200k_base.tiktoken, which the parsers gpt_oss and "
        "harmony need; unset: the frontend downloads it at the first request that needs it.",
    )
    cache: ModelCache | None = Field(
        default=None, description="Volume with the model's files; unset: each pod downloads them."
    )
    token_secret: ObjectName | None = Field(
        default=None, description="Secret with HF_TOKEN, given to every pod; unset: none."
    )


class EngineSpec(Spec):
    kind: EngineKind = Field(
        description="The inference engine; mocker simulates one without a GPU."
    )
    device: Device = Field(
        default="gpu",
        description="What the workers compute on; cpu: vLLM alone, with an image of your own.",
    )
    image: Text | None = Field(
        default=None,
        description="Container image of frontend and workers; unset: NVIDIA's for this engine, "
        "1.6.1.",
    )
    config: Opaque = Field(
        default={},
        description="The engine's own options, for all pools, in the engine's words. With vllm and "
        "sglang null leaves a key out.",
    )
    args: Items[str] = Field(
        default=(), description="Further command-line arguments of every worker, as written."
    )
    env: Env = Field(default={}, description="Environment of every worker.")


class Router(Spec):
    mode: RouterMode = Field(
        default="kv", description="How a worker is chosen; kv: by cached prefix and load."
    )
    kv_events: bool = Field(
        default=True, description="Follow the workers' KV cache events; false: guess from requests."
    )
    replica_sync: bool = Field(
        default=True,
        description="Share load state between frontends; on with one too, so that a second one "
        "changes no flag of the first.",
    )
    overlap_score_credit: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="Weight of a cached prefix block; unset: Dynamo's 1.0."
    )
    prefill_load_scale: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="Weight of prompt load; unset: Dynamo's 1.0."
    )
    temperature: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="Randomness of the choice; unset: Dynamo's 0, always the best."
    )
    ttl_s: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="Seconds a guessed block lives with kv_events: false; unset: Dynamo's 120.",
    )
    min_initial_workers: Count | None = Field(
        default=None, description="Workers to wait for at start; unset: Dynamo's 0."
    )
    active_decode_blocks_threshold: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="Share of KV blocks above which a worker counts as busy; unset: never.",
    )
    active_prefill_tokens_threshold: Positive | None = Field(
        default=None, description="Queued prompt tokens above which a worker is busy; unset: never."
    )
    conditional_disagg: bool | None = Field(
        default=None,
        description="Let short or cached prompts skip the prefill pool (experimental); unset: no.",
    )

    @model_validator(mode="after")
    def _tuning_needs_kv_mode(self) -> Self:
        if self.mode == "kv":
            return self
        for name in sorted(self.model_fields_set & KV_ONLY):
            if getattr(self, name) is not None:
                raise problem(name, "kv_mode_only", mode=self.mode, name=name)
        return self


KV_ONLY = {
    "kv_events",
    "replica_sync",
    "overlap_score_credit",
    "prefill_load_scale",
    "temperature",
    "ttl_s",
    "conditional_disagg",
}


class KvTransfer(Spec):
    backend: Literal["nixl", "ucx", "mooncake", "mpi"] = Field(
        default="nixl", description="What carries KV blocks from prefill to decode."
    )
    transport: Literal["auto", "rdma", "tcp"] = Field(
        default="auto",
        description="auto: what hardware.fabric has, or what UCX finds where it is unset; rdma: "
        "request the devices and forbid TCP; tcp: no RDMA.",
    )
    rdma_resource: Text | None = Field(
        default=None,
        description="Device-plugin resource of the RDMA devices; unset: vpc.amazonaws.com/efa on "
        "fabric efa, else rdma/ib.",
    )
    rdma_devices: Positive | None = Field(
        default=None,
        description="RDMA devices of one pod; unset: one a GPU. EFA needs all of the node.",
    )
    buffer_tokens: Positive | None = Field(
        default=None,
        description="Tokens a transfer buffer holds; unset: the context length, rounded up to "
        "blocks.",
    )
    timeout_ms: Positive | None = Field(
        default=None,
        description="Milliseconds after which a stuck transfer fails; unset: the engine's own "
        "limit.",
    )


class Speculation(Spec):
    method: Literal["eagle3", "mtp", "ngram"] = Field(description="How tokens are drafted.")
    draft_model: Text | None = Field(
        default=None, description="Draft model's id or path; eagle3 needs one."
    )
    draft_revision: Text | None = Field(
        default=None,
        description="Commit of the draft model for model.cache.download; unset: none is fetched.",
    )
    draft_tokens: Positive = Field(default=3, description="Tokens drafted a step.")

    @model_validator(mode="after")
    def _eagle_needs_a_draft_model(self) -> Self:
        if self.method == "eagle3" and self.draft_model is None:
            raise problem("draft_model", "draft_model_missing", method=self.method)
        if self.method != "eagle3" and self.draft_model is not None:
            raise problem("draft_model", "draft_model_unused", method=self.method)
        return self


class Infrastructure(Spec):
    discovery: Literal["kubernetes", "file", "etcd"] | None = Field(
        default=None,
        description="How processes find each other; unset: kubernetes, or etcd with platform "
        "plain. kubernetes runs as file discovery with `up`.",
    )
    events: Literal["zmq", "nats"] = Field(default="zmq", description="What carries KV events.")
    requests: Literal["tcp", "nats"] = Field(default="tcp", description="What carries requests.")
    etcd_endpoints: Items[Text] = Field(
        default=(), description="etcd URLs; unset: `up` starts one, the operator names its own."
    )
    nats_url: Text | None = Field(
        default=None, description="NATS URL; unset: `up` starts one, the operator names its own."
    )


class Verify(Spec):
    must_pass: Items[Probe] = Field(
        default=(),
        description='Probes for which `penstock verify` takes no "cannot tell" for an answer.',
    )


class Checks(Spec):
    suppress: dict[str, Text] = Field(
        default={},
        description="Rules of `penstock check` that this graph lives with, each with the reason; "
        "their findings no longer count.",
    )


class Graph(Spec):
    platform: Literal["dynamo", "plain"] = Field(
        default="dynamo",
        description="What runs the pods on a cluster: the Dynamo operator, or plain Deployments "
        "(LeaderWorkerSets for engines on several nodes), etcd and Services where there is none. "
        "`up` runs both alike.",
    )
    model: Model = Field(description="What is served.")
    hardware: Hardware = Field(default=Hardware(), description="What it runs on.")
    slo: Slo = Field(
        default=Slo(),
        description="What a request is promised; `simulate` and `plan` judge by it, nothing is "
        "installed for it.",
    )
    engine: EngineSpec = Field(description="What runs it.")
    frontend: Frontend = Field(default=Frontend(), description="The OpenAI endpoint.")
    router: Router = Field(default=Router(), description="How requests find a worker.")
    prefill: WorkerPool | None = Field(default=None, description="Workers that read prompts.")
    decode: WorkerPool | None = Field(default=None, description="Workers that write answers.")
    worker: WorkerPool | None = Field(
        default=None, description="Workers that do both, instead of prefill and decode."
    )
    planner: Planner | None = Field(
        default=None,
        description="Dynamo's planner, for pools with autoscaling.owner planner. No component "
        "joins a graph that is installed: one that plans no pool yet has no pod, and is there.",
    )
    kv_transfer: KvTransfer = Field(
        default=KvTransfer(), description="How KV blocks move from prefill to decode."
    )
    speculation: Speculation | None = Field(
        default=None, description="Speculative decoding, on every pool alike; unset: none."
    )
    infrastructure: Infrastructure = Field(
        default=Infrastructure(), description="Discovery, events and requests."
    )
    cluster: Cluster = Field(
        default=Cluster(), description="What surrounds the pods on a cluster; `up` needs none."
    )
    drain_timeout_s: Positive = Field(
        default=180,
        description="Seconds that a stopping process may finish its requests; every grace period "
        "of the graph follows from it.",
    )
    verify: Verify = Field(
        default=Verify(), description="What `penstock verify` must prove; nothing is deployed."
    )
    checks: Checks = Field(
        default=Checks(), description="What `penstock check` finds; nothing is deployed."
    )
    env: Env = Field(default={}, description="Environment of every component.")
    pod: Opaque = Field(
        default={}, description="PodSpec fragment for every pod; a component's own wins."
    )

    @model_validator(mode="after")
    def _pools_make_a_graph(self) -> Self:
        have = [name for name in ("prefill", "decode", "worker") if getattr(self, name) is not None]
        if have in (["prefill", "decode"], ["worker"]):
            return self
        if "worker" in have:
            raise problem("worker", "worker_with_other_pool", pool=have[0])
        if not have:
            raise problem("worker", "no_pool")
        missing = "decode" if have == ["prefill"] else "prefill"
        raise problem(missing, "pool_missing", pool=have[0], missing=missing)

    @model_validator(mode="after")
    def _nothing_is_ignored(self) -> Self:
        if self.worker is not None and "kv_transfer" in self.model_fields_set:
            message = "has no effect: a single pool does not transfer KV blocks"
            raise invalid("kv_transfer", message, "Remove `kv_transfer`.")
        if self.engine.kind == "mocker" and self.speculation is not None:
            raise problem("speculation", "speculation_with_mocker")
        refuse_pod_keys_of_the_chart(self.pod)
        return self

    @model_validator(mode="after")
    def _planner_has_pools(self) -> Self:
        planned = [name for name, pool in self.pools.items() if owner_of(pool) == "planner"]
        if planned and self.planner is None:
            raise problem("planner", "planner_missing", pool=planned[0])
        if self.planner is not None and self.platform == "plain":
            place = f"{planned[0]}.autoscaling.owner" if planned else "planner"
            raise problem(place, "planner_on_plain")
        return self

    @property
    def pools(self) -> dict[str, WorkerPool]:
        """The graph's worker pools by name, in the order requests pass them."""
        named = {"prefill": self.prefill, "decode": self.decode, "worker": self.worker}
        return {name: pool for name, pool in named.items() if pool is not None}
