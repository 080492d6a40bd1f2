"""All rules: by topic, and in the order of their ids."""

from __future__ import annotations

from penstock.checks.rule import Rule, rules_of
from penstock.checks.rules import (
    command_line,
    deployment,
    engine_config,
    files,
    kv_transfer,
    lengths,
    memory,
    network,
    parallelism,
    pods,
    responses,
    routing,
    scaling,
    speculation,
    versions,
)

TOPICS = {
    "Files": rules_of(files.MODULES),
    "Engine configuration": rules_of(engine_config.MODULES),
    "Sequence lengths": rules_of(lengths.MODULES),
    "Speculative decoding": rules_of(speculation.MODULES),
    "Command-line flags and environment variables": rules_of(command_line.MODULES),
    "Parallelism and kernels": rules_of(parallelism.MODULES),
    "GPU memory": rules_of(memory.MODULES),
    "KV transfer": rules_of(kv_transfer.MODULES),
    "Network": rules_of(network.MODULES),
    "Routing": rules_of(routing.MODULES),
    "Responses and parsers": rules_of(responses.MODULES),
    "Pods": rules_of(pods.MODULES),
    "Deployment": rules_of(deployment.MODULES),
    "Updates and scaling": rules_of(scaling.MODULES),
    "Versions": rules_of(versions.MODULES),
}
RULES: tuple[Rule, ...] = tuple(
    sorted((rule for rules in TOPICS.values() for rule in rules), key=lambda rule: rule.id)
)


def by_id(rule: str) -> Rule:
    """The rule with an id; KeyError names the range of ids."""
    for known in RULES:
        if known.id == rule:
            return known
    raise KeyError(f"{rule}: rules are {RULES[0].id} to {RULES[-1].id}")
