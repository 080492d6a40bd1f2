"""`penstock bench --calibrate`, and `simulate --calibration` with the file that it writes."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from penstock.environments import environments_root
from penstock.simulate.calibration import calibrations_text, load_calibrations
from tests.bench.fake_aiperf import install
from tests.simulate.test_calibration import ENTRY, file_of
from tests.support.command_line import penstock
from tests.support.completions_server import CompletionsServer, Response

pytestmark = [pytest.mark.program, pytest.mark.needs("sim")]

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
GRAPH, OTHER = (
    str(GRAPHS / f"gpt-oss-120b-{name}.yaml") for name in ("h100-latency", "b200-latency")
)
BENCH, USAGE = 19, 2
WORKLOAD = (
    "requests: 50\ninput: {mean: 4000, cv: 0.6, max: 12000}\noutput: {mean: 10, cv: 0.3}\n"
    "arrival: {constant: 1}\n"
)
KNOWN = ENTRY.model_copy(update={"gpu": "h200"})
OLD = ENTRY.model_copy(update={"measured_at": "2025-01-02"})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a workload, a calibration file, and a load generator whose TTFT is
    150 ms plus 0.03 ms for each input token, and whose ITL is 6 ms."""
    sim = environments_root() / "sim"
    install(tmp_path / "environments")
    (tmp_path / "environments" / "sim").symlink_to(sim)
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path / "environments"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_AIPERF", "succeed-by-length")
    (tmp_path / "w.yaml").write_text(WORKLOAD)
    (tmp_path / "c.yaml").write_text(calibrations_text(file_of(KNOWN, OLD).content))
    return tmp_path


def bench(folder: Path, *arguments: str) -> CompletedProcess[str]:
    options = ["--workload", str(folder / "w.yaml"), "--predict", GRAPH]
    options += ["--calibrate", str(folder / "c.yaml")]
    with CompletionsServer(script=lambda _: Response()).running() as server:
        return penstock("bench", server.url, *options, *arguments, folder=folder)


def test_a_run_adds_an_entry_with_which_simulate_predicts(folder: Path) -> None:
    done = bench(folder)
    assert done.returncode == 0, done.stderr
    assert "calibration of gpt-oss-120b, h100, trtllm, from 45 requests" in done.stdout
    assert done.stdout.endswith("c.yaml; replaced the entry of 2025-01-02\n")
    entry, other = load_calibrations(folder / "c.yaml").entries  # by GPU
    assert other == KNOWN
    assert entry.key == ENTRY.key
    assert 0.3 < entry.prefill_speed < 0.45  # 0.011 ms for each token and 7 ms are predicted
    assert 110 < entry.fixed_ttft_ms < 150
    assert abs(entry.errors_after.ttft_p50) < 0.03 < entry.errors_before.ttft_p50
    options = ("--workload", str(folder / "w.yaml"), "--calibration", str(folder / "c.yaml"))
    simulated = penstock("simulate", GRAPH, OTHER, *options, "--seeds", "1", "--json")
    assert simulated.returncode == 0, simulated.stderr
    calibrated, without = json.loads(simulated.stdout)["graphs"]
    assert calibrated["calibration"]["prefill_speed"] == entry.prefill_speed
    assert calibrated["figures"]["itl_p50_ms"]["median"] == pytest.approx(6, rel=0.02)
    assert any("45 requests of w" in each for each in calibrated["assumed"])
    assert without["calibration"] is None
    assert any("step times without calibration" in each for each in without["assumed"])
    alone = penstock("simulate", OTHER, *options, "--seeds", "1")
    assert alone.returncode == USAGE
    assert "c.yaml has no entry for gpt-oss-120b, b200, trtllm; its entries are for" in alone.stderr


def test_a_run_without_factors_still_prints_its_figures(folder: Path) -> None:
    done = bench(folder, "--requests", "20")
    assert done.returncode == BENCH
    assert "measured window" in done.stdout
    assert "18 requests after the warm-up are too few; at least 40 are needed" in done.stderr
    assert load_calibrations(folder / "c.yaml").entries == (KNOWN, OLD)
