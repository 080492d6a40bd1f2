"""What a user writes into engine.config, args and env reaches the process unchanged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ChartError
from tests.support.charts import Chart, graph_values

LIMIT = 2**53 - 1
NASTY = [
    "", " ", "yes", "no", "y", "on", "null", "~", "true", "1e3", "0o17", "08", "0x1F", "1_000",
    "12:30:45", "2026-01-01", ".inf", "=", "<<", "a: b", "#x", "- a", "? a", "{a}", "[a]", "&a",
    "*a", "!a", "|", ">", "%a", "@a", "`a`", "'", '"', "\\", "a\nb", "a\r\nb", "\ttab", "trailing ",
    "{{ x }}", "{{ fail }}", "$(X)", "${X}", "äöü 東京 😀", "\u2028", "\ufeff", "\x7f", "\u0085",
    "a\\n",
]  # fmt: skip

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-LIMIT, LIMIT)
    | st.floats(-1e15, 1e15, allow_nan=False)
    | st.text(max_size=20)
    | st.sampled_from(NASTY)
)
configs = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=12) | st.sampled_from(NASTY), inner, max_size=4)
    ),
    max_leaves=25,
)


@pytest.mark.slow
@given(st.dictionaries(st.text(min_size=1, max_size=12), configs, max_size=5))
def test_any_engine_config_comes_back_equal(value: dict[str, Any]) -> None:
    config = Chart().config(
        graph_values("trtllm", engine={"kind": "trtllm", "config": {"x": value}}), "decode"
    )
    assert config["x"] == value
    assert same_types(config["x"], value)


def trtllm(config: dict[str, Any]) -> dict[str, Any]:
    return graph_values("trtllm", engine={"kind": "trtllm", "config": config})


def same_types(read: object, value: object) -> bool:
    """JSON has one number: 1.0 comes back as 1, but never a number as a string or a bool."""
    if isinstance(value, dict) and isinstance(read, dict):
        return all(same_types(read[key], inner) for key, inner in value.items())
    if isinstance(value, list) and isinstance(read, list):
        return all(map(same_types, read, value))
    numbers = (int, float)
    return type(read) is type(value) or (type(read) in numbers and type(value) in numbers)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1048576, "1048576"),
        (131072, "131072"),
        (0.85, "0.85"),
        (1e-05, "0.00001"),
        (1e-07, "1.0e-7"),
        (1.5e-07, "1.5e-7"),
        (-3, "-3"),
        (True, "true"),
        (None, "null"),
        ("0.85", '"0.85"'),
        ([[1, 2], []], "\n  - - 1\n    - 2\n  - []"),
    ],
)
def test_a_value_is_written_as(chart: Chart, value: object, text: str) -> None:
    values = trtllm({"x": value})
    separator = "" if text.startswith("\n") else " "
    assert chart.config_text(values, "decode").endswith(f"\nx:{separator}{text}")


@pytest.mark.parametrize("number", [2**53, -(2**53), 10**21])
def test_a_number_that_helm_would_change_is_refused(chart: Chart, number: int) -> None:
    values = trtllm({"x": number})
    with pytest.raises(ChartError, match=r"beyond 2\^53"):
        chart.render(values)


@pytest.mark.parametrize("text", NASTY)
def test_special_strings_reach_args_and_env_unchanged(chart: Chart, text: str) -> None:
    values = graph_values(engine={"kind": "mocker", "env": {"X": text}, "args": ["--x", text]})
    assert chart.env(values, "decode")["X"] == text
    assert chart.args(values, "decode")[-2:] == ["--x", text]


def test_strings_of_args_and_env_are_quoted_in_the_text(chart: Chart) -> None:
    for line in chart.render(graph_values(env={"A": "plain"})).text.splitlines():
        key, _, value = line.strip().partition(": ")
        assert key != "value" or value.startswith('"'), line


def test_a_config_of_the_mocker_is_json(chart: Chart) -> None:
    import json

    config = {"engine": {"num_gpu_blocks": 1048576, "speedup_ratio": 0.5}}
    values = graph_values(engine={"kind": "mocker", "config": config})
    assert json.loads(chart.config_text(values, "decode"))["engine"]["num_gpu_blocks"] == 1048576
