"""The router section of a graph: how requests are routed to workers."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from penstock.graph.choices import QueuePolicy, RouterMode
from penstock.graph.messages import problem
from penstock.strict_yaml.base import Count, Positive, Spec

# Keys that only mode kv reads.
KV_ONLY = {
    "kv_events",
    "replica_sync",
    "overlap_score_credit",
    "prefill_load_scale",
    "temperature",
    "ttl_s",
    "conditional_disagg",
    "queue_threshold",
    "queue_policy",
}


class Router(Spec):
    mode: RouterMode = Field(
        default="kv",
        description="How the router selects a worker; kv selects it by cached prefix and load. "
        "Most other fields of this section need kv.",
    )
    kv_events: bool = Field(
        default=True,
        description="Track the KV caches of the workers through their KV events; if false, the "
        "router predicts the caches from the requests.",
    )
    replica_sync: bool = Field(
        default=True,
        description="Share the load state of the routers between frontends. The default is also "
        "true for one frontend, so that adding a second one does not restart the first.",
    )
    overlap_score_credit: Annotated[float, Field(ge=0)] | None = Field(
        default=None,
        description="Weight of cached prefix blocks in the selection of a worker; if unset, "
        "Dynamo's default of 1.0.",
    )
    prefill_load_scale: Annotated[float, Field(ge=0)] | None = Field(
        default=None,
        description="Weight of the prefill load in the selection of a worker; if unset, Dynamo's "
        "default of 1.0.",
    )
    temperature: Annotated[float, Field(ge=0)] | None = Field(
        default=None,
        description="Randomness of the selection of a worker; if unset, Dynamo's default of 0, "
        "which always selects the best worker.",
    )
    ttl_s: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="Time in seconds after which the router forgets a predicted block (kv_events: "
        "false); if unset, Dynamo's default of 120.",
    )
    min_initial_workers: Count | None = Field(
        default=None,
        description="Number of workers that the frontend waits for at its start; if unset, "
        "Dynamo's default of 0.",
    )
    active_decode_blocks_threshold: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="Fraction of its KV blocks above which a worker counts as busy; if unset, it "
        "never does. If all workers are busy, requests get frontend.overload_status.",
    )
    active_prefill_tokens_threshold: Positive | None = Field(
        default=None,
        description="Number of queued prompt tokens above which a worker counts as busy; if "
        "unset, it never does. If all workers are busy, requests get frontend.overload_status.",
    )
    queue_threshold: Annotated[float, Field(ge=0)] | None = Field(
        default=None,
        description="Load of a worker above which the router sends it no requests: its active "
        "prompt tokens divided by its max_num_batched_tokens. If all workers are above this load, "
        "requests wait in the router. The header x-dynamo-request-strict-priority determines "
        "their order. If unset, requests wait in the engines.",
    )
    queue_policy: QueuePolicy | None = Field(
        default=None,
        description="Order of requests with the same priority that wait in the router "
        "(queue_threshold): fcfs by arrival, wspt by the number of prompt tokens that are not "
        "cached, fewest first. With wspt, long prompts can wait long under overload. If unset, "
        "fcfs.",
    )
    conditional_disagg: bool | None = Field(
        default=None,
        description="Send short or cached prompts directly to decode workers, without the prefill "
        "pool (experimental, needs kv_events); if unset, false.",
    )

    @model_validator(mode="after")
    def _policy_needs_a_queue(self) -> Self:
        if self.queue_policy is not None and self.queue_threshold is None:
            raise problem("queue_policy", "queue_policy_without_queue")
        return self

    @model_validator(mode="after")
    def _tuning_needs_kv_mode(self) -> Self:
        if self.mode == "kv":
            return self
        for name in sorted(self.model_fields_set & KV_ONLY):
            if getattr(self, name) is not None:
                raise problem(name, "kv_mode_only", mode=self.mode, name=name)
        return self
