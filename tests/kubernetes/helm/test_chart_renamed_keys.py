"""Renamed keys with plain Helm, which never runs the Python loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import helm_python as helm
import pytest
import yaml

from penstock.errors import ChartError
from penstock.manifests.render import chart_path, render
from tests.support.charts import graph_values

OLD: dict[str, Any] = {"hardware": {"gpu_hour": 2.5}, "checks": {"silence": {"PS307": "x"}}}
NEW: dict[str, Any] = {"hardware": {"gpu_hour_price": 2.5}, "checks": {"suppress": {"PS307": "x"}}}


def notes(values: dict[str, object]) -> str:
    with helm.Chart.load(chart_path()) as loaded:
        return loaded.render(values, name="demo", namespace="ns")["penstock/templates/NOTES.txt"]


def test_the_old_keys_are_accepted_and_give_the_same_manifests() -> None:
    values = graph_values("trtllm")
    assert render({**values, **OLD}, name="demo") == render({**values, **NEW}, name="demo")


def test_the_notes_warn_of_each_old_key() -> None:
    text = notes({**graph_values(), **OLD})
    assert (
        "  - hardware.gpu_hour: deprecated key, removed in the next release. "
        "Rename it to `hardware.gpu_hour_price`.\n"
    ) in text
    assert (
        "  - checks.silence: deprecated key, removed in the next release. "
        "Rename it to `checks.suppress`.\n"
    ) in text
    assert "deprecated" not in notes({**graph_values(), **NEW})


def test_an_old_key_that_is_null_is_not_given() -> None:
    values = {**graph_values(), "hardware": {"gpu_hour": None, "gpu_hour_price": 2}}
    assert "deprecated" not in notes(values)


def test_both_keys_together_are_refused() -> None:
    values = {
        **graph_values(),
        "hardware": {"gpu_hour": 2, "gpu_hour_price": 2},
        "checks": {"silence": {"PS307": "x"}, "suppress": {"PS308": "y"}},
    }
    with pytest.raises(ChartError) as refusal:
        render(values, name="demo")
    assert [f"{p.place}: {p.message}. Fix: {p.fix}" for p in refusal.value.problems] == [
        "checks.silence: deprecated key, set together with its new name `checks.suppress`. "
        "Fix: Remove `checks.silence`.",
        "hardware.gpu_hour: deprecated key, set together with its new name "
        "`hardware.gpu_hour_price`. Fix: Remove `hardware.gpu_hour`.",
    ]


def test_a_wrong_value_of_an_old_key_is_refused_by_the_schema() -> None:
    with pytest.raises(ChartError, match=r"hardware\.gpu_hour: .*exclusiveMinimum|> 0|got -1"):
        render({**graph_values(), "hardware": {"gpu_hour": -1}}, name="demo")


def test_every_template_reads_a_renamed_key_under_its_new_name(bare_chart: Path) -> None:
    """The next rename is one line, also of a key that many templates read."""
    renamed = yaml.safe_load((bare_chart / "files/renamed-keys.yaml").read_text())
    renamed.append({"old": "drain_s", "new": "drain_timeout_s", "default": 180})
    renamed.append({"old": "frontend.http_port", "new": "frontend.port", "default": 8000})
    renamed.append({"old": "model.cache_claim", "new": "model.cache.pvc", "default": None})
    (bare_chart / "files/renamed-keys.yaml").write_text(yaml.safe_dump(renamed))
    plain = {"platform": "plain", "decode": {"nodes": 2, "gpus": 8}, "frontend": {"replicas": 2}}
    base = graph_values("vllm", **plain)
    old = {
        **base,
        "drain_s": 60,
        "frontend": {"replicas": 2, "http_port": 9000},
        "model": {**base["model"], "cache_claim": "models"},
    }
    new = {
        **base,
        "drain_timeout_s": 60,
        "frontend": {"replicas": 2, "port": 9000},
        "model": {**base["model"], "cache": {"pvc": "models"}},
    }
    assert render(old, name="demo", chart=bare_chart) == render(new, name="demo")


def test_the_packaged_chart_knows_the_old_keys(tmp_path: Path) -> None:
    archive = Path(helm.package(chart_path(), destination=tmp_path))
    values = {**graph_values(), **OLD}
    assert render(values, name="demo", chart=archive) == render(values, name="demo")
