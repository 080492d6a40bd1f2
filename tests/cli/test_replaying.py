"""`--scale`, `--rate` and the deprecated flags of `simulate` and `plan`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.cli.replaying import add_slo, add_workload, load_argument, requested_workload
from penstock.errors import UsageError

LENGTHS = "input: 100\noutput: 10\n"


def parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="penstock plan", allow_abbrev=False)
    add_workload(parser)
    add_slo(parser)
    return parser.parse_args(argv)


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    return tmp_path / "w.yaml"


@pytest.mark.parametrize(
    "arrival",
    [
        "{poisson: 4}",
        "{constant: 4}",
        "{ramp: {start: 2, end: 6, seconds: 10}}",
        "{bursts: {rate: 2, peak: 10, every: 60, seconds: 15}}",
        "{poisson: 1}\nconversation: {turns: 4}",
    ],
)
def test_rate_sets_the_mean_arrival_rate(workload: Path, arrival: str) -> None:
    workload.write_text(f"{LENGTHS}arrival: {arrival}\n")
    loaded = requested_workload(parsed("--workload", str(workload), "--rate", "8"))
    assert loaded.mean_rate() == pytest.approx(8)


def write_trace(workload: Path, arrivals: Iterable[int]) -> None:
    workload.write_text("trace: {format: mooncake, file: t.jsonl}\n")
    rows = (f'{{"timestamp": {at}, "input_length": 9, "output_length": 9}}' for at in arrivals)
    (workload.parent / "t.jsonl").write_text("\n".join(rows))


@pytest.mark.parametrize("step", [1, -1])
def test_rate_of_a_trace_counts_its_recorded_requests(workload: Path, step: int) -> None:
    write_trace(workload, list(range(0, 5000, 1000))[::step])
    loaded = requested_workload(parsed("--workload", str(workload), "--rate", "2.5"))
    assert loaded.mean_rate() == pytest.approx(2.5)
    assert loaded.requests(0)[-1].at_ms == 2000


def test_rate_lasts_as_long_as_the_workload() -> None:
    loaded = requested_workload(parsed("--workload", "short-chat", "--rate", "16"))
    assert loaded.workload.requests == 2000


@pytest.mark.parametrize(
    ("requested", "times", "argument"),
    [
        (["--concurrency", "40"], 0.16, "--concurrency 6"),
        (["--concurrency", "1"], 0.16, "--concurrency 1"),
        (["--rate", "20"], 0.25, "--rate 5"),
        (["--rate", "4000000"], 0.5, "--rate 2000000"),
        (["--scale", "3"], 0.5, "--scale 1.5"),
        ([], 0.32, "--scale 0.32"),
    ],
)
def test_another_load_is_written_in_the_form_of_the_command_line(
    requested: list[str], times: float, argument: str
) -> None:
    args = parsed("--workload", "short-chat", *requested)
    loaded = requested_workload(args)
    assert load_argument(args, loaded, times) == argument
    assert parsed("--workload", "short-chat", *argument.split())


def test_rate_is_refused_for_concurrency(workload: Path) -> None:
    workload.write_text(f"{LENGTHS}arrival: {{concurrency: 4}}\n")
    with pytest.raises(UsageError, match="has no arrival rate") as caught:
        requested_workload(parsed("--workload", str(workload), "--rate", "8"))
    assert caught.value.problems[0].fix


@pytest.mark.parametrize("flag", ["--rate", "--scale"])
def test_no_rate_of_a_trace_whose_requests_arrive_at_once(workload: Path, flag: str) -> None:
    write_trace(workload, [1000] * 3)
    with pytest.raises(UsageError) as caught:
        requested_workload(parsed("--workload", str(workload), flag, "2"))
    (problem,) = caught.value.problems
    assert (problem.place, problem.fix) == (flag, f"Remove {flag}.")
    assert "t.jsonl arrive at once, so there is no rate" in problem.message
    assert requested_workload(parsed("--workload", str(workload))).is_at_once


@pytest.mark.parametrize("flag", ["--rate", "--scale"])
def test_less_than_a_request_per_day_is_refused(flag: str) -> None:
    with pytest.raises(UsageError, match="less than one request per day") as caught:
        requested_workload(parsed("--workload", "short-chat", flag, "1e-6"))
    assert caught.value.problems[0].place == flag
    requested_workload(parsed("--workload", "short-chat", flag, "1e-4"))


def test_rate_and_scale_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--workload", "document", "--scale", "2", "--rate", "8")
    assert "not allowed with" in capsys.readouterr().err


def test_load_and_gpu_hour_still_work_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    args = parsed("--workload", "document", "--load", "2", "--gpu-hour", "3.5")
    assert (args.scale, args.gpu_hour_price) == (2.0, 3.5)
    assert capsys.readouterr().err == "".join(
        f"penstock plan: warning: {old} is now {new}; the old name is accepted for one release\n"
        for old, new in (("--load", "--scale"), ("--gpu-hour", "--gpu-hour-price"))
    )


def test_a_deprecated_flag_and_its_new_name_exclude_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed("--workload", "document", "--gpu-hour", "1", "--gpu-hour-price", "2")
    assert ended.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err


def test_without_deprecated_flags_there_is_no_warning(capsys: pytest.CaptureFixture[str]) -> None:
    args = parsed("--workload", "document")
    assert (args.scale, args.rate, args.gpu_hour_price) == (1.0, None, None)
    assert capsys.readouterr().err == ""
