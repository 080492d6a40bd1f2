"""The rules with promtool: they parse, and each alert fires only when it should."""

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

from tests.support.monitoring.files import (
    MONITORING,
    ROOT,
    RULE_FILES,
    alerts,
    promtool,
    rule_groups,
    rules,
)

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
