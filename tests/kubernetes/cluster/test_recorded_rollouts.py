"""The emulated controllers against recordings of real ones: the same writes, the same pods.

Each recorded scenario is repeated with Helm on the emulated cluster, whose clock is virtual.
Compared are, for each component, the sequence of its states (ready pods and all pods by generation)
that last six seconds or longer, and the last one; the sequence of the states that the graph
reports; the errors of the writes.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.emulated_cluster.api_server import ApiServer
from tests.support.emulated_cluster.operator import Operator
from tests.support.emulated_cluster.player import (
    Player,
    generation_names,
    recorded_machine,
    reported,
)
from tests.support.outside_files import recordings

RECORDED = recordings() / "rollouts"
LASTING_S = 6
CONFLICT = (
    "the recorded operator failed for a moment, because it had changed a component since it read "
    "it; the emulated one runs its controllers one after the other"
)
# Scenarios whose graph reports other states; the pods are the same.
OTHER_REPORTS: Mapping[str, str] = {
    "failing-image-then-edit": CONFLICT,
    "second-edit-in-mid-rollout": CONFLICT,
    "autoscaler-takes-over-handed": "the recorded operator writes every component at each "
    "change of the graph, and reports it as pending until its controller has seen that",
}

pytestmark = pytest.mark.needs("recordings")


def _lasting(rows: list[tuple[int, str]]) -> list[str]:
    """The states that last, with generations called a, b, c in the order in which they appear."""
    names: dict[str, str] = {}
    runs: list[list[Any]] = []
    for second, state in rows:
        for name in generation_names(state):
            names.setdefault(name, "abcdefgh"[len(names)])
        entries = sorted(re.sub(r"^[^=]*", lambda m: names[m[0]], e) for e in state.split(";") if e)
        text = ";".join(entries)
        if not runs or runs[-1][0] != text:
            runs.append([text, second, second])
        runs[-1][2] = second
    lasting = [text for text, first, last in runs if last - first >= LASTING_S]
    lasting += [runs[-1][0]] if runs else []
    return [t for i, t in enumerate(lasting) if i == 0 or lasting[i - 1] != t]


def _recorded_rows(name: str) -> dict[str, list[tuple[int, str]]]:
    rows: dict[str, list[tuple[int, str]]] = {}
    with (RECORDED / f"{name}.csv").open() as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["component"], []).append((int(row["t"]), row["by_generation"]))
    return rows


def _events(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()][1:]


def _recorded_reports(name: str) -> list[tuple[str, ...]]:
    reports: list[tuple[str, ...]] = []
    for event in _events(name):
        if event.get("kind") == "DynamoGraphDeployment" and "status" in event["object"]:
            report = reported([event["object"]])
            if report and (not reports or reports[-1] != report):
                reports.append(report)
    return reports


SCENARIOS = sorted(p.stem for p in RECORDED.glob("*.csv"))


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    with ApiServer() as api:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(api.kubeconfig)
        yield Player(kubeconfig, api, Operator(api, recorded_machine()))


def _play(player: Player, name: str) -> list[str]:
    """Play the scenario; the recorded errors of Helm's writes."""
    actions = [e for e in _events(name) if "action" in e]
    errors = []
    for event, following in zip(actions, [*actions[1:], None], strict=True):
        text = event["action"]
        if "reached" in text:
            player.wait(text, at_most_s=45 if text.startswith("not reached") else 120)
            continue
        took = following["t"] - event["t"] if following else 0.0
        if text.endswith("begins"):  # the write takes effect at its end
            player.advance(took)
            player.play(event)
        else:
            player.play(event)
            if following and "reached" not in following["action"]:
                player.advance(took)
        if text.endswith("ended") and event["error"]:
            errors.append(event["error"])
    return errors


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_rollout(player: Player, name: str) -> None:
    errors = _play(player, name)
    emulated: dict[str, list[tuple[int, str]]] = {}
    for second, component, state in player.rows:
        emulated.setdefault(component, []).append((second, state))
    for component, rows in _recorded_rows(name).items():
        assert _lasting(emulated[component]) == _lasting(rows), component
    assert [_without_places(e) for e in player.errors] == [_without_places(e) for e in errors]
    is_equal = player.reports == _recorded_reports(name)
    assert is_equal == (name not in OTHER_REPORTS), player.reports


def _without_places(error: str) -> str:
    """Without the namespace, and the address of the webhook's service."""
    error = re.sub(r"object \S+/", "object ", error)
    return re.sub(r"https://[^/]+/|dial tcp [^ ]+:[0-9]+", "", error)
