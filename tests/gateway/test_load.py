"""The gateway file: every error has its line, place, value and fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import GraphError, InputError
from penstock.gateway.model import load_gateway, parse_gateway
from tests.gateway.samples import BACKENDS, EXAMPLE, MINIMAL, PLANTED, SHADOW

MANY = ", ".join(f"{{release: r{n}, weight: 1}}" for n in range(17))


def error_of(rest: str, text: str = MINIMAL) -> str:
    with pytest.raises(GraphError) as error:
        parse_gateway(text + rest, "g.yaml")
    return str(error.value)


def test_the_shipped_example_loads() -> None:
    gateway = load_gateway(EXAMPLE)
    assert [b.weight for b in gateway.backends] == [100, 0]


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        (
            "backends: [{release: a, weight: 0}, {release: b, weight: 0}]",
            "g.yaml:7 backends: all weights are 0, so no release serves clients. Fix: ",
        ),
        ("backends: []", "g.yaml:7 backends: must name at least one release"),
        (f"backends: [{MANY}]", "backends: must be at most 16, got 17"),
        (
            "backends:\n  - {release: a, weight: 1}\n  - {release: a, weight: 2}",
            "g.yaml:9 backends[1].release: a is listed twice, first in backends[0]",
        ),
        (BACKENDS + "shadow: {release: stable, percent: 5}", "g.yaml:8 shadow.release: stable is"),
        (
            BACKENDS + "shadow: {release: c, percent: 0}",
            "shadow.percent: must be at least 1, got 0",
        ),
        (BACKENDS + "shadow: {release: c, percent: 101}", "must be at most 100, got 101"),
        ("backends: [{release: a}]", "backends[0].weight: required, but missing. Fix: Add `weigh"),
        ("backends: [{release: a, weigth: 1}]", "unknown key `weigth`. Fix: Did you mean `weight`"),
        ('backends: [{release: a, weight: "1"}]', "weight: must be an integer, got the string"),
        (
            "backends: [{release: A_b, weight: 1}]",
            "must be lower-case letters, digits and '-', got",
        ),
        (f"backends: [{{release: {'a' * 54}, weight: 1}}]", "must be at most 53 characters, got"),
        (BACKENDS + "rate_limit: {requests: 0, unit: minute}", "requests: must be at least 1"),
        (BACKENDS + "rate_limit: {requests: 9, unit: day}", "unit: must be one of second, minute"),
        (BACKENDS + "shadow: {release: c}", "shadow.percent: required, but missing"),
        (BACKENDS + "retires: 1", "unknown key `retires`. Fix: Did you mean `retries`?"),
        (BACKENDS + "timeouts: 5", "timeouts: must be a section of `key: value` lines"),
        (BACKENDS + BACKENDS, "g.yaml:8 backends: duplicate key `backends`, first on line 7"),
        (BACKENDS + "timeouts: {idle_s: 1e3}", "g.yaml:8 timeouts.idle_s:"),
    ],
)
def test_each_mistake_is_reported_with_its_fix(rest: str, expected: str) -> None:
    assert expected in error_of(rest)


def test_all_mistakes_are_reported_in_one_run() -> None:
    message = error_of("backends: [{release: a}]\nretires: 1\nmax_request_kib: 0\nhostnam: x\n")
    assert [line.split(" ")[1] for line in message.splitlines()] == [
        "backends[0].weight:",
        "retires:",
        "max_request_kib:",
        "hostnam:",
    ]


def test_a_header_name_is_validated() -> None:
    text = MINIMAL.replace("secret: front-keys", "secret: front-keys, header: x key")
    assert "api_keys.header: must be a header name" in error_of(BACKENDS, text)


def test_a_hostname_may_contain_dots() -> None:
    text = MINIMAL.replace("llm.example.com", "https://llm.example.com")
    assert "g.yaml:4 hostname: must be lower-case letters, digits and '-', with dots" in error_of(
        BACKENDS, text
    )


def test_an_empty_file_points_to_the_example() -> None:
    assert "Start from k8s/gateway/gateway.yaml in penstock's repository." in error_of(
        "", "# nothing\n"
    )


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_gateway(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "wrong",
    [
        f"api_keys: {{secret: front-keys, header: Bearer {PLANTED}}}",
        f"api_keys: {{secret: 'Bearer {PLANTED}'}}",
        f"api_keys: {{secret: front-keys, keys: {{a: {PLANTED}}}}}",
        f"api_keys: {{secret: front-keys, a: {PLANTED}",
        f"api_keys: {PLANTED}",
        f"api_keys: [{PLANTED}]",
        f"api_keys: {{secret: [{PLANTED}]}}",
        f"api_keys: {{secret: front-keys}} {PLANTED}",
    ],
)
def test_a_misplaced_key_is_an_error_that_does_not_show_it(wrong: str) -> None:
    text = MINIMAL.replace("api_keys: {secret: front-keys}", wrong)
    assert PLANTED not in error_of(BACKENDS, text)


def test_the_shadow_and_the_rate_limit_are_optional() -> None:
    gateway = parse_gateway(MINIMAL + BACKENDS, "g.yaml")
    assert (gateway.shadow, gateway.rate_limit) == (None, None)
    assert parse_gateway(MINIMAL + BACKENDS + SHADOW, "g.yaml").shadow is not None
