"""Files of `--csv` and `--llm-d-report`, with a program in place of AIPerf."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from penstock.bench.csv_report import HEADERS
from penstock.bench.llmd_report import MARK
from tests.support.outputs import read_output

pytestmark = pytest.mark.program

REQUESTS = 20
USAGE, INPUT, BENCH = 2, 3, 19


Bench = Callable[..., CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def performance(path: Path) -> Mapping[str, Any]:
    report = yaml.safe_load(path.read_text())
    return dict(report["results"]["request_performance"]["aggregate"])


FILES = ("--csv", "run.csv", "--llm-d-report", "run.yaml")


def test_one_target(tmp_path: Path, bench: Bench) -> None:
    done = bench("succeed", *FILES, "--json", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    document = read_output("bench", done.stdout)
    written = rows(tmp_path / "run.csv")
    assert len(written) == REQUESTS
    assert sum(row["is_counted"] == "true" for row in written) == document["counted"]
    median = performance(tmp_path / "run.yaml")["latency"]["time_to_first_token"]["p50"]
    assert median == document["ttft_ms"]["p50"]


def test_a_sweep(tmp_path: Path, bench: Bench) -> None:
    more = ("--sweep", "1,2", "--gpus", "4", "--ttft", "30ms", "--json", "-q")
    done = bench("succeed", *FILES, *more)
    document = read_output("bench", done.stdout)
    assert [float(row["scale"]) for row in rows(tmp_path / "run.csv")] == [1, 2]
    assert len(document["levels"]) == 2
    reports = [yaml.safe_load((tmp_path / f"run-scale-{n}.yaml").read_text()) for n in (1, 2)]
    assert reports[0]["run"]["eid"] == reports[1]["run"]["eid"]
    assert reports[0]["run"]["uid"] != reports[1]["run"]["uid"]
    stages = [report["scenario"]["load"]["standardized"]["stage"] for report in reports]
    assert stages == [0, 1]
    assert not (tmp_path / "run.yaml").exists()


def test_a_run_that_fails_keeps_the_requests_until_then(tmp_path: Path, bench: Bench) -> None:
    done = bench("fail-in-mid-run", *FILES, "--json", "-q")
    assert done.returncode == BENCH
    document = read_output("bench", done.stdout)
    assert document["interrupted"].startswith("AIPerf failed")
    assert len(rows(tmp_path / "run.csv")) == REQUESTS / 2
    report = yaml.safe_load((tmp_path / "run.yaml").read_text())
    assert "Incomplete: AIPerf failed" in report["run"]["description"]


def test_a_run_without_served_requests(tmp_path: Path, bench: Bench) -> None:
    done = bench("time-out", *FILES, "--ttft", "1s", "--json", "-q")
    assert done.returncode == BENCH
    document = read_output("bench", done.stdout)
    assert (document["counted"], document["ttft_ms"]) == (0, None)
    reasons = {row["failure"] for row in rows(tmp_path / "run.csv")}
    assert reasons == {"no complete response within --request-timeout"}
    written = performance(tmp_path / "run.yaml")
    assert (written["requests"]["failures"], written["latency"]) == (REQUESTS, {})


def test_a_file_of_an_earlier_run_is_replaced_and_no_other(tmp_path: Path, bench: Bench) -> None:
    csv_file, report = tmp_path / "run.csv", tmp_path / "run.yaml"
    for header in HEADERS:
        csv_file.write_text(f"{header}\nold\n")
        report.write_text(f"{MARK}\nold\n")
        assert bench("succeed", *FILES).returncode == 0
        assert "old" not in csv_file.read_text() + report.read_text()
    for path, what in ((csv_file, "a CSV file"), (report, "a Benchmark Report")):
        kept = path.read_text()
        path.write_text("mine")
        done = bench("succeed", *FILES)
        assert done.returncode == INPUT
        expected = f"{path.name}: already exists, and is not {what} of penstock bench. Fix: Name"
        assert expected in done.stderr
        assert path.read_text() == "mine"
        path.write_text(kept)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--csv", "no/run.csv"), USAGE, "--csv: there is no folder no. Fix: Create the folder"),
        (("--csv", "-"), USAGE, "--csv: writes a file, not the standard output. Fix: Name a file."),
        (
            ("--csv", "run", "--llm-d-report", "run"),
            USAGE,
            "--llm-d-report: run is also the file of --csv. Fix: Name another",
        ),
        (
            ("--csv", "run", "--report", "folder/../run"),
            USAGE,
            "is also the file of --report. Fix: Name another",
        ),
        (("--report", "-"), USAGE, "--report: writes a file, not the standard output"),
        ((*FILES, "--sweep", "1,2"), INPUT, "run-scale-2.yaml: already exists"),
    ],
)
def test_a_file_that_cannot_be_written_is_an_error_before_the_run(
    tmp_path: Path, bench: Bench, options: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "run-scale-2.yaml").write_text("mine")
    done = bench("succeed", *options)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr


def test_a_comparison_has_no_benchmark_report(bench: Bench) -> None:
    done = bench("succeed", *FILES, targets=2)
    assert done.returncode == USAGE
    assert "--llm-d-report needs one target. Fix: Name one target, or remove" in done.stderr


def test_an_output_that_cannot_be_written_prevents_no_other(tmp_path: Path, bench: Bench) -> None:
    done = bench("succeed", "--report", "/proc/r.html", "--csv", "run.csv")
    assert done.returncode == INPUT
    assert "/proc/r.html: cannot be written: " in done.stderr
    assert "TTFT" in done.stdout
    assert len((tmp_path / "run.csv").read_text().splitlines()) > 1
