"""The published schemas of the outputs; tests of each command validate its outputs by them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from penstock.bench.compare import Comparison, check_limits, limit_of
from penstock.bench.documents import comparison_document, run_document
from penstock.bench.measurement import Failures, Measurement, Prediction
from penstock.graph.slo import Slo
from penstock.output_schemas import COMMANDS, output_schema
from penstock.output_schemas.generate import generated_files
from penstock.simulate.metrics import ReplayMetrics
from penstock.workload import find_workload
from tests.bench.measured_runs import BENCH, LATENCIES, MEASURED
from tests.bench.test_limits import comparison
from tests.support.command_line import ROOT, penstock
from tests.support.outputs import read_output

INPUTS = {
    "Arrival",
    "Bursts",
    "Calibration",
    "Conversation",
    "Ladder",
    "Lengths",
    "NamedWorkload",
    "Ramp",
    "Slo",
}
INPUTS |= {"SystemPrompts", "Trace", "Workload"}


def objects(command: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and schema of each object with fixed keys."""
    schema = output_schema(command)
    parts = {"": schema, **schema.get("$defs", {})}
    yield from ((name, part) for name, part in parts.items() if "properties" in part)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_schema_is_valid_and_published(command: str) -> None:
    Draft202012Validator.check_schema(output_schema(command))
    name = f"docs/schemas/{command}.json"
    is_fresh = (ROOT / name).read_text("utf-8") == generated_files()[name]
    assert is_fresh, "run `make generate`"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_object_is_closed_and_every_key_is_described(command: str) -> None:
    parts = list(objects(command))
    assert parts
    for name, part in parts:
        assert part["additionalProperties"] is False, name
        for key, prop in part["properties"].items():
            description = prop.get("description", "")
            assert description.endswith("."), (name, key, description)
            # Only a key that may be missing may have no value without a statement about it.
            if "null" in json.dumps(prop.get("anyOf", "")) and name not in INPUTS:
                assert "null" in description, (name, key, description)


@pytest.mark.parametrize("command", COMMANDS)
def test_all_keys_of_results_are_required(command: str) -> None:
    for name, part in objects(command):
        if name not in INPUTS | {"Figures", "Intervals"}:
            assert set(part.get("required", ())) == set(part["properties"]), name


def test_every_metric_of_a_replay_is_published() -> None:
    figures = output_schema("simulate")["$defs"]["Figures"]
    assert set(figures["properties"]) == set(ReplayMetrics.__dataclass_fields__) - {"steadiness"}


def test_every_metric_of_a_run_is_published() -> None:
    run = output_schema("bench")["$defs"]["RunDocument"]
    assert set(Measurement.model_fields) <= set(run["properties"])


RUNS = {
    "without an SLO": BENCH,
    "with an SLO": replace(
        BENCH,
        slo=Slo(ttft_ms=1.0, e2e_ms=2.0),
        measurement=MEASURED.model_copy(update={"goodput": 0.9}),
    ),
    "interrupted": replace(BENCH, interrupted="interrupted"),
    "failed": replace(
        BENCH,
        measurement=MEASURED.model_copy(
            update={
                "failures": Failures(sent=3, reasons={"HTTP 500": 2, "no connection": 1}),
                "counted": 0,
                "ttft_ms": None,
                "itl_ms": None,
                "chunk_gap_ms": None,
                "e2e_ms": None,
                "user_rate": None,
                "steadiness": None,
                "late_p99_ms": None,
            }
        ),
    ),
    "predicted": replace(
        BENCH,
        prediction=Prediction(
            graph="g", requests=3, too_long=1, ttft_ms=LATENCIES, itl_ms=None, e2e_ms=LATENCIES
        ),
    ),
    **{name: replace(BENCH, workload=find_workload(name)) for name in ("agentic", "document")},
}


@pytest.mark.parametrize("name", RUNS)
def test_the_output_of_each_kind_of_run_has_the_schema(name: str) -> None:
    document = read_output("bench", run_document(RUNS[name]).as_json())
    assert document["kind"] == "run"


@pytest.mark.parametrize("compared", [comparison(), comparison(failed=5), comparison(changes=())])
def test_the_output_of_each_kind_of_comparison_has_the_schema(compared: Comparison) -> None:
    checked = check_limits(compared, [limit_of("ttft_p90 > +5%"), limit_of("e2e_mean > 1%")])
    document = read_output("bench", comparison_document(compared, checked).as_json())
    assert document["kind"] == "comparison"
    assert len(document["limits"]) == 2
    assert document["workload"]["requests"] is None


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"kind": "sweep"},
        {"kind": None},
        {"unknown": 1},
        {"ttft_ms": {"p50": 1.0, "p90": 2.0}},
        {"ttft_ms": {"p50": 1.0, "p90": 2.0, "p99": "3"}},
        {"failures": {"sent": 1.5, "reasons": {}}},
        {"slo": {"ttft": 1}},
        {"workload": {}},
        {"steadiness": {"is_steady": True}},
        {"output_rate": None},
    ],
)
def test_a_document_with_another_form_is_rejected(change: dict[str, Any]) -> None:
    document = read_output("bench", run_document(BENCH).as_json())
    with pytest.raises(ValidationError):
        read_output("bench", json.dumps(document | change))


@pytest.mark.parametrize("key", ["schema_version", "kind", "ttft_ms", "interrupted"])
def test_a_document_without_a_key_is_rejected(key: str) -> None:
    document = json.loads(run_document(BENCH).as_json())
    del document[key]
    with pytest.raises(ValidationError):
        read_output("bench", json.dumps(document))


@pytest.mark.program
def test_the_command_line_prints_a_schema() -> None:
    done = penstock("tools", "schema", "--command", "verify")
    assert json.loads(done.stdout) == output_schema("verify")
    wrong = penstock("tools", "schema", "--command", "render")
    assert wrong.returncode == 2
    assert "'render' is not one of bench, capture, drill, plan" in wrong.stderr
