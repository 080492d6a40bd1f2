"""Every rule without versions reports its cases at old tags, and at one that does not exist yet."""

from __future__ import annotations

import re

import pytest
import yaml

from penstock.checks.registry import RULES
from penstock.checks.rule import Rule, reported_by_reader, reported_by_run
from penstock.checks.version_range import OPERATOR
from penstock.manifests.source import sources_of
from penstock.serving.understand import Hints, understand
from tests.checks.all_cases import cases
from tests.checks.support import LOADER, Case, by_rule, check, dump, is_graph
from tests.checks.test_versions import REGISTRY

# Before, between and after the releases that most rules were written from, and a newer one.
TAGS = ("0.9.0", "1.3.0", "1.6.1", "1.9.0")
RUNTIMES = {"trtllm": "tensorrtllm-runtime", "vllm": "vllm-runtime", "sglang": "sglang-runtime"}
# Rules about the tag itself, which other tags do not violate, and why.
ABOUT_THE_TAG = {
    "PS901": "the tag has no version",
    "PS903": "the images of two pools differ",
    "PS904": "the releases of two components differ",
    "PS909": "the tag is a placeholder",
}
NOT_OF_A_DEPLOYMENT = (reported_by_reader, reported_by_run)
OF_EVERY_VERSION = [
    rule
    for rule in RULES
    if (rule.versions.every or rule.versions == OPERATOR)
    and rule.id not in ABOUT_THE_TAG
    and rule.check not in NOT_OF_A_DEPLOYMENT
]


def with_tag(text: str, tag: str) -> str:
    """A file in which all images of Dynamo have the tag; empty if it has none."""
    if not is_graph(text):
        tagged, count = re.subn(rf"({REGISTRY}/[\w-]+):[\w.-]+", rf"\g<1>:{tag}", text)
        return tagged if count else ""
    tree = yaml.load(text, LOADER)
    engine = tree.get("engine") if isinstance(tree, dict) else None
    kind = engine.get("kind") if isinstance(engine, dict) else None
    if kind not in RUNTIMES or "image" in engine or "dynamo" in tree:
        return ""
    tree["engine"]["image"] = f"{REGISTRY}/{RUNTIMES[kind]}:{tag}"
    return dump(tree)


def reported_in_every_version(rule: Rule, case: Case) -> bool:
    """Whether a result has no versions of its own."""
    for source in sources_of(case.bad, "case.yaml", ()):
        found = rule.check(understand(source, Hints(gpu=case.gpu)))
        if any(finding.versions is None or finding.versions.every for finding in found):
            return True
    return False


@pytest.mark.nightly
@pytest.mark.parametrize("rule", by_rule(OF_EVERY_VERSION))
def test_a_rule_of_every_version_reports_its_cases_for_each_image(rule: Rule) -> None:
    for number, case in enumerate(cases().get(rule.id, ())):
        tagged = {tag: with_tag(case.bad, tag) for tag in TAGS}
        if not all(tagged.values()) or not reported_in_every_version(rule, case):
            continue
        found = {tag: check(text, gpu=case.gpu, only=rule.id) for tag, text in tagged.items()}
        reported = {tag: {str(finding.level) for finding in found[tag]} for tag in TAGS}
        assert reported == dict.fromkeys(TAGS, reported["1.6.1"]), f"case {number}"
        assert reported["1.6.1"], f"case {number}"
