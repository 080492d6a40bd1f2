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
# (queue_threshold, queue_policy): no queue in the router, and queues with both policies. With
# `wspt`, a lower threshold shortens the wait of most prompts and lengthens that of the longest.
QUEUES = ((None, None), (0.0, None), (0.5, "wspt"), (2.0, "wspt"))
DEFAULT_POLICY = "fcfs"
# Parameters of KvRouterConfig, by the keys of the graph.
PARAMETERS = {"prefill_load_scale": 1.0, "overlap_score_credit": 1.0}
THRESHOLD, POLICY = "router_queue_threshold", "router_queue_policy"
FRACTION = "prefill_busy_threshold_frac"  # the queue threshold in the policy file


@dataclass(frozen=True)
class RouterSettings:
    """Values of the graph's keys in `router`; the defaults are Dynamo's."""

    prefill_load_scale: float = 1.0
    overlap_score_credit: float = 1.0
    queue_threshold: float | None = None
    queue_policy: str | None = None

    @property
    def keys(self) -> Mapping[str, float | str | None]:
        return dict(vars(self))

    @property
    def order(self) -> tuple[float | str, ...]:
        """A sort key: smaller values first, and no queue in the router before one."""
        threshold = self.queue_threshold
        weights = (self.prefill_load_scale, self.overlap_score_credit)
        return (*weights, -1.0 if threshold is None else threshold, self.queue_policy or "")

    @property
    def changes(self) -> Mapping[str, float | str | None]:
        """The keys whose values are not Dynamo's defaults."""
        default = RouterSettings()
        return {k: v for k, v in self.keys.items() if v != getattr(default, k)}

    def __lt__(self, other: RouterSettings) -> bool:
        return self.order < other.order

    def __str__(self) -> str:
        """`prefill_load_scale 4, overlap_score_credit 1, queue_threshold unset`; the policy only
        with a queue."""
        keys = {key: value for key, value in self.keys.items() if key != "queue_policy" or value}
        return ", ".join(f"{key} {shown(value)}" for key, value in keys.items())


DYNAMO_DEFAULT = RouterSettings()


def shown(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or "unset"
    return f"{value:g}"


def grid() -> list[RouterSettings]:
    """All combinations, Dynamo's default first."""
    return [
        RouterSettings(scale, credit, *queue)
        for queue in QUEUES
        for scale in SCALES
        for credit in CREDITS
    ]


def settings_of(deployment: Replayable) -> RouterSettings:
    """The settings with which the deployment's router runs."""
    parameters = deployment.router.settings or {}
    values = {key: float(parameters.get(key, PARAMETERS[key])) for key in PARAMETERS}
    threshold, policy = _queue(parameters)
    return RouterSettings(**values, queue_threshold=threshold, queue_policy=policy)


def with_settings(deployment: Replayable, settings: RouterSettings) -> Replayable:
    """The deployment as it would be rendered with these settings in the graph."""
    parameters = dict(deployment.router.settings or {})
    parameters |= {key: getattr(settings, key) for key in PARAMETERS}
    if (settings.queue_threshold, settings.queue_policy) != _queue(parameters):
        parameters.pop(POLICY_FILE, None)
        parameters[THRESHOLD] = None
        if settings.queue_threshold is not None:
            parameters[POLICY_FILE] = yaml.safe_dump(_queues(settings))
    router = replace(deployment.router, settings=parameters)
    return replace(deployment, router=router)


def _queue(parameters: Mapping[str, Any]) -> tuple[float | None, str | None]:
    """The threshold and the policy; None for the default policy."""
    if (text := parameters.get(POLICY_FILE)) is None:
        queue = parameters.get(THRESHOLD), parameters.get(POLICY)
    else:
        classes = yaml.safe_load(text).get("policy_classes") or ()
        queues = (
            (entry[FRACTION], entry.get("queue_policy")) for entry in classes if FRACTION in entry
        )
        queue = next(queues, (None, None))
    threshold, policy = queue
    if threshold is None:
        return None, None
    return float(threshold), None if policy == DEFAULT_POLICY else policy


def _queues(settings: RouterSettings) -> Mapping[str, Any]:
    """The queues of the policy file as the chart writes them (`_router.tpl`)."""
    return {
        "default_policy_family": "all",
        "uncached_isl_buckets": [{"min_tokens": 0, "bucket": "all"}],
        "policy_classes": [
            {
                "name": "default",
                "policy_family": "all",
                "cache_bucket": "all",
                "queue_policy": settings.queue_policy or DEFAULT_POLICY,
                "quantum": 1,
                FRACTION: settings.queue_threshold,
            }
        ],
    }
