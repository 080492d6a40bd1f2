"""The table of all rules, in the order of their ids."""

from __future__ import annotations

from penstock.checks import (
    agreement,
    answers,
    autoscaling,
    command_line,
    connectors,
    engine_file,
    engine_limits,
    fabric,
    flag_limits,
    inputs,
    kernels,
    kv_events,
    launch,
    lengths,
    lifecycle,
    manifest,
    memory_fit,
    operator,
    parallel,
    planes,
    pods,
    ranks,
    rollout,
    routing,
    speculation,
    transceiver,
    transfer,
    ucx,
    variables,
    versions,
    volumes,
)
from penstock.checks.rule import Rule

TOPICS = {
    "Files": inputs.RULES,
    "The engine's file": engine_file.RULES + engine_limits.RULES,
    "Lengths": lengths.RULES,
    "Speculation": speculation.RULES,
    "Command lines and variables": command_line.RULES + variables.RULES,
    "Parallelism and kernels": parallel.RULES + ranks.RULES + kernels.RULES + flag_limits.RULES,
    "Memory": memory_fit.RULES,
    "The hand-off of KV": transfer.RULES + transceiver.RULES + agreement.RULES + connectors.RULES,
    "The network": fabric.RULES + ucx.RULES,
    "Routing": routing.RULES + kv_events.RULES + planes.RULES,
    "Answers": answers.RULES,
    "Pods": pods.RULES + lifecycle.RULES + volumes.RULES,
    "The deployment": manifest.RULES + operator.RULES + launch.RULES,
    "Change and scale": rollout.RULES + autoscaling.RULES,
    "Versions": versions.RULES,
}
RULES: tuple[Rule, ...] = tuple(
    sorted((rule for rules in TOPICS.values() for rule in rules), key=lambda rule: rule.id)
)


def by_id(rule: str) -> Rule:
    """The rule of an id; KeyError says which ids there are."""
    for known in RULES:
        if known.id == rule:
            return known
    raise KeyError(f"{rule}: rules are {RULES[0].id} to {RULES[-1].id}")
