"""One endpoint at several loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.bench import sweep as module
from penstock.bench.aiperf import Endpoint
from penstock.bench.documents import sweep_document
from penstock.bench.measurement import Bench, BenchRequest
from penstock.bench.run import Progress
from penstock.bench.sweep import Level, Sweep, sweep
from penstock.bench.sweep_report import report_of
from penstock.errors import BenchError, Problem
from penstock.graph.slo import Slo
from penstock.workload import find_workload
from tests.bench.measured_runs import BENCH, MEASURED
from tests.reports.read import text_of
from tests.support.outputs import read_output

REQUEST = BenchRequest(
    endpoint=Endpoint(url="http://127.0.0.1:1", model="m"),
    workload=find_workload("short-chat"),
    slo=Slo(ttft_ms=100.0),
    attain=0.95,
    seed=0,
    timeout_s=1.0,
)
SCALES = (1.0, 2.0, 4.0, 8.0)


def found(user_rate: float, output_rate: float, goodput: float | None = 1.0) -> Bench:
    measured = MEASURED.model_copy(
        update={"user_rate": user_rate, "output_rate": output_rate, "goodput": goodput}
    )
    slo = REQUEST.slo if goodput is not None else Slo()
    return replace(BENCH, measurement=measured, slo=slo)


# tokens/s per user and of all users; the SLO is missed at 4 times the load
BY_RATE = {4.0: found(100, 400), 8.0: found(90, 700), 16.0: found(60, 900, 0.5)}


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> dict[float, Bench | BaseException]:
    """What a run at each arrival rate gives."""
    results: dict[float, Bench | BaseException] = dict(BY_RATE)

    def bench(request: BenchRequest, folder: Path, progress: Progress) -> Bench:
        assert folder.is_dir()
        progress("sending requests", 1, 2)
        result = results[request.workload.mean_rate() or 0.0]
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(module, "bench", bench)
    return results


def swept(folder: Path, gpus: int | None = 2) -> Sweep:
    return sweep(REQUEST, SCALES, folder, lambda *_: None, gpus=gpus)


def lines(swept: Sweep) -> list[str]:
    return text_of(report_of(swept)).splitlines()


def by_scale(measured: Sweep) -> Mapping[float, Level]:
    return {level.scale: level for level in measured.levels}


def test_a_sweep_ends_with_the_first_level_that_misses_the_slo(
    tmp_path: Path, results: object
) -> None:
    measured = swept(tmp_path)
    assert list(by_scale(measured)) == [1, 2, 4]
    assert list(measured.unmeasured) == [8]
    assert measured.highest is by_scale(measured)[2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scale-1", "scale-2", "scale-4"]


def test_the_text_has_a_row_for_each_level(tmp_path: Path, results: object) -> None:
    text = lines(swept(tmp_path))
    verdict = "the SLO (TTFT ≤ 100 ms) is met up to scale 2, and missed at 4; not measured: 8"
    assert text[1] == verdict
    assert text[2].split("  ")[-2:] == ["within SLO", "front"]
    rows = [line.split() for line in text[3:6]]
    assert [row[0] for row in rows] == ["1", "2", "4"]
    assert [row[-2:] for row in rows] == [["100.0%", "yes"], ["100.0%", "yes"], ["50.0%", "yes"]]
    assert "350" in rows[1]  # tokens/s/GPU


def test_without_gpus_there_are_no_tokens_per_gpu(tmp_path: Path, results: object) -> None:
    measured = swept(tmp_path, gpus=None)
    assert not any("tokens/s/GPU" in line for line in lines(measured))
    document = read_output("bench", sweep_document(measured).as_json())
    assert {level["tokens_per_second_gpu"] for level in document["levels"]} == {None}


def test_without_an_slo_all_levels_are_measured(
    tmp_path: Path, results: dict[float, Bench | BaseException]
) -> None:
    for rate, (user, total) in {4.0: (9, 1), 8.0: (8, 2), 16.0: (7, 3), 32.0: (6, 4)}.items():
        results[rate] = found(user, total, goodput=None)
    measured = swept(tmp_path)
    assert list(by_scale(measured)) == list(SCALES)
    text = "\n".join(lines(measured))
    assert "within SLO" not in text
    assert "not measured" not in text


def test_the_json_has_all_levels(tmp_path: Path, results: object) -> None:
    document = read_output("bench", sweep_document(swept(tmp_path)).as_json())
    assert document["highest_scale_within_slo"] == 2
    assert document["unmeasured_scales"] == [8]
    assert [level["tokens_per_second_gpu"] for level in document["levels"]] == [200, 350, 450]
    assert [level["meets_slo"] for level in document["levels"]] == [True, True, False]


@pytest.mark.parametrize(
    ("points", "front"),
    [
        ([(100, 400), (90, 700), (60, 900)], [1, 2, 3]),
        ([(100, 400), (90, 400), (80, 900)], [1, 3]),
        ([(100, 400), (100, 500), (80, 300)], [2]),
        ([(100, 400), (100, 400)], [1, 2]),
    ],
)
def test_a_level_that_another_one_beats_is_not_on_the_front(
    points: list[tuple[float, float]], front: list[int]
) -> None:
    levels = [Level(scale=n, bench=found(*point)) for n, point in enumerate(points, start=1)]
    measured = Sweep(levels=levels, unmeasured=(), gpus=None, interrupted="")
    assert [level.scale for level in measured.front] == front


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (BenchError(Problem(place="http://h", message="no request was sent")), "no request"),
    ],
)
def test_a_level_that_fails_keeps_those_before_it(
    tmp_path: Path,
    results: dict[float, Bench | BaseException],
    error: BaseException,
    cause: str,
) -> None:
    results[8.0] = error
    measured = swept(tmp_path)
    assert list(by_scale(measured)) == [1]
    assert cause in measured.interrupted
    assert any(line.startswith("incomplete: ") and cause in line for line in lines(measured))
    verdict = "the SLO (TTFT ≤ 100 ms) is met up to scale 1"
    assert any(line.startswith(verdict) for line in lines(measured))


def test_a_first_level_that_fails_is_an_error(
    tmp_path: Path, results: dict[float, Bench | BaseException]
) -> None:
    results[4.0] = BenchError(Problem(message="no request was sent"))
    with pytest.raises(BenchError, match="no request was sent"):
        swept(tmp_path)


def test_a_level_whose_folder_cannot_be_created_ends_the_sweep(
    tmp_path: Path, results: object
) -> None:
    (tmp_path / "scale-2").mkdir()
    measured = swept(tmp_path)
    assert list(by_scale(measured)) == [1]
    assert "scale-2" in measured.interrupted
    assert "cannot be created" in measured.interrupted
