"""The components of a graph: what they share, and what each of them adds."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from penstock.graph.autoscaling import Autoscaling
from penstock.graph.messages import POD_KEYS_OF_THE_CHART, problem
from penstock.strict_yaml.base import (
    Count,
    Env,
    Items,
    Opaque,
    Port,
    Positive,
    Quantity,
    Spec,
    Text,
)


def refuse_pod_keys_of_the_chart(pod: Opaque) -> None:
    """Raise for a key of a PodSpec fragment that the chart sets."""
    for key, fix in POD_KEYS_OF_THE_CHART.items():
        if key in pod:
            raise problem(f"pod.{key}", "set_by_chart", fix=fix)


class Resources(Spec):
    cpu: Quantity | None = Field(default=None, description="CPU request; unset: none.")
    memory: Quantity | None = Field(
        default=None, description="Memory request and limit; unset: none."
    )


class Component(Spec):
    """What the frontend, every pool and the planner share."""

    resources: Resources = Field(default=Resources(), description="CPU and memory of one pod.")
    env: Env = Field(
        default={}, description="Environment of this component; wins over the engine's."
    )
    args: Items[str] = Field(
        default=(), description="Further command-line arguments of this component, as written."
    )
    pod: Opaque = Field(
        default={},
        description="Kubernetes PodSpec fragment merged over this component's pod (tolerations, "
        "nodeSelector, affinity, volumes, …); not containers.",
    )
    annotations: dict[str, str] = Field(default={}, description="Annotations of the pods.")

    @model_validator(mode="after")
    def _containers_are_ours(self) -> Self:
        refuse_pod_keys_of_the_chart(self.pod)
        return self


class Scaled(Component):
    """A component whose replicas somebody owns: the graph, or an autoscaler."""

    replicas: Count | None = Field(
        default=None, description="Number of them; unset: 1, or what autoscaling makes it."
    )
    autoscaling: Autoscaling | None = Field(
        default=None, description="Who sets the number of replicas; unset: replicas does."
    )

    @model_validator(mode="after")
    def _replicas_have_one_owner(self) -> Self:
        if self.autoscaling is not None and self.replicas is not None:
            raise problem("replicas", "replicas_with_autoscaling", replicas=self.replicas)
        return self


def owner_of(component: Scaled) -> str:
    """Who owns its replicas; graph where nobody else does."""
    return component.autoscaling.owner if component.autoscaling else "graph"


class Frontend(Scaled):
    port: Port = Field(default=8000, description="HTTP port of the OpenAI endpoint.")
    image: Text | None = Field(default=None, description="Container image; unset: the engine's.")
    tokenizer: Literal["fastokens", "default", "basetenkenizer"] = Field(
        default="fastokens",
        description="Tokenizer backend; one that cannot load stops the frontend, it never falls "
        "back silently to a slower one.",
    )
    migration_limit: Count = Field(
        default=3,
        description="How often a request may move to another worker when its own dies; 0 loses it "
        "(Dynamo's default).",
    )

    @model_validator(mode="after")
    def _planner_scales_pools(self) -> Self:
        if owner_of(self) == "planner":
            raise problem("autoscaling.owner", "planner_on_frontend")
        return self


class WorkerPool(Scaled):
    gpus: Count | None = Field(
        default=None,
        description="GPUs of one replica on each of its nodes; unset: 1, or 0 with mocker "
        "and on a CPU.",
    )
    nodes: Positive = Field(default=1, description="Nodes that one replica spans.")
    image: Text | None = Field(default=None, description="Container image; unset: the engine's.")
    config: Opaque = Field(
        default={}, description="The engine's own options for this pool, merged over the engine's."
    )
    shared_memory: Quantity | None = Field(
        default=None, description="Size of /dev/shm; unset: the operator's 8Gi."
    )


class Planner(Component):
    max_gpus: Positive = Field(
        description="GPUs that its pools together may take; Dynamo's own default is 8 for any "
        "graph."
    )
    config: Opaque = Field(
        default={},
        description="PlannerConfig in its own words, such as ttft_ms and itl_ms, the latencies "
        "that its optimization_target sla (the default here) holds.",
    )
    image: Text | None = Field(
        default=None, description="Container image; unset: NVIDIA's dynamo-planner, 1.6.1."
    )
