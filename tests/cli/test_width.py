"""What people read fits a terminal of 80 columns."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from msgspec.structs import replace as with_fields
from rich.console import Console

from penstock.cli.main import COMMANDS, SUBCOMMANDS, main
from penstock.drill.report import report_of
from penstock.local.load import GraphLoad, WorkerLoad
from penstock.local.reconcile import ReplicaState
from penstock.local.status_table import overview
from penstock.reports.text import print_report
from penstock.serving.frontend_metrics import FrontendMetrics
from penstock.verify.probes import ProbeRun
from penstock.verify.report import print_results
from penstock.verify.result import failed
from tests.drill.test_report import CUT, TITLE, result
from tests.local.builders import running
from tests.support.command_line import ROOT, penstock

NARROW = 80


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def too_wide(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > NARROW]


@pytest.mark.parametrize("command", ["", *COMMANDS, *SUBCOMMANDS])
def test_the_help_fits(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(NARROW))
    assert too_wide(penstock(*command.split(), "--help").stdout) == []


def test_the_environments_fit_and_wide_prints_one_in_each_line() -> None:
    narrow, wide = penstock("tools", "env").stdout, penstock("tools", "env", "--wide").stdout
    assert too_wide(narrow) == []
    assert len(wide.splitlines()) < len(narrow.splitlines())
    assert narrow.split() == wide.split()


def test_the_questions_of_init_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("\n\n\n\n"))
    done = penstock("init", str(tmp_path / "mine.yaml"))
    assert "  document    long prompts" in done.stdout
    questions = done.stdout.partition(str(tmp_path))[0].replace("]: ", "]: \n")  # the answers
    assert questions.count("]: \n") == 4
    assert too_wide(questions) == []


def test_the_results_of_verify_and_drill_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(NARROW))
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    detail = "prefill: 1 workers, expected 2; decode: 0 workers, expected 1 [x]"
    outcome = failed(detail, "Read the log of a missing worker, or check its pool.")
    print_results([ProbeRun(name="topology", result=outcome, seconds=1.2, required=False)])
    print_report(report_of(TITLE, result(CUT)))
    text = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    words = " ".join(text.split())
    assert f"topology 1.2 s {detail} hint: Read the log" in words
    assert "another replica could have served it" in words
    assert too_wide(text) == []


def test_the_status_of_a_busy_graph_fits() -> None:
    replica = running().replicas[0]
    busy = with_fields(
        replica, name="event-broker.10", state=ReplicaState.UNHEALTHY, pid=4_194_304, restarts=120
    )
    worker = WorkerLoad(running=1024, queued=20_000, request_rate=1234.5, kv_usage=1.0)
    total = FrontendMetrics(
        models={}, requests=123_456_789, ttft_s=12.345, itl_s=0.1, prefix_hit_rate=1.0
    )
    load = GraphLoad(
        interval_s=120, interval=total, total=total, router_queue=9, workers={busy.name: worker}
    )
    state = with_fields(running(), replicas=(busy,))
    output = io.StringIO()
    Console(file=output, width=200).print(overview(state, load))
    assert "event-broker.10" in output.getvalue()
    assert too_wide("\n".join(map(str.rstrip, output.getvalue().splitlines()))) == []


@pytest.mark.parametrize(
    "words",
    ["dynamo_graphs/gpt-oss-120b-h200-disagg.yaml --full", "--explain PS202", "--list-rules"],
)
def test_check_fits_a_terminal_and_a_pipe_gets_whole_lines(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = penstock("check", *words.split()).stdout
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", str(NARROW))
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    assert main(["check", *words.split()]) == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert too_wide(text) == []
    assert text.split() == piped.split()
    assert too_wide(piped) != []
