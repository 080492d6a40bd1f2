"""Messages of the conditions that both the graph model and the chart check.

The model's validators use `problem`; `files/requirements.yaml`, generated from these tables, gives
the chart's templates the same messages and the values that the conditions depend on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic_core import PydanticCustomError

from penstock.strict_yaml.base import invalid


@dataclass(frozen=True)
class Message:
    """What is wrong and how to fix it; `{name}` is replaced by an argument."""

    message: str
    fix: str

    def filled(self, **arguments: object) -> tuple[str, str]:
        """Message and fix with the arguments in them."""
        return self.message.format(**arguments), self.fix.format(**arguments)


MESSAGES: Mapping[str, Message] = {
    # Renamed keys
    "deprecated_key": Message(
        "deprecated key, removed in the next release", "Rename it to `{new}`."
    ),
    "key_given_twice": Message(
        "deprecated key, set together with its new name `{new}`", "Remove `{old}`."
    ),
    "mocker_version": Message(
        "the mocker of Dynamo {dynamo} does not read the configuration that the chart writes",
        "Set `dynamo` to 1.6.1 or later, or remove it.",
    ),
    "llamacpp_version": Message(
        "llama.cpp's worker runs with penstock's own Dynamo, version {own}",
        "Remove `dynamo`, or use another engine.",
    ),
    "image_version": Message(
        "{image} has Dynamo {release}, but `dynamo` is {dynamo}",
        "Set the image to `{proposed}`, or set `dynamo` to the version in the image.",
    ),
    # Pools
    "no_pool": Message(
        "the graph has no worker pool", "Add `prefill` and `decode`, or add `worker`."
    ),
    "pool_missing": Message(
        "missing: the graph has `{pool}` but not `{missing}`",
        "Add `{missing}`, or use a single pool called `worker`.",
    ),
    "worker_with_other_pool": Message(
        "cannot be combined with `{pool}`", "Keep `worker`, or keep `prefill` and `decode`."
    ),
    "queue_without_request_limit": Message(
        "has no effect without `request_limit`", "Set `request_limit`, or remove `queue_limit`."
    ),
    "request_limit_with_nats": Message(
        "has no effect with `infrastructure.requests: nats`",
        "Set `infrastructure.requests: tcp`, or remove `request_limit`.",
    ),
    "set_by_chart": Message("is set by the chart", "{fix}"),
    "variable_with_tracing": Message(
        "cannot be combined with `tracing`, from which the chart derives the export of traces",
        "Remove the variable, or remove `tracing` and set all variables of the export.",
    ),
    # Speculative decoding
    "speculation_with_mocker": Message(
        "the mocker does not support speculative decoding",
        "Remove `speculation`, or set `decode_speedup_ratio` in `engine.config.engine`.",
    ),
    "speculation_with_llamacpp": Message(
        "penstock's llama.cpp worker does not support speculative decoding", "Remove `speculation`."
    ),
    "llamacpp_image": Message(
        "is unset, and NVIDIA publishes no image of llama.cpp, which is an engine for this machine "
        "(`penstock up`)",
        "Install the graph of `penstock init --example quickstart-simulated`, whose images are "
        "NVIDIA's, or set `engine.image` to an image of your own with penstock and xllamacpp.",
    ),
    "draft_model_missing": Message(
        "missing: method {method} needs a draft model",
        "Set a draft model, such as `nvidia/gpt-oss-120b-Eagle3-v3`.",
    ),
    "draft_model_unused": Message(
        "method {method} does not use a draft model", "Remove `draft_model`."
    ),
    # Router
    "kv_mode_only": Message(
        "has no effect with `router.mode: {mode}`", "Set `router.mode: kv`, or remove `{name}`."
    ),
    "queue_policy_without_queue": Message(
        "has no effect without `queue_threshold`",
        "Set `queue_threshold`, or remove `queue_policy`.",
    ),
    # Autoscaling
    "replicas_with_autoscaling": Message(
        "is {replicas}, but `autoscaling` sets the number of replicas",
        "Remove `replicas` or `autoscaling`.",
    ),
    "planner_on_frontend": Message(
        "the planner scales worker pools only", "Set `owner` to hpa, keda or external."
    ),
    "no_effect_with_owner": Message("has no effect with `owner: {owner}`", "Remove `{name}`."),
    "max_with_planner": Message(
        "has no effect with `owner: planner`", "Set `planner.max_gpus` instead."
    ),
    "max_missing": Message(
        "missing: `owner: {owner}` needs an upper limit", "Set `max` to the most replicas."
    ),
    "max_below_min": Message("is {max}, less than `min` ({min})", "Raise `max` to at least {min}."),
    "signal_with_own_key": Message(
        "cannot be combined with `signal`", "Remove `signal` or `{name}`."
    ),
    "signal_missing": Message(
        "missing: the autoscaler has nothing to scale on", "Set `signal`, or set `{name}`."
    ),
    "target_missing": Message(
        "missing: `signal` needs a target", "Set both `signal` and `target`, or neither."
    ),
    "target_without_signal": Message(
        "has no effect without `signal`", "Set both `signal` and `target`, or neither."
    ),
    "target_too_large": Message(
        "{target} is too large: {signal} ranges from 0 to {largest}", "{fix}"
    ),
    "hpa_signal": Message(
        "an HPA cannot read {signal}",
        "Use `owner: keda`, or set `metrics` to what your metrics adapter provides.",
    ),
    # Planner
    "planner_missing": Message(
        "missing: `{pool}.autoscaling.owner` is planner", "Add `planner` with `max_gpus`."
    ),
    "planner_on_plain": Message(
        "the planner needs the Dynamo operator, but `platform` is plain",
        "Use the owner hpa or keda instead, or set `platform: dynamo`.",
    ),
}

# Keys of a PodSpec that the chart sets, with the fix.
POD_KEYS_OF_THE_CHART: Mapping[str, str] = {
    "containers": "Use `env`, `args` and `resources` instead.",
    "terminationGracePeriodSeconds": "Set `drain_timeout_s` of the graph instead.",
    "restartPolicy": "Remove `restartPolicy`.",
}

# Keys of `autoscaling` that each owner reads, besides `owner`.
KEYS_OF_OWNER: Mapping[str, tuple[str, ...]] = {
    "hpa": ("min", "max", "signal", "target", "metrics", "behavior"),
    "keda": ("min", "max", "signal", "target", "triggers", "behavior"),
    "planner": ("min",),
    "external": (),
}
# The key by which an owner takes its own configuration instead of `signal`.
OWN_KEY_OF_OWNER: Mapping[str, str] = {"hpa": "metrics", "keda": "triggers"}


@dataclass(frozen=True)
class TargetLimit:
    """The largest sensible target of a signal that is easily given in another unit."""

    largest: int
    fix: str


TARGET_LIMITS: Mapping[str, TargetLimit] = {
    "kv_usage": TargetLimit(1, "Write it as a fraction, such as 0.8."),
    "ttft_s": TargetLimit(60, "Write it in seconds, such as 0.5."),
    "itl_s": TargetLimit(60, "Write it in seconds, such as 0.02."),
}


def problem(place: str, message: str, **arguments: object) -> PydanticCustomError:
    """The error for a message of `MESSAGES`; ``place`` is relative to the validated object."""
    return invalid(place, *MESSAGES[message].filled(**arguments))
