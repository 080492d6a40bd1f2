"""All rules: by topic, and in the order of their ids."""

from __future__ import annotations

from pathlib import Path

from penstock.checks.rows.load import packaged_rules
from penstock.checks.rule import Rule

FOLDER = Path(__file__).with_name("rules")
TOPICS = {
    topic: packaged_rules(FOLDER / folder / "rules.yaml")
    for topic, folder in {
        "Files": "files",
        "Engine configuration": "engine_config",
        "Sequence lengths": "lengths",
        "Speculative decoding": "speculation",
        "Command-line flags and environment variables": "command_line",
        "Parallelism and kernels": "parallelism",
        "GPU memory": "memory",
        "KV transfer": "kv_transfer",
        "Network": "network",
        "Routing": "routing",
        "Responses and parsers": "responses",
        "Pods": "pods",
        "Deployment": "deployment",
        "Updates and scaling": "scaling",
        "Versions": "versions",
    }.items()
}
RULES: tuple[Rule, ...] = tuple(
    sorted((rule for rules in TOPICS.values() for rule in rules), key=lambda rule: rule.id)
)
_BY_ID = {rule.id: rule for rule in RULES}


def by_id(rule: str) -> Rule:
    """The rule with an id; KeyError names the range of ids."""
    if rule not in _BY_ID:
        raise KeyError(f"{rule}: rules are {RULES[0].id} to {RULES[-1].id}")
    return _BY_ID[rule]
