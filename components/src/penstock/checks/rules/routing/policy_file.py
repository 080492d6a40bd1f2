"""What the router's policy file (--router-policy-config) says about cached prefixes."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from penstock.serving.deployment import ServingDeployment
from penstock.strict_yaml.loader import load

FLAG, VARIABLE = "--router-policy-config", "DYN_ROUTER_POLICY_CONFIG"
BUILT_IN = "dynamo-default-cost-fn"
STAGES = ("aggregated", "prefill", "decode")


def credits_of_policy(deployment: ServingDeployment) -> tuple[float, ...] | None:
    """The prefix credits that the file's policies use; empty if the flags decide, because there is
    no file or it only has queues. None if that is not known: another file or another policy."""
    setting = deployment.router_setting(FLAG, VARIABLE)
    if setting is None:
        return ()
    document = _document(deployment, str(setting.value))
    selection = document.get("worker_selection", {}) if document is not None else None
    if not isinstance(selection, Mapping):
        return None
    try:
        return tuple(_credits(selection))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None  # not a policy file that the frontend accepts


def _document(deployment: ServingDeployment, path: str) -> Mapping[str, Any] | None:
    for _, launch, _ in deployment.frontends:
        text = launch.files.get(posixpath.normpath(posixpath.join(launch.cwd or "", path)))
        if text is None:
            continue
        try:
            document = load(text)
        except (yaml.YAMLError, ValueError):
            return None
        return document if isinstance(document, Mapping) else None
    return None


def _credits(selection: Mapping[str, Any]) -> Iterator[float]:
    """ValueError for a policy whose parameters are not known."""
    instances = {one["name"]: one for one in selection.get("instances") or ()}
    for name in {selection[stage] for stage in STAGES if stage in selection}:
        if name == "default" and name not in instances:
            continue
        if instances[name]["type"] != BUILT_IN:
            raise ValueError(name)
        credit = (instances[name].get("parameters") or {}).get("overlap_score_credit")
        if credit is not None:
            yield float(credit)
