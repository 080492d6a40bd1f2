"""The components of a graph: shared fields, frontend, worker pools and planner."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from penstock.graph.messages import (
    KEYS_OF_OWNER,
    OWN_KEY_OF_OWNER,
    POD_KEYS_OF_THE_CHART,
    TARGET_LIMITS,
    problem,
)
from penstock.graph.references import Image
from penstock.strict_yaml.base import (
    Count,
    Env,
    Items,
    Opaque,
    Port,
    Positive,
    Quantity,
    Replicas,
    Spec,
)
from penstock.strict_yaml.kind import MOST_REPLICAS
from penstock.text.numbers import limit_text

Owner = Literal["hpa", "keda", "planner", "external"]
Signal = Literal["cpu", "kv_usage", "prompt_tokens", "requests", "ttft_s", "itl_s"]


class Autoscaling(Spec):
    owner: Owner = Field(
        description="What sets the number of replicas. hpa: a HorizontalPodAutoscaler created by "
        "the chart. keda: a ScaledObject created by the chart. planner: Dynamo's planner. "
        "external: an autoscaler that you create. Its scaleTargetRef must name the scaling "
        "adapter RELEASE-COMPONENT. With platform plain, it must name the Deployment or "
        "LeaderWorkerSet RELEASE-COMPONENT."
    )
    min: Positive = Field(default=1, description="Minimum number of replicas.")
    max: Annotated[int, Field(ge=1, le=MOST_REPLICAS)] | None = Field(
        default=None,
        description="Maximum number of replicas, required with hpa and keda, and not permitted "
        "otherwise. The planner has planner.max_gpus instead.",
    )
    signal: Signal | None = Field(
        default=None,
        description="Metric to scale on. cpu: percentage of resources.cpu. The other signals come "
        "from Prometheus and need keda: kv_usage (fraction of the KV cache in use, 0 to 1), "
        "prompt_tokens (prompt tokens queued or in prefill, per replica), requests (requests in "
        "flight, per replica), ttft_s and itl_s (90th percentile over the graph, in seconds).",
    )
    target: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description=("Value of `signal` that the autoscaler maintains, in the unit of the signal."),
    )
    metrics: Items[Opaque] = Field(
        default=(),
        description="Metrics in the HPA's own format (autoscaling/v2), instead of signal.",
    )
    triggers: Items[Opaque] = Field(
        default=(), description="Triggers in KEDA's own format, instead of signal."
    )
    behavior: Opaque = Field(
        default={},
        description="Scaling behavior of the HPA, or of the HPA that KEDA creates. If unset, a "
        "frontend has Kubernetes' default, and a pool scales more slowly, because loading a model "
        "takes minutes. In five minutes, the replicas of a pool at most double. In "
        "drain_timeout_s + 60 s, at most one replica is removed (in 30 minutes, if that is "
        "shorter).",
    )

    @model_validator(mode="after")
    def _owner_reads_every_key(self) -> Self:
        keys = KEYS_OF_OWNER[self.owner]
        for name in sorted(self.model_fields_set - {"owner", *keys}):
            if getattr(self, name) in (None, (), {}):
                continue
            if name == "max" and self.owner == "planner":
                raise problem(name, "max_with_planner")
            raise problem(name, "no_effect_with_owner", owner=self.owner, name=name)
        if self.max is not None and self.max < self.min:
            raise problem("max", "max_below_min", max=self.max, min=self.min)
        if "max" in keys:
            self._signal_is_complete()
        return self

    def _signal_is_complete(self) -> None:
        own_key = OWN_KEY_OF_OWNER[self.owner]
        if self.max is None:
            raise problem("max", "max_missing", owner=self.owner)
        if self.signal is not None and getattr(self, own_key):
            raise problem(own_key, "signal_with_own_key", name=own_key)
        if self.signal is None and not getattr(self, own_key):
            raise problem("signal", "signal_missing", name=own_key)
        if self.signal is not None and self.target is None:
            raise problem("target", "target_missing")
        if self.signal is None and self.target is not None:
            raise problem("target", "target_without_signal")
        limit = TARGET_LIMITS.get(self.signal or "")
        if limit and self.target is not None and self.target > limit.largest:
            raise problem(
                "target",
                "target_too_large",
                target=limit_text(self.target),
                signal=self.signal,
                largest=limit.largest,
                fix=limit.fix,
            )
        if self.owner == "hpa" and self.signal not in ("cpu", None):
            raise problem("signal", "hpa_signal", signal=self.signal)


def refuse_pod_keys_of_the_chart(pod: Opaque) -> None:
    """Raise for a key of a PodSpec fragment that the chart sets."""
    for key, fix in POD_KEYS_OF_THE_CHART.items():
        if key in pod:
            raise problem(f"pod.{key}", "set_by_chart", fix=fix)


class Resources(Spec):
    cpu: Quantity | None = Field(default=None, description="CPU request; if unset, none.")
    memory: Quantity | None = Field(
        default=None, description="Memory request and limit; if unset, none."
    )


class Component(Spec):
    """The fields that the frontend, the pools and the planner share."""

    resources: Resources = Field(default=Resources(), description="CPU and memory of one pod.")
    env: Env = Field(
        default={},
        description="Environment variables of this component, which override `env` of the graph "
        "and, in pools, engine.env.",
    )
    args: Items[str] = Field(
        default=(), description="Additional command-line arguments of this component."
    )
    pod: Opaque = Field(
        default={},
        description="Kubernetes PodSpec fragment merged over the pod of this component "
        "(tolerations, nodeSelector, affinity, volumes, …). It must not set containers, "
        "restartPolicy or terminationGracePeriodSeconds.",
    )
    annotations: dict[str, str] = Field(default={}, description="Annotations of the pods.")

    @model_validator(mode="after")
    def _pod_has_no_keys_of_the_chart(self) -> Self:
        refuse_pod_keys_of_the_chart(self.pod)
        return self


class Scaled(Component):
    """A component whose replicas are set by the graph or by an autoscaler."""

    replicas: Replicas | None = Field(
        default=None,
        description="Number of replicas; if unset, 1, or the number that autoscaling sets.",
    )
    autoscaling: Autoscaling | None = Field(
        default=None, description="Autoscaling of this component; if unset, replicas is fixed."
    )

    @model_validator(mode="after")
    def _replicas_have_one_owner(self) -> Self:
        if self.autoscaling is not None and self.replicas is not None:
            raise problem("replicas", "replicas_with_autoscaling", replicas=self.replicas)
        return self


def owner_of(component: Scaled) -> str:
    """What sets the number of replicas: the owner of autoscaling, or graph."""
    return component.autoscaling.owner if component.autoscaling else "graph"


class Frontend(Scaled):
    port: Port = Field(default=8000, description="HTTP port of the OpenAI endpoint.")
    image: Image | None = Field(
        default=None, description="Container image; if unset, the engine's."
    )
    tokenizer: Literal["fastokens", "default", "basetenkenizer"] = Field(
        default="fastokens",
        description="Tokenizer backend of the frontend. If the frontend cannot load it, the "
        "frontend stops and does not use a slower one.",
    )
    migration_limit: Count = Field(
        default=3,
        description="Maximum number of times that a request moves to another worker after its "
        "worker has failed. With 0 (Dynamo's default), such a request fails.",
    )
    inactivity_timeout_s: Positive | None = Field(
        default=None,
        description="Time in seconds without a token after which a request moves from its worker "
        "to another one. If it still has no token after the same time again, it ends: with status "
        "504, or as a stream without `[DONE]`. Choose more than the longest TTFT: a request has no "
        "token while it is queued or in prefill. If unset, a request that hangs never ends.",
    )
    overload_status: Literal[429, 503, 529] | None = Field(
        default=None,
        description="HTTP status of a request that all workers reject because they are "
        "overloaded. If unset, the status is 429 in graphs with request_limit or "
        "router.active_*_threshold. In other graphs, it is Dynamo's default of 529. OpenAI's "
        "clients retry all three statuses. Many proxies retry 503 at once, which adds load.",
    )

    @model_validator(mode="after")
    def _planner_scales_pools(self) -> Self:
        if owner_of(self) == "planner":
            raise problem("autoscaling.owner", "planner_on_frontend")
        return self


class WorkerPool(Scaled):
    gpus: Count | None = Field(
        default=None,
        description="GPUs of one replica on each of its nodes; if unset, 1, or 0 with mocker, "
        "with llamacpp or with engine.device cpu.",
    )
    nodes: Positive = Field(default=1, description="Number of nodes that one replica spans.")
    image: Image | None = Field(
        default=None, description="Container image; if unset, the engine's."
    )
    config: Opaque = Field(
        default={}, description="Options of the engine for this pool, merged over engine.config."
    )
    shared_memory: Quantity | None = Field(
        default=None, description="Size of /dev/shm; if unset, 8Gi."
    )
    request_limit: Positive | None = Field(
        default=None,
        description="Maximum number of requests that a replica runs in its engine at once; if "
        "unset, no limit. Further requests wait in the queue of the replica (queue_limit). If "
        "this queue is full, the frontend tries other replicas. If all replicas reject the "
        "request, the frontend returns frontend.overload_status.",
    )
    queue_limit: Annotated[int, Field(ge=2)] | None = Field(
        default=None,
        description="Maximum number of requests that wait in the queue of a replica; if unset, "
        "16. It requires request_limit.",
    )

    @model_validator(mode="after")
    def _queue_needs_a_limit(self) -> Self:
        if self.queue_limit is not None and self.request_limit is None:
            raise problem("queue_limit", "queue_without_request_limit")
        return self


class Planner(Component):
    max_gpus: Positive = Field(
        description="Maximum number of GPUs for all pools of the planner together. It is required "
        "because Dynamo's own default is 8 for any graph."
    )
    config: Opaque = Field(
        default={},
        description="Dynamo's PlannerConfig in its own format. For example, ttft_ms and itl_ms "
        "set the target latencies of the optimization_target sla, which is penstock's default and "
        "needs both.",
    )
    image: Image | None = Field(
        default=None,
        description="Container image; if unset, NVIDIA's dynamo-planner, with the version of "
        "`dynamo`.",
    )
