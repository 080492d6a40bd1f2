"""All rules: those of penstock by topic, and in the order of their ids; and those of a user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
        "Reported failures": "reported",
    }.items()
}
RULES: tuple[Rule, ...] = tuple(
    sorted((rule for rules in TOPICS.values() for rule in rules), key=lambda rule: rule.id)
)
_BY_ID = {rule.id: rule for rule in RULES}


def all_rules() -> tuple[Rule, ...]:
    """The rules of penstock, and those of `added_rules`."""
    return tuple(_BY_ID.values())


@contextmanager
def added_rules(rules: Sequence[Rule]) -> Iterator[None]:
    """Apply a user's rules, too, as long as the context is open."""
    _BY_ID.update({rule.id: rule for rule in rules})
    try:
        yield
    finally:
        for rule in rules:
            del _BY_ID[rule.id]


def by_id(rule: str) -> Rule:
    """The rule with an id; KeyError names the range of ids."""
    if rule not in _BY_ID:
        raise KeyError(f"{rule}: rules are {RULES[0].id} to {RULES[-1].id}")
    return _BY_ID[rule]


def members_of(group: str) -> tuple[Rule, ...]:
    """The rules of a group, in the order of their ids; none for an id that is no group."""
    return tuple(rule for rule in all_rules() if rule.group == group)
