"""The autoscaling of a component, instead of a fixed number of replicas."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from penstock.graph.messages import KEYS_OF_OWNER, OWN_KEY_OF_OWNER, TARGET_LIMITS, problem
from penstock.strict_yaml.base import Items, Opaque, Positive, Spec
from penstock.strict_yaml.limits import MOST_REPLICAS
from penstock.text.numbers import limit_text

Owner = Literal["hpa", "keda", "planner", "external"]
Signal = Literal["cpu", "kv_usage", "prompt_tokens", "requests", "ttft_s", "itl_s"]


class Autoscaling(Spec):
    owner: Owner = Field(
        description=(
            "What sets the number of replicas. hpa: a HorizontalPodAutoscaler created by the "
            "chart. keda: a ScaledObject created by the chart. planner: Dynamo's planner. "
            "external: an autoscaler that you create. Its scaleTargetRef must name the scaling "
            "adapter RELEASE-COMPONENT. With platform plain, it must name the Deployment or "
            "LeaderWorkerSet RELEASE-COMPONENT."
        ),
    )
    min: Positive = Field(default=1, description="Minimum number of replicas.")
    max: Annotated[int, Field(ge=1, le=MOST_REPLICAS)] | None = Field(
        default=None,
        description=(
            "Maximum number of replicas, required with hpa and keda, and not permitted otherwise. "
            "The planner has planner.max_gpus instead."
        ),
    )
    signal: Signal | None = Field(
        default=None,
        description=(
            "Metric to scale on. cpu: percentage of resources.cpu. The other signals come from "
            "Prometheus and need keda: kv_usage (fraction of the KV cache in use, 0 to 1), "
            "prompt_tokens (prompt tokens queued or in prefill, per replica), requests (requests "
            "in flight, per replica), ttft_s and itl_s (90th percentile over the graph, in "
            "seconds)."
        ),
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
        description=(
            "Scaling behavior of the HPA, or of the HPA that KEDA creates. If unset, a frontend "
            "has Kubernetes' default, and a pool scales more slowly, because loading a model takes "
            "minutes. In five minutes, the replicas of a pool at most double. In drain_timeout_s + "
            "60 s, at most one replica is removed (in 30 minutes, if that is shorter)."
        ),
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
        own = OWN_KEY_OF_OWNER[self.owner]
        if self.max is None:
            raise problem("max", "max_missing", owner=self.owner)
        if self.signal is not None and getattr(self, own):
            raise problem(own, "signal_with_own_key", name=own)
        if self.signal is None and not getattr(self, own):
            raise problem("signal", "signal_missing", name=own)
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
