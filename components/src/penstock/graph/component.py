"""The components of a graph: shared fields, frontend, worker pools and planner."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from penstock.graph.autoscaling import Autoscaling
from penstock.graph.messages import POD_KEYS_OF_THE_CHART, problem
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
        description=(
            "Environment variables of this component, which override `env` of the graph and, in "
            "pools, engine.env."
        ),
    )
    args: Items[str] = Field(
        default=(),
        description="Additional command-line arguments of this component.",
    )
    pod: Opaque = Field(
        default={},
        description=(
            "Kubernetes PodSpec fragment merged over the pod of this component (tolerations, "
            "nodeSelector, affinity, volumes, …). It must not set containers, restartPolicy or "
            "terminationGracePeriodSeconds."
        ),
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
        description=(
            "Tokenizer backend of the frontend. If the frontend cannot load it, the frontend "
            "stops and does not use a slower one."
        ),
    )
    migration_limit: Count = Field(
        default=3,
        description=(
            "Maximum number of times that a request moves to another worker after its worker has "
            "failed. With 0 (Dynamo's default), such a request fails."
        ),
    )
    overload_status: Literal[429, 503, 529] | None = Field(
        default=None,
        description=(
            "HTTP status of a request that all workers reject because they are overloaded. If "
            "unset, the status is 429 in graphs with request_limit or router.active_*_threshold. "
            "In other graphs, it is Dynamo's default of 529. OpenAI's clients retry all three "
            "statuses. Many proxies retry 503 at once, which adds load."
        ),
    )

    @model_validator(mode="after")
    def _planner_scales_pools(self) -> Self:
        if owner_of(self) == "planner":
            raise problem("autoscaling.owner", "planner_on_frontend")
        return self


class WorkerPool(Scaled):
    gpus: Count | None = Field(
        default=None,
        description=(
            "GPUs of one replica on each of its nodes; if unset, 1, or 0 with mocker, with "
            "llamacpp or with engine.device cpu."
        ),
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
        description=(
            "Maximum number of requests that a replica runs in its engine at once; if unset, no "
            "limit. Further requests wait in the queue of the replica (queue_limit). If this queue "
            "is full, the frontend tries other replicas. If all replicas reject the request, the "
            "frontend returns frontend.overload_status."
        ),
    )
    queue_limit: Annotated[int, Field(ge=2)] | None = Field(
        default=None,
        description=(
            "Maximum number of requests that wait in the queue of a replica; if unset, 16. It "
            "requires request_limit."
        ),
    )

    @model_validator(mode="after")
    def _queue_needs_a_limit(self) -> Self:
        if self.queue_limit is not None and self.request_limit is None:
            raise problem("queue_limit", "queue_without_request_limit")
        return self


class Planner(Component):
    max_gpus: Positive = Field(
        description=(
            "Maximum number of GPUs for all pools of the planner together. It is required because "
            "Dynamo's own default is 8 for any graph."
        )
    )
    config: Opaque = Field(
        default={},
        description=(
            "Dynamo's PlannerConfig in its own format. For example, ttft_ms and itl_ms set the "
            "target latencies of the optimization_target sla, which is penstock's default and "
            "needs both."
        ),
    )
    image: Image | None = Field(
        default=None,
        description=(
            "Container image; if unset, NVIDIA's dynamo-planner, with the version of `dynamo`."
        ),
    )
