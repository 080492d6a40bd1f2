"""The dashboards are up to date, valid, and sum neither over pools nor over graphs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.monitoring.files import DASHBOARDS, MONITORING, panels, promtool, queries


def test_the_dashboards_are_up_to_date() -> None:
    argv = [sys.executable, str(MONITORING / "dashboards.py"), "--check"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("prometheus")
@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_parses(name: str, tmp_path: Path) -> None:
    rules = [{"record": "x", "expr": expression} for expression in queries(name).values()]
    assert len(rules) > 20
    for number, rule in enumerate(rules):
        rule["labels"] = {"number": str(number)}
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"groups": [{"name": "x", "rules": rules}]}))
    done = promtool("check", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_data_source_can_be_selected(name: str) -> None:
    text = (MONITORING / "dashboards" / name).read_text()
    document = json.loads(text)
    variables = {v["name"]: v for v in document["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == (
        "datasource",
        "prometheus",
    )
    sources = [p["datasource"] for p in panels(name)]
    sources += [t["datasource"] for p in panels(name) for t in p["targets"]]
    sources += [v["datasource"] for v in variables.values() if v["type"] == "query"]
    assert {source["uid"] for source in sources} == {"${datasource}"}
    assert "__inputs" not in document


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_filters_by_the_selected_graphs(name: str) -> None:
    for panel in panels(name):
        for target in panel["targets"]:
            assert "$graph" in target["expr"], panel["title"]
            assert "$namespace" in target["expr"], panel["title"]


def test_a_single_pool_is_selected_and_every_query_filters_by_it() -> None:
    document = json.loads((MONITORING / "dashboards" / "pools.json").read_text())
    variables = {v["name"]: v for v in document["templating"]["list"]}
    for name in ("graph", "pool"):
        assert not variables[name]["multi"], name
        assert not variables[name]["includeAll"], name
    for panel in panels("pools.json"):
        for target in panel["targets"]:
            assert "$pool" in target["expr"], panel["title"]


def test_no_query_of_the_graphs_dashboard_sums_over_components() -> None:
    """Worker metrics are grouped by component; the others are the frontend's."""
    for panel in panels("operators.json"):
        for target in panel["targets"]:
            if "_component_requests" in target["expr"] or "gpu_cache" in target["expr"]:
                assert "app_kubernetes_io_component" in target["expr"], panel["title"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_panel_has_a_unit_a_description_and_its_own_position(name: str) -> None:
    places = set()
    for panel in panels(name):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        place = (panel["gridPos"]["x"], panel["gridPos"]["y"])
        assert place not in places, panel["title"]
        places.add(place)
