"""Faults from outside during requests: what hangs or vanishes comes back, and requests go on.

The faults are those of benchmarks/recovery.py, which also shows what happened before penstock
checked the health of what it runs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import recovery
from penstock.drill.graph_process import GraphProcess
from tests.support.local_graphs import assert_nothing_left
from tests.support.repeats import without_lost_stream


def measured(
    case: str | recovery.Case, folder: Path, *, variant: str = "plain", seconds: float
) -> dict[str, Any]:
    if isinstance(case, str):
        case = recovery.cases()[case]
    case = replace(case, seconds=seconds)
    result = recovery.measure(case, folder / "run", variant=variant, recovery_s=4)
    assert result["exit_code"] == 0
    assert_nothing_left(folder / "run")
    assert set(result["states"]) == {"ready"}, result["messages"]
    assert result["started_after_the_fault"] > 0
    return result


def test_after_all_processes_were_suspended_requests_continue(tmp_path: Path) -> None:
    result = measured("suspend-all", tmp_path, seconds=15)
    # A frontend can resume before the workers refresh their records. Until then it has no model:
    # 404 for 0.1 s in one of four suspensions.
    assert set(result["errors"]) <= {"HTTP 404: b''"}
    assert result["last_failure_after_the_start_s"] < result["seconds_after_the_start"] - 1
    assert any("registered it again" in line for line in result["messages"])


def test_a_removed_discovery_folder_is_restored(tmp_path: Path) -> None:
    # The only frontend does not see the new folder and restarts; later requests succeed.
    def remove(graph: GraphProcess, seconds: float) -> None:
        (frontend,) = graph.pids("frontend")
        recovery.cases()["remove-discovery"].inject(graph, seconds)
        graph.wait_for(lambda s: frontend not in {r["pid"] for r in s["replicas"]})
        graph.wait_for(lambda s: all(r["state"] == "ready" for r in s["replicas"]))

    case = recovery.Case(name="remove-discovery", inject=remove, seconds=0)
    result = measured(case, tmp_path, seconds=0)
    assert result["last_failure_after_the_start_s"] < result["seconds_after_the_start"] - 1
    # If a check ran while the folder was being removed, a worker's records return in two parts.
    restored = [line.split()[0] for line in result["messages"] if "registered it again" in line]
    assert set(restored) == {"prefill.0", "prefill.1", "decode.0", "decode.1"}, restored


def test_a_decode_worker_that_hangs_is_replaced_and_its_streams_move(tmp_path: Path) -> None:
    result = measured("stop-decode", tmp_path, seconds=14)
    assert (result["failed"], result["errors"]) == (0, {})
    assert any("decode.0 stopped responding" in line for line in result["messages"])


@pytest.mark.nightly
@pytest.mark.needs("envoy")
def test_each_other_process_that_hangs_is_replaced(tmp_path: Path) -> None:
    roles = [role for role in recovery.ROLES if role != "decode"]

    def stop_each(graph: GraphProcess, seconds: float) -> None:
        for role in roles:
            recovery.cases()[f"stop-{role}"].inject(graph, seconds)
            graph.wait_for(lambda s: all(r["state"] == "ready" for r in s["replicas"]))

    case = recovery.Case(name="stop-each", inject=stop_each, seconds=12)
    result = measured(case, tmp_path, variant="envoy", seconds=12)
    for name in ("frontend.0", "prefill.0", "event-broker", "endpoint.0"):
        assert any(f"{name} stopped responding" in line for line in result["messages"]), name
    # Streams through the stopped frontend or Envoy are lost.
    assert all("incomplete" in error for error in result["errors"]), result["errors"]
    assert result["failed"] <= 2 * recovery.CONCURRENCY


@pytest.mark.timeout(900)  # of up to three runs
def test_five_kills_of_a_decode_worker_lose_nothing(tmp_path: Path) -> None:
    def run(number: int) -> dict[str, Any]:
        folder = tmp_path / str(number)
        folder.mkdir()
        return measured("kill-decode", folder, seconds=10)

    result = without_lost_stream(run, lambda result: result["failed"])
    assert (result["failed"], result["errors"]) == (0, {})


@pytest.mark.nightly
@pytest.mark.needs("envoy")
def test_behind_envoy_a_killed_frontend_loses_only_its_own_streams(tmp_path: Path) -> None:
    result = measured("kill-frontend", tmp_path, variant="envoy", seconds=10)
    # What the frontend was streaming is lost; no request is refused or rejected.
    assert all("incomplete" in error for error in result["errors"]), result["errors"]
    assert result["failed"] <= 5 * recovery.CONCURRENCY


@pytest.mark.nightly
@pytest.mark.needs("servers")
def test_with_etcd_a_suspended_graph_comes_back(tmp_path: Path) -> None:
    result = measured("suspend-all", tmp_path, variant="etcd", seconds=15)
    assert result["last_failure_after_the_start_s"] < result["seconds_after_the_start"] - 1
