"""The model of the graph YAML, and the only place of its defaults.

`make generate` derives the chart's values.yaml, values.schema.json and the reference from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from penstock.graph.choices import AnyFaultKind, Device, DynamoVersion, EngineKind, Probe
from penstock.graph.cluster import Cluster, ModelCache
from penstock.graph.component import (
    Frontend,
    Planner,
    WorkerPool,
    owner_of,
    refuse_pod_keys_of_the_chart,
)
from penstock.graph.gateway import GatewaySection
from penstock.graph.messages import problem
from penstock.graph.references import Image, ModelId, ServedName
from penstock.graph.router import Router
from penstock.graph.slo import Slo
from penstock.graph.versions import DEFAULT, OLDEST_MOCKER, numbers, version_in_tag, with_version
from penstock.strict_yaml.base import (
    OTLP_ENDPOINT,
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

NO_SPECULATION = ("mocker", "llamacpp")  # engines without it


class Hardware(Spec):
    gpu: Literal["h100", "h200", "b200", "b300", "gb200", "gb300"] | None = Field(
        default=None,
        description="GPU model of the worker nodes. Worker pods are scheduled on nodes with this "
        "GPU. If unset, any GPU node is used, and the chart derives nothing from the GPU model.",
    )
    product_labels: Items[Text] | None = Field(
        default=None,
        description="Values of the node label nvidia.com/gpu.product. Worker pods are scheduled "
        "on nodes with one of them; if unset, the known values for hardware.gpu. [] selects any "
        "node.",
    )
    gpus_per_node: Positive | None = Field(
        default=None,
        description="Number of GPUs per node; if unset, `check` cannot tell whether a pod fits on "
        "a node.",
    )
    nodes: Positive | None = Field(
        default=None,
        description="Number of GPU nodes that the graph may use; if unset, `check` cannot tell "
        "whether the graph fits on the cluster.",
    )
    gpu_hour_price: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Price per GPU-hour in any currency, used by `simulate`; if unset, it reports "
        "no cost.",
    )
    fabric: Literal["ib", "roce", "efa", "mnnvl", "none"] | None = Field(
        default=None,
        description="Network between nodes for KV transfer and collectives. ib: InfiniBand. roce: "
        "RoCE. efa: AWS EFA. mnnvl: the NVLink of a rack, for which the chart creates a "
        "ComputeDomain. none: TCP only. This field and kv_transfer.transport determine the RDMA "
        "devices, the privileges and the UCX settings.",
    )


class Speculation(Spec):
    method: Literal["eagle3", "mtp", "ngram"] = Field(description="Method that drafts the tokens.")
    draft_model: Text | None = Field(
        default=None, description="ID or path of the draft model, required by eagle3."
    )
    draft_revision: Text | None = Field(
        default=None,
        description="Commit of the draft model. model.cache.download requires it, unless "
        "draft_model is a path.",
    )
    draft_tokens: Positive = Field(
        default=3, description="Number of tokens that are drafted per step."
    )

    @model_validator(mode="after")
    def _eagle_needs_a_draft_model(self) -> Self:
        if self.method == "eagle3" and self.draft_model is None:
            raise problem("draft_model", "draft_model_missing", method=self.method)
        if self.method != "eagle3" and self.draft_model is not None:
            raise problem("draft_model", "draft_model_unused", method=self.method)
        return self


# Variables that the chart derives from the section.
VARIABLES = (
    "OTEL_EXPORT_ENABLED",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_SERVICE_NAME",
    "OTEL_TRACES_SAMPLE_RATIO",
)
# They replace the endpoint above for traces.
SPECIFIC = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")


class Tracing(Spec):
    endpoint: Annotated[str, Field(pattern=OTLP_ENDPOINT)] = Field(
        description="OTLP endpoint of an OpenTelemetry Collector, Tempo or Jaeger, with its port. "
        "Port 4318 selects OTLP over HTTP, any other port OTLP over gRPC. `up` records the traces "
        "on this machine instead."
    )
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.1,
        description="Share of requests that are traced, from 0 to 1. A request with a traceparent "
        "header follows the sampling decision of the header. `up` traces all requests.",
    )


def refuse_own_variables(sections: Mapping[str, Mapping[str, str]]) -> None:
    """An error for a variable of the export in an `env` section (place → variables)."""
    for place, env in sections.items():
        for name in (*VARIABLES, *SPECIFIC):
            if name in env:
                raise problem(f"{place}.{name}", "variable_with_tracing")


class Verify(Spec):
    must_pass: Items[Probe] = Field(
        default=(),
        description="Probes of `penstock verify` for which an inconclusive result is a failure.",
    )


class Drill(Spec):
    permitted_failures: dict[AnyFaultKind, Count] = Field(
        default={},
        description="Maximum number of avoidable failures of requests per fault, for each kind of "
        "fault; 0 for kinds that are not listed.",
    )
    stall_s: Positive = Field(
        default=5,
        description="Time in seconds without a token after which a request counts as stalled.",
    )
    recovery_s: dict[AnyFaultKind, Positive] = Field(
        default={},
        description="Maximum time in seconds of the recovery from a fault, for each kind of fault; "
        "kinds that are not listed may take as long as the drill waits.",
    )


class Checks(Spec):
    suppress: dict[str, Text] = Field(
        default={},
        description="Rules of `penstock check` to suppress in this graph, each with the reason. "
        "Their findings are not counted.",
    )


class Model(Spec):
    id: ModelId = Field(description="Hugging Face ID, such as openai/gpt-oss-120b.")
    path: Text | None = Field(
        default=None,
        description="Directory with the model files (llamacpp: the GGUF file), in the pods or, "
        "with `up`, on this machine; if unset, the engine finds the model by its ID.",
    )
    revision: Text | None = Field(
        default=None,
        description="Commit, branch or tag on the Hugging Face Hub; if unset, the engine's "
        "default (main).",
    )
    served_name: ServedName | None = Field(
        default=None, description="Model name in /v1/models and in requests; if unset, the ID."
    )
    context_length: Positive | None = Field(
        default=None,
        description="Maximum sequence length in tokens, of prompt and output together; if unset, "
        "the engine's limit.",
    )
    reasoning_parser: Text | None = Field(
        default=None, description="Dynamo reasoning parser, such as gpt_oss; if unset, none."
    )
    tool_call_parser: Text | None = Field(
        default=None, description="Dynamo tool-call parser, such as harmony; if unset, none."
    )
    harmony_vocabulary: Text | None = Field(
        default=None,
        description="Directory in the pods with the file o200k_base.tiktoken, which the parsers "
        "gpt_oss and harmony need. If unset, the frontend downloads the file at the first request "
        "that needs it. `up` uses the environment harmony instead.",
    )
    cache: ModelCache | None = Field(
        default=None,
        description="Volume with the model files; if unset, pods without model.path download them.",
    )
    token_secret: ObjectName | None = Field(
        default=None,
        description="Secret with HF_TOKEN for the environment of every component; if unset, none.",
    )


class EngineSpec(Spec):
    kind: EngineKind = Field(
        description="Inference engine. llamacpp runs GGUF files on this machine with `up`. mocker "
        "simulates an engine without a GPU."
    )
    device: Device = Field(
        default="gpu",
        description="Device of the workers. cpu works with llamacpp and vllm; on a cluster, it "
        "needs an image of your own.",
    )
    image: Image | None = Field(
        default=None,
        description="Container image of frontend and workers; if unset, NVIDIA's image for this "
        "engine, with the version of `dynamo`. llamacpp has no such image, and needs your own on "
        "a cluster.",
    )
    config: Opaque = Field(
        default={},
        description="Options of the engine for all pools, in the engine's own format. With vllm "
        "and sglang, the value null removes an option that the chart sets.",
    )
    args: Items[str] = Field(
        default=(), description="Additional command-line arguments of every worker."
    )
    env: Env = Field(default={}, description="Environment variables of every worker.")


class KvTransfer(Spec):
    backend: Literal["nixl", "ucx", "mooncake", "mpi"] = Field(
        default="nixl", description="Library that transfers KV blocks from prefill to decode."
    )
    transport: Literal["auto", "rdma", "tcp"] = Field(
        default="auto",
        description="Network transport. auto: RDMA for the fabrics ib, roce and efa, NVLink for "
        "mnnvl, and TCP for none. If hardware.fabric is unset, UCX chooses the transport. rdma: "
        "request RDMA devices and forbid TCP. tcp: use TCP without RDMA devices.",
    )
    rdma_resource: Text | None = Field(
        default=None,
        description="Device-plugin resource of the RDMA devices; if unset, vpc.amazonaws.com/efa "
        "with hardware.fabric efa, otherwise rdma/ib.",
    )
    rdma_devices: Positive | None = Field(
        default=None,
        description="Number of RDMA devices per pod; if unset, one per GPU. With EFA, set it to "
        "all devices of the node.",
    )
    buffer_tokens: Positive | None = Field(
        default=None,
        description="Size of a transfer buffer in tokens (only TensorRT-LLM), a multiple of the "
        "KV block size; if unset, the context length, rounded up to whole KV blocks.",
    )
    timeout_ms: Positive | None = Field(
        default=None,
        description="Time in milliseconds after which a stuck transfer fails; if unset, the "
        "engine's default.",
    )


class Infrastructure(Spec):
    discovery: Literal["kubernetes", "file", "etcd"] | None = Field(
        default=None,
        description="How processes discover each other; if unset, kubernetes with platform "
        "dynamo, and etcd with platform plain. `up` uses file instead of kubernetes.",
    )
    events: Literal["zmq", "nats"] = Field(default="zmq", description="Transport of KV events.")
    requests: Literal["tcp", "nats"] = Field(default="tcp", description="Transport of requests.")
    etcd_endpoints: Items[Text] = Field(
        default=(),
        description="URLs of etcd. If empty and etcd is needed, `up` starts one, the operator "
        "uses its own, and with platform plain the chart creates one (cluster.etcd).",
    )
    nats_url: Text | None = Field(
        default=None,
        description="URL of NATS. If unset and NATS is needed, `up` starts a server, and the "
        "operator uses its own. Platform plain has none, so set the URL there.",
    )


class Graph(Spec):
    dynamo: DynamoVersion | None = Field(
        default=None,
        description="Version of Dynamo, in quotes; if unset, 1.6.1. It determines the images, the "
        "flags and the environment in which `up` runs the processes. If unset, `up` prefers the "
        "version in an image tag of the graph. `penstock upgrade` changes it.",
    )
    platform: Literal["dynamo", "plain"] = Field(
        default="dynamo",
        description="What the chart creates on a cluster. dynamo: an object of the Dynamo "
        "operator, which creates the pods. plain: Deployments (LeaderWorkerSets for engines on "
        "several nodes), etcd and Services, for clusters without the operator. `up` runs both "
        "platforms the same way.",
    )
    model: Model = Field(description="The model to serve.")
    hardware: Hardware = Field(default=Hardware(), description="The hardware to run on.")
    slo: Slo = Field(
        default=Slo(),
        description="Service level objectives (SLO): limits for the latencies of a request. "
        "`simulate`, `bench` and `plan --router` evaluate a graph by them, and `plan` writes "
        "them. The chart ignores them.",
    )
    engine: EngineSpec = Field(description="The inference engine.")
    frontend: Frontend = Field(default=Frontend(), description="The OpenAI-compatible endpoint.")
    router: Router = Field(default=Router(), description="How requests are routed to workers.")
    prefill: WorkerPool | None = Field(
        default=None, description="Prefill workers, which process prompts."
    )
    decode: WorkerPool | None = Field(
        default=None, description="Decode workers, which generate the output."
    )
    worker: WorkerPool | None = Field(
        default=None,
        description="Aggregated workers, which both process prompts and generate output.",
    )
    planner: Planner | None = Field(
        default=None,
        description="Dynamo's planner. It scales the pools with autoscaling.owner planner. "
        "Without such a pool, it has no pod. Set it before the first installation if you may need "
        "it, because no component can be added to an installed graph.",
    )
    kv_transfer: KvTransfer = Field(
        default=KvTransfer(), description="KV transfer from prefill to decode."
    )
    speculation: Speculation | None = Field(
        default=None, description="Speculative decoding for all pools; if unset, none."
    )
    infrastructure: Infrastructure = Field(
        default=Infrastructure(), description="Discovery, KV events and request transport."
    )
    tracing: Tracing | None = Field(
        default=None,
        description="Export of OpenTelemetry traces by frontends and workers; if unset, none. "
        "`penstock trace` explains a slow request from them.",
    )
    gateway: GatewaySection | None = Field(
        default=None,
        description="API gateway in front of the frontends, with API keys, rate limit, size limit "
        "and time limits; if unset, none. On a cluster, the chart renders it for Envoy Gateway. "
        "`up` runs it only with `--gateway FILE`.",
    )
    cluster: Cluster = Field(
        default=Cluster(), description="Settings that apply only on a cluster; `up` ignores them."
    )
    drain_timeout_s: Positive = Field(
        default=180,
        description="Time in seconds that a stopping process has to finish its requests. The "
        "chart derives the grace periods of frontends and workers from it.",
    )
    verify: Verify = Field(
        default=Verify(),
        description=("Settings of `penstock verify`; they do not affect the manifests."),
    )
    drill: Drill = Field(
        default=Drill(), description="Limits of `penstock drill`; they do not affect the manifests."
    )
    checks: Checks = Field(
        default=Checks(),
        description="Settings of `penstock check`; they do not affect the manifests.",
    )
    env: Env = Field(default={}, description="Environment variables of every component.")
    pod: Opaque = Field(
        default={},
        description="Kubernetes PodSpec fragment that is merged over every pod; the field `pod` "
        "of a component overrides it.",
    )

    @model_validator(mode="after")
    def _pools_are_complete(self) -> Self:
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
        if self.engine.kind in NO_SPECULATION and self.speculation is not None:
            raise problem("speculation", f"speculation_with_{self.engine.kind}")
        refuse_pod_keys_of_the_chart(self.pod)
        return self

    @model_validator(mode="after")
    def _limits_have_an_effect(self) -> Self:
        for name, pool in self.pools.items():
            if pool.request_limit is not None and self.infrastructure.requests == "nats":
                raise problem(f"{name}.request_limit", "request_limit_with_nats")
        return self

    @model_validator(mode="after")
    def _tracing_sets_its_variables(self) -> Self:
        if self.tracing is None:
            return self
        sections = {"env": self.env, "engine.env": self.engine.env}
        pools = {"frontend": self.frontend, **self.pools}
        refuse_own_variables(sections | {f"{name}.env": pool.env for name, pool in pools.items()})
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

    @model_validator(mode="after")
    def _images_have_the_version(self) -> Self:
        """Only where `dynamo` is set: otherwise an image's tag is the only version in the graph."""
        if self.dynamo is None:
            return self
        if self.engine.kind == "mocker" and numbers(self.dynamo) < OLDEST_MOCKER:
            raise problem("dynamo", "mocker_version", dynamo=self.dynamo)
        if self.engine.kind == "llamacpp" and self.dynamo != DEFAULT:
            raise problem("dynamo", "llamacpp_version", own=DEFAULT)
        for place, image in self.images.items():
            version = version_in_tag(image)
            if version is not None and version != self.dynamo:
                raise problem(
                    place,
                    "image_version",
                    image=image,
                    release=version,
                    dynamo=self.dynamo,
                    proposed=with_version(image, self.dynamo),
                )
        return self

    @property
    def dynamo_version(self) -> str:
        """The version of Dynamo that the graph targets."""
        return self.dynamo or DEFAULT

    @property
    def images(self) -> dict[str, str]:
        """The images of Dynamo that the graph sets, by place."""
        images = {"engine": self.engine.image, "frontend": self.frontend.image}
        images |= {name: pool.image for name, pool in self.pools.items()}
        images["planner"] = self.planner.image if self.planner else None
        return {f"{name}.image": image for name, image in images.items() if image}

    @property
    def pools(self) -> dict[str, WorkerPool]:
        """The worker pools by name, in the order in which requests pass them."""
        named = {"prefill": self.prefill, "decode": self.decode, "worker": self.worker}
        return {name: pool for name, pool in named.items() if pool is not None}
