"""Numbers for people: significant digits, and no exponents anywhere in the output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.graph.slo import Slo
from penstock.text.numbers import count_of, limit_text, plain_number, significant

PACKAGE = Path(__file__).parents[2] / "components" / "src" / "penstock"
# Shares of at most 100 %, constants, and the values of a chart's data.
OF_SMALL_VALUES = re.compile(
    r"attain \* 100|self\.most \* 100|float\(f|\{(\w+\.)?[A-Z_]+( [*/] \d+)?:g\}"
)
# Other values that users cannot make large or tiny, and arguments of other programs.
BOUNDED = {
    "bench/aiperf.py": "run.duration_s / endpoint.speed run.timeout_s / endpoint.speed",
    "bench/methods/agentperf.py": "timeout_s",
    "bench/report.py": "speed",
    "bench/methods/report.py": "result.phase_s",
    "bench/shadow/client.py": "self._timeout_s",
    "capture/nats_source.py": "seconds",
    "checks/rules/kv_transfer/rules.yaml": "timeout / 1000",
    "checks/rules/parallelism/rules.yaml": "columns / worker.tp width / ranks",
    "checks/rules/routing/rules.yaml": "number / 100",
    "cli/replaying.py": "default_ms / 1000",
    "cluster/api.py": "seconds",
    "engines/dry_run/process.py": "limit_s",
    "engines/parsers.py": "time_limit_s",
    "graph/explain.py": "above most",
    "local/detach.py": "limit_s",
    "memory/budget.py": "inputs.fraction fraction",
    "memory/remedy.py": "percent / 100",
    "plan/no_plan.py": "-(-ms * 10 // 1) / 10",
    "plan/request.py": "confidence",
    "simulate/replayable.py": "rate",
    "simulate/timing.py": "rate",
    "text/numbers.py": "value",
    "tune/settings.py": "value",
    "twin/twin.py": "speed speed / 2",
}


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1034.2, 3, "1,030"),
        (1_036_000.0, 3, "1,040,000"),
        (999.6, 3, "1,000"),
        (123.4, 3, "123"),
        (0.01234, 3, "0.0123"),
        (0.00001234, 3, "0.0000123"),
        (-2500.0, 2, "-2,500"),
        (123.4, 2, "120"),
        (0.0, 3, "0"),
        (12.0, 3, "12"),
        (float("inf"), 3, "inf"),
        (1e-13, 3, "0"),
    ],
)
def test_significant_digits_without_an_exponent(value: float, digits: int, text: str) -> None:
    assert significant(value, digits) == text


def test_no_other_code_formats_with_exponents() -> None:
    lines = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r":[+,]?\.\dg\}", line) and not OF_SMALL_VALUES.search(line)
    ]
    assert lines == [], "use penstock.text.numbers"


def test_only_bounded_values_are_formatted_without_a_number_of_digits() -> None:
    formatted: dict[str, set[str]] = {}
    for path in (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("rules.yaml")):
        text = OF_SMALL_VALUES.sub("", path.read_text())
        for value in re.findall(r"\{([^{}]+):[+,]?g\}", text):
            formatted.setdefault(str(path.relative_to(PACKAGE)), set()).add(value)
    unknown = {
        (name, value)
        for name, values in formatted.items()
        for value in values
        if value not in BOUNDED.get(name, "")
    }
    assert unknown == set(), "use penstock.text.numbers, or add it to BOUNDED"
    assert formatted.keys() == BOUNDED.keys()


@pytest.mark.parametrize(
    ("value", "text"),
    [(500.0, "500"), (0.5, "0.5"), (16.95, "16.95"), (999_999.0, "999999"),
     (1_000_000.0, "1,000,000"), (2_500_000.0, "2,500,000"), (0.00001, "0.00001")],
)  # fmt: skip
def test_a_limit_has_the_digits_that_were_written_and_no_exponent(value: float, text: str) -> None:
    assert limit_text(value) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(500.0, 15, "500"), (1_000_000.0, 6, "1000000"), (1_234_567.5, 15, "1234567.5"),
     (0.00001, 15, "0.00001"), (1e18, 15, "1000000000000000000"), (2.0 / 3, 6, "0.666667"),
     (-1e-5, 6, "-0.00001"), (float("inf"), 15, "inf")],
)  # fmt: skip
def test_a_number_in_a_file_has_no_exponent_and_no_separator(
    value: float, digits: int, text: str
) -> None:
    assert plain_number(value, digits) == text


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(0, "replay", "0 replays"), (1, "replay", "1 replay"), (1200, "request", "1,200 requests"),
     ("1", "CPU core", "1 CPU core"), ("0.5", "CPU core", "0.5 CPU cores")],
)  # fmt: skip
def test_one_of_something_is_singular(count: int | str, noun: str, text: str) -> None:
    assert count_of(count, noun) == text


def test_an_slo_of_20_minutes_has_no_exponent() -> None:
    assert str(Slo(e2e_ms=1_200_000)) == "end to end ≤ 1,200,000 ms"
