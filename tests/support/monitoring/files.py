"""The rules, dashboards and expressions of k8s/monitoring for tests."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from penstock.manifests.render import render
from tests.support.needs import program

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "k8s" / "monitoring"
RULE_FILES = ("objectives.yaml", "alerts.yaml", "alerts-kubernetes.yaml")
DASHBOARDS = ("operators.json", "pools.json")
# Values of Grafana's variables; a parser accepts any.
GRAFANA = {"$__rate_interval": "5m", "$__range": "1h", "$namespace": ".*", "$graph": ".*"}
POOL = "prefill"


def rule_groups(*names: str) -> list[dict[str, Any]]:
    """The groups of these PrometheusRules, in order."""
    documents = [yaml.safe_load((MONITORING / name).read_text()) for name in names or RULE_FILES]
    return [group for document in documents for group in document["spec"]["groups"]]


def rules() -> list[dict[str, Any]]:
    return [rule for group in rule_groups() for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def panels(dashboard: str) -> list[dict[str, Any]]:
    """Every panel with queries, in collapsed rows too."""
    found = []
    for panel in json.loads((MONITORING / "dashboards" / dashboard).read_text())["panels"]:
        found += [panel, *panel.get("panels", [])]
    return [panel for panel in found if panel.get("targets")]


def queries(dashboard: str, pool: str = POOL) -> dict[str, str]:
    """PromQL by panel title and letter, with values for the template variables."""
    found = {}
    for panel in panels(dashboard):
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in {**GRAFANA, "$pool": pool}.items():
                expression = expression.replace(name, value)
            found[f"{panel['title']} {target['refId']}"] = expression
    return found


def metric_names(expression: str) -> set[str]:
    """Metric names in PromQL: not label matchers, label lists, strings, functions or keywords."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    text = re.sub(r"\{[^}]*\}", "", text)
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    text = re.sub(r"\[[^\]]*\]", "", text)
    names = re.findall(r"(?<![\w:.])([a-zA-Z_:][\w:]*)(?!\w|\s*\()", text)
    return {n for n in names if n not in {"and", "or", "unless", "bool", "offset"}}


# Signals of the chart's autoscaling; the mocker has no kv_usage.
SIGNALS = {
    "frontend": ("requests", "ttft_s", "itl_s"),
    "prefill": ("prompt_tokens", "requests", "ttft_s"),
    "decode": ("requests", "ttft_s", "itl_s"),
}


def query_of_signal(
    component: str, signal: str, release: str = "quickstart", namespace: str = "ml"
) -> str:
    """The query of KEDA's trigger for the signal."""
    autoscaling = {"owner": "keda", "max": 4, "signal": signal, "target": 1}
    values: dict[str, Any] = {
        "model": {"id": "a/b"},
        "engine": {"kind": "vllm"},
        "prefill": {},
        "decode": {},
        "cluster": {"monitoring": {"pod_monitors": True}},
    }
    values[component] = {"autoscaling": autoscaling}
    objects = render(values, name=release, namespace=namespace).objects
    (scaled,) = (o for o in objects if o["kind"] == "ScaledObject")
    return str(scaled["spec"]["triggers"][0]["metadata"]["query"])


def signals() -> list[str]:
    return [query_of_signal(name, signal) for name in SIGNALS for signal in SIGNALS[name]]


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [program("promtool"), *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True)
