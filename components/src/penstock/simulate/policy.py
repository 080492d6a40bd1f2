"""The router's policy file (--router-policy-config), for a replay.

The replay reads the queues in it. It does not read `worker_selection`: the parameters of Dynamo's
built-in policy become the settings that the deprecated flags have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from penstock.manifests.deployment import Role
from penstock.strict_yaml.loader import SafeLoader

BUILT_IN = "dynamo-default-cost-fn"
DEFAULT = "default"
STAGES = {Role.WORKER: "aggregated", Role.PREFILL: "prefill", Role.DECODE: "decode"}
QUEUES = ("default_policy_family", "uncached_isl_buckets", "policy_classes", "models")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a replay uses of a policy file."""

    settings: Mapping[str, Any]
    """Parameters of KvRouterConfig."""
    text: str | None = None
    """A policy file with the queues only; None if the file has none."""
    not_simulated: tuple[str, ...] = ()


def policy_of(text: str, roles: Iterable[Role], chosen: Mapping[str, str]) -> Policy:
    """The policy of a graph with workers of these ``roles``; ``chosen``: stage → instance, from the
    flags that override the file. The frontend's parser has accepted the file."""
    document = yaml.load(text, Loader=SafeLoader)  # noqa: S506  a safe loader
    selection = document.get("worker_selection") or {}
    stages = {STAGES[role] for role in roles if role in STAGES}
    names = {chosen.get(stage) or selection.get(stage) or DEFAULT for stage in sorted(stages)}
    instances = {i["name"]: i for i in selection.get("instances") or ()}
    queues = {key: document[key] for key in QUEUES if key in document}
    notes = list(_not_simulated(document, names, instances))
    is_simulated = len(names) == 1 and not notes
    instance = instances.get(next(iter(names), DEFAULT), {}) if is_simulated else {}
    return Policy(
        settings=instance.get("parameters") or {},
        text=yaml.safe_dump(queues) if queues else None,
        not_simulated=tuple(notes),
    )


def _not_simulated(
    document: Mapping[str, Any], names: set[str], instances: Mapping[str, Any]
) -> Iterator[str]:
    kinds = {instances[name]["type"] for name in names if name in instances} - {BUILT_IN}
    for kind in sorted(kinds):
        yield f"worker-selection policy {kind}: using the default policy instead"
    if len(names) > 1 and not kinds:
        yield "a worker-selection policy per stage: using the default policy instead"
    if document.get("request_classifier"):
        yield "request_classifier: requests have no class"
