"""Who owns the replicas of a component, where the graph does not say their number itself."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from penstock.strict_yaml.base import Items, Opaque, Positive, Spec, invalid

Owner = Literal["hpa", "keda", "planner", "external"]
Signal = Literal["cpu", "kv_usage", "prompt_tokens", "requests", "ttft_s", "itl_s"]

# What each owner reads beside `owner`.
WORDS_OF_OWNER: dict[Owner, tuple[str, ...]] = {
    "hpa": ("min", "max", "signal", "target", "metrics", "behavior"),
    "keda": ("min", "max", "signal", "target", "triggers", "behavior"),
    "planner": ("min",),
    "external": (),
}
# Signals that are easily written in another unit: the largest value that makes sense.
MOST: dict[Signal, float] = {"kv_usage": 1, "ttft_s": 60, "itl_s": 60}
UNITS: dict[Signal, str] = {
    "kv_usage": "a share, such as 0.8",
    "ttft_s": "seconds, such as 0.5",
    "itl_s": "seconds, such as 0.02",
}
OWN_WORDS: dict[Owner, str] = {"hpa": "metrics", "keda": "triggers"}


class Autoscaling(Spec):
    owner: Owner = Field(
        description="hpa: a HorizontalPodAutoscaler of the chart; keda: a ScaledObject of the "
        "chart; planner: Dynamo's planner, see planner; external: somebody else's, whose "
        "scaleTargetRef is the graph's scaling adapter (with platform plain the Deployment, or the "
        "LeaderWorkerSet) "
        "RELEASE-COMPONENT.",
    )
    min: Positive = Field(default=1, description="Fewest replicas.")
    max: Annotated[int, Field(ge=1, le=10000)] | None = Field(
        default=None,
        description="Most replicas; hpa and keda need it. The planner has planner.max_gpus.",
    )
    signal: Signal | None = Field(
        default=None,
        description="What the number follows. cpu: percent of resources.cpu; with keda, from "
        "Prometheus: kv_usage: share of the KV cache in use, 0 to 1; prompt_tokens: tokens of "
        "prompts that wait or are read, a replica; requests: requests in flight, a replica; "
        "ttft_s, itl_s: 90th percentile of the graph in seconds.",
    )
    target: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="Value of the signal to hold."
    )
    metrics: Items[Opaque] = Field(
        default=(), description="Instead of signal, in the HPA's own words (autoscaling/v2)."
    )
    triggers: Items[Opaque] = Field(
        default=(), description="Instead of signal, in KEDA's own words."
    )
    behavior: Opaque = Field(
        default={},
        description="The HPA's scaling behavior; unset: Kubernetes' own for the frontend; for "
        "pools at most twice as many in five minutes (a model takes minutes to load), and one "
        "fewer at a time, each after its drain.",
    )

    @model_validator(mode="after")
    def _each_owner_has_its_words(self) -> Self:
        words = WORDS_OF_OWNER[self.owner]
        for name in sorted(self.model_fields_set - {"owner", *words}):
            if getattr(self, name) not in (None, (), {}):
                fix = "set planner.max_gpus" if name == "max" and self.owner == "planner" else ""
                raise invalid(name, f"has no effect with owner {self.owner}", fix or "remove it")
        if self.max is not None and self.max < self.min:
            raise invalid("max", f"{self.max} is less than min, {self.min}", "raise max")
        if "max" in words:
            self._signal_is_whole()
        return self

    def _signal_is_whole(self) -> None:
        own = OWN_WORDS[self.owner]
        if self.max is None:
            raise invalid("max", f"missing: owner {self.owner} needs it", "set the most replicas")
        if self.signal is not None and getattr(self, own):
            raise invalid(own, "stands beside signal", "keep one of them")
        if self.signal is None and not getattr(self, own):
            raise invalid("signal", "missing: nothing says when to scale", f"set it, or {own}")
        if (self.signal is None) != (self.target is None):
            what = "missing" if self.target is None else "has no effect without signal"
            raise invalid("target", what, "set signal and target, or neither")
        most = MOST.get(self.signal) if self.signal else None
        if self.signal and most and self.target is not None and self.target > most:
            raise invalid(
                "target",
                f"{self.target:g}, and {self.signal} goes from 0 to {most:g}",
                f"write it as {UNITS[self.signal]}",
            )
        if self.owner == "hpa" and self.signal not in ("cpu", None):
            raise invalid(
                "signal",
                f"an HPA does not read {self.signal} by itself",
                "use owner: keda, or metrics of an adapter of yours",
            )
