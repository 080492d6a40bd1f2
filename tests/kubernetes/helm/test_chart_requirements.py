"""Every problem that the chart reports, as a user of plain Helm reads it.

The chart is used without its schema here: the schema refuses part of it before a template runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.errors import ChartError, GraphError
from penstock.graph.load import parse_graph
from penstock.manifests.render import render

MODEL = {"model": {"id": "a/b"}}
MOCKER: dict[str, Any] = {**MODEL, "engine": {"kind": "mocker"}, "prefill": {}, "decode": {}}
TRTLLM: dict[str, Any] = {**MOCKER, "engine": {"kind": "trtllm"}}
VLLM: dict[str, Any] = {**MOCKER, "engine": {"kind": "vllm"}}
SGLANG: dict[str, Any] = {**MOCKER, "engine": {"kind": "sglang"}}
BASES: dict[str, dict[str, Any]] = {
    "no pools": {**MODEL, "engine": {"kind": "mocker"}},
    "mocker": MOCKER,
    "trtllm": TRTLLM,
    "vllm": VLLM,
    "sglang": SGLANG,
    "llamacpp": {**MOCKER, "engine": {"kind": "llamacpp", "image": "own/image:1"}},
}
REFUSALS = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text("utf-8"))
ALIKE = REFUSALS["model_and_chart"]


def place_of(row: dict[str, Any]) -> str:
    return str(row["message"]).split(". Fix")[0]


def values_of(row: dict[str, Any]) -> dict[str, Any]:
    return {**BASES[row["graph"]], **row["set"]}


@pytest.mark.parametrize("row", [*ALIKE, *REFUSALS["chart"]], ids=place_of)
def test_refused(bare_chart: Path, row: dict[str, Any]) -> None:
    with pytest.raises(ChartError) as refusal:
        render(values_of(row), name="demo", chart=bare_chart)
    (problem,) = refusal.value.problems
    assert f"{problem.place}: {problem.message}. Fix: {problem.fix}" == row["message"]
    assert problem.file == "penstock/templates/requirements.yaml"


@pytest.mark.parametrize("row", ALIKE, ids=place_of)
def test_the_model_reports_the_same_message(row: dict[str, Any]) -> None:
    with pytest.raises(GraphError) as refusal:
        parse_graph(yaml.safe_dump(values_of(row)), "graph.yaml")
    messages = [f"{p.place}: {p.message}. Fix: {p.fix}" for p in refusal.value.problems]
    assert row["message"] in messages


PLAIN_NODES: dict[str, Any] = {"platform": "plain", "decode": {"nodes": 2, "gpus": 8}}
NOT_REFUSED: list[dict[str, Any]] = [
    MOCKER,
    TRTLLM,
    VLLM,
    SGLANG,
    {**TRTLLM, **PLAIN_NODES, "cluster": {"ssh_secret": "s"}},
    {**VLLM, **PLAIN_NODES},
    {**SGLANG, **PLAIN_NODES},
    {**VLLM, "engine": {"kind": "vllm", "config": {"pipeline-parallel-size": "1"}}},
    {**TRTLLM, "engine": {"kind": "trtllm", "config": {"kv_cache_config": None}}},
]


@pytest.mark.parametrize("values", NOT_REFUSED)
def test_not_refused(bare_chart: Path, values: dict[str, Any]) -> None:
    assert render(values, name="demo", chart=bare_chart).objects


def test_all_problems_are_reported_at_once(bare_chart: Path) -> None:
    values = {
        **MOCKER,
        "worker": {},
        "kv_transfer": {"backend": "mpi", "buffer_tokens": 5},
        "router": {"mode": "random", "ttl_s": 3},
    }
    with pytest.raises(ChartError) as refusal:
        render(values, name="demo", chart=bare_chart)
    places = [problem.place for problem in refusal.value.problems]
    assert places == ["worker", "kv_transfer.backend", "kv_transfer.buffer_tokens", "router.ttl_s"]


def test_a_release_name_that_makes_names_too_long_is_refused(bare_chart: Path) -> None:
    assert render(MOCKER, name="r" * 44, chart=bare_chart).objects
    with pytest.raises(
        ChartError, match=r"63 is the limit\. Fix: Use a name of at most 44 characters"
    ):
        render(MOCKER, name="r" * 45, chart=bare_chart)


def test_release_names_must_be_shorter_with_engines_on_several_nodes(bare_chart: Path) -> None:
    values = {**VLLM, "platform": "plain", "decode": {"nodes": 2}}
    assert render(values, name="r" * 42, chart=bare_chart).objects
    with pytest.raises(ChartError, match=r"52 is the limit .* Fix: Use a name of at most 42"):
        render(values, name="r" * 43, chart=bare_chart)


@pytest.mark.parametrize("name", ["9lives", "a.b"])
def test_a_release_name_that_is_not_a_service_name_is_refused(bare_chart: Path, name: str) -> None:
    with pytest.raises(ChartError, match=r"Release\.Name: .* is not a valid Service name"):
        render(MOCKER, name=name, chart=bare_chart)
