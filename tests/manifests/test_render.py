"""Rendering: stable text, and errors that lead back to the graph."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphs import GRAPHS
from penstock.cli.main import main
from penstock.errors import ChartError
from penstock.graph.load import load_graph
from penstock.helm import render_templates
from penstock.manifests.render import chart_path, render
from penstock.manifests.source import render_graph

GRAPH: dict[str, Any] = {
    "model": {"id": "a/b"},
    "engine": {"kind": "mocker"},
    "prefill": {},
    "decode": {},
}


def problems(values: dict[str, Any], **options: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(ChartError) as refusal:
        render(values, **{"name": "demo", **options})
    return [(p.place, p.message, p.fix) for p in refusal.value.problems]


def test_config_maps_come_first_in_the_order_of_the_pools_then_the_graph() -> None:
    kinds = [(o["kind"], o["metadata"]["name"]) for o in render(GRAPH, name="demo").objects]
    assert [kind for kind, _ in kinds] == ["ConfigMap", "ConfigMap", "DynamoGraphDeployment"]
    assert [name.rsplit("-", 1)[0] for _, name in kinds[:2]] == ["demo-prefill", "demo-decode"]
    assert kinds[2][1] == "demo"


def test_the_text_is_what_kubectl_reads() -> None:
    rendered = render(GRAPH, name="demo")
    assert tuple(yaml.safe_load_all(rendered.text)) == rendered.objects
    assert rendered.text.count("---\n# Source: penstock/templates/") == len(rendered.objects)
    assert "Next steps:" not in rendered.text


def test_the_values_stay_as_they_are() -> None:
    values = {**GRAPH, "engine": {"kind": "mocker", "config": {"engine": {"block_size": 32}}}}
    before = repr(values)
    render(values, name="demo")
    assert repr(values) == before


def test_equal_values_give_equal_bytes() -> None:
    """Not those of the tests' cache, see tests/support/renders.py."""
    first, two = (
        render_templates(chart_path(), values, name="demo", namespace="default")
        for values in (GRAPH, {key: GRAPH[key] for key in reversed(GRAPH)})
    )
    assert first == two


def test_schema_errors_have_the_places_of_the_graph() -> None:
    values = {
        "engine": {"kind": "mocker", "args": ["a", 1]},
        "model": {},
        "prefill": {"replicas": "2"},
        "decode": {"replicas": 1, "x": 1, "y": 1},
        "router": {"mode": "best"},
    }
    reported = problems(values)
    assert ("model.id", "required, but missing", "Add `id`.") in reported
    assert ("engine.args[1]", "got number, want string", "") in reported
    assert ("prefill.replicas", "got string, want null or integer", "") in reported
    assert ("decode.x", "unknown key", "Remove or correct it.") in reported
    assert ("decode.y", "unknown key", "Remove or correct it.") in reported
    assert any(place == "router.mode" and "'kv'" in message for place, message, _ in reported)
    assert not any("failed" in message for _, message, _ in reported)


def test_problems_of_the_chart_have_place_and_fix() -> None:
    values = {**GRAPH, "kv_transfer": {"backend": "mpi", "buffer_tokens": 64}}
    assert problems(values) == [
        ("kv_transfer.backend", "mocker does not support the KV transfer backend mpi", "Use nixl."),
        (
            "kv_transfer.buffer_tokens",
            "has no effect: mocker has no transfer buffer",
            "Remove `buffer_tokens`.",
        ),
    ]


@pytest.mark.parametrize(
    "broken", ['{{ index .Values "x" "y" 3 }}', '{{ fail "oops" }}', "{{ if }}"]
)
@pytest.mark.parametrize("command", ["render", "check"])
def test_a_template_that_no_graph_can_break_is_a_fault_of_penstock(
    command: str,
    broken: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chart = shutil.copytree(chart_path(), tmp_path / "penstock")
    (chart / "templates" / "broken.yaml").write_text(f"a: 1\nb: {broken}\n")
    monkeypatch.setattr("penstock.manifests.render.chart_path", lambda: chart)
    assert main([command, str(GRAPHS / "quickstart-simulated.yaml")]) == 70
    output = capsys.readouterr()
    assert output.out == ""
    assert "unexpected error, a bug in penstock" in output.err
    assert "penstock/templates/broken.yaml:2" in output.err
    for log in re.findall(r"Details: (\S+)", output.err):
        Path(log).unlink()


@pytest.mark.parametrize("name", ["", "Demo", "a_b", "a" * 54])
def test_a_name_that_helm_refuses_is_refused(name: str) -> None:
    ((place, message, _),) = problems(GRAPH, name=name)
    assert place == "name"
    assert "is not a valid release name" in message


def test_a_file_name_that_the_chart_rejects_is_to_be_renamed(tmp_path: Path) -> None:
    path = tmp_path / "9lives.yaml"
    path.write_text(yaml.safe_dump(GRAPH))
    with pytest.raises(ChartError) as refusal:
        render_graph(load_graph(path))
    (problem,) = refusal.value.problems
    assert problem.file == str(path)
    assert problem.fix.startswith("Rename the file.")


def test_a_missing_chart_is_a_chart_error(tmp_path: Path) -> None:
    with pytest.raises(ChartError, match="no such file"):
        render(GRAPH, name="demo", chart=tmp_path / "none")


def test_importing_the_module_does_not_load_helm() -> None:
    code = "import sys, penstock.manifests.render; sys.exit('helm_python' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
