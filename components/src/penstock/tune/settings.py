"""Settings of the KV router that `tune` compares, and how a replay gets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from penstock.simulate.model import Replayable
from penstock.simulate.router import POLICY_FILE

SCALES = (1.0, 4.0, 8.0)  # prefill_load_scale
CREDITS = (1.0, 2.0, 4.0)  # overlap_score_credit
THRESHOLDS = (None, 0.0)  # queue_threshold
# Parameters of KvRouterConfig, by the keys of the graph.
PARAMETERS = {"prefill_load_scale": 1.0, "overlap_score_credit": 1.0}
THRESHOLD = "router_queue_threshold"
FRACTION = "prefill_busy_threshold_frac"  # the queue threshold in the policy file


@dataclass(frozen=True)
class RouterSettings:
    """Values of the graph's keys in `router`; the defaults are Dynamo's."""

    prefill_load_scale: float = 1.0
    overlap_score_credit: float = 1.0
    queue_threshold: float | None = None

    @property
    def keys(self) -> Mapping[str, float | None]:
        return dict(vars(self))

    @property
    def order(self) -> tuple[float, ...]:
        """A sort key: smaller values first, and no queue in the router before one."""
        threshold = self.queue_threshold
        own = (self.prefill_load_scale, self.overlap_score_credit)
        return (*own, -1.0 if threshold is None else threshold)

    @property
    def changes(self) -> Mapping[str, float | None]:
        """The keys whose values are not Dynamo's defaults."""
        default = RouterSettings()
        return {k: v for k, v in self.keys.items() if v != getattr(default, k)}

    def __lt__(self, other: RouterSettings) -> bool:
        return self.order < other.order

    def __str__(self) -> str:
        """`prefill_load_scale 4, overlap_score_credit 1, queue_threshold unset`."""
        return ", ".join(f"{key} {shown(value)}" for key, value in self.keys.items())


DYNAMO_DEFAULT = RouterSettings()


def shown(value: float | None) -> str:
    return "unset" if value is None else f"{value:g}"


def grid() -> list[RouterSettings]:
    """All combinations, Dynamo's default first."""
    return [
        RouterSettings(scale, credit, threshold)
        for threshold in THRESHOLDS
        for scale in SCALES
        for credit in CREDITS
    ]


def settings_of(deployment: Replayable) -> RouterSettings:
    """Those with which the deployment's router runs."""
    parameters = deployment.router.settings or {}
    values = {key: float(parameters.get(key, PARAMETERS[key])) for key in PARAMETERS}
    return RouterSettings(**values, queue_threshold=_threshold(parameters))


def with_settings(deployment: Replayable, settings: RouterSettings) -> Replayable:
    """The deployment as it would be rendered with these settings in the graph."""
    parameters = dict(deployment.router.settings or {})
    parameters |= {key: getattr(settings, key) for key in PARAMETERS}
    if settings.queue_threshold != _threshold(parameters):
        parameters.pop(POLICY_FILE, None)
        parameters[THRESHOLD] = None
        if settings.queue_threshold is not None:
            parameters[POLICY_FILE] = yaml.safe_dump(_queues(settings.queue_threshold))
    router = replace(deployment.router, settings=parameters)
    return replace(deployment, router=router)


def _threshold(parameters: Mapping[str, Any]) -> float | None:
    if (policy := parameters.get(POLICY_FILE)) is None:
        value = parameters.get(THRESHOLD)
        return None if value is None else float(value)
    classes = yaml.safe_load(policy).get("policy_classes") or ()
    return next((float(one[FRACTION]) for one in classes if FRACTION in one), None)


def _queues(threshold: float) -> Mapping[str, Any]:
    """The queues of the policy file as the chart writes them (`_router.tpl`)."""
    return {
        "default_policy_family": "all",
        "uncached_isl_buckets": [{"min_tokens": 0, "bucket": "all"}],
        "policy_classes": [
            {
                "name": "default",
                "policy_family": "all",
                "cache_bucket": "all",
                "queue_policy": "fcfs",
                "quantum": 1,
                FRACTION: threshold,
            }
        ],
    }
