"""The options of `penstock gateway up` must match the file; errors come before Envoy starts."""

from __future__ import annotations

import pytest

from penstock.errors import UsageError
from penstock.gateway.envoy import Address, LocalSetup, local_setup
from tests.gateway.samples import BACKENDS, PLANTED, SHADOW, policy

LISTEN = Address(host="127.0.0.1", port=8080)
KEYS = {"tester": PLANTED}


def setup(rest: str, backends: list[str], shadow: str | None = None) -> LocalSetup:
    return local_setup(policy(rest), LISTEN, backends, shadow, KEYS)


def refused(rest: str, backends: list[str], shadow: str | None = None) -> str:
    with pytest.raises(UsageError) as error:
        setup(rest, backends, shadow)
    return str(error.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://localhost:8000/v1"])
def test_a_url_is_accepted_as_up_prints_it(url: str) -> None:
    prepared = setup(BACKENDS, [f"stable={url}"])
    assert prepared.frontends == {"stable": Address(host="127.0.0.1", port=8000)}


def test_the_shadow_gets_its_url() -> None:
    prepared = setup(BACKENDS + SHADOW, ["stable=http://127.0.0.1:1"], "http://127.0.0.1:2")
    assert prepared.frontends["candidate"].port == 2


@pytest.mark.parametrize(
    ("rest", "backends", "shadow", "message"),
    [
        (BACKENDS, [], None, "no URL for stable: add --backend stable=URL"),
        (BACKENDS, ["stabel=http://127.0.0.1:1"], None, "Did you mean `stable`?"),
        (BACKENDS, ["http://127.0.0.1:1"], None, "write RELEASE=URL"),
        (BACKENDS, ["stable=http://127.0.0.1:1"] * 2, None, "--backend stable is given twice"),
        (BACKENDS, ["stable=https://127.0.0.1:1"], None, "is not http://ADDRESS:PORT"),
        (BACKENDS, ["stable=http://127.0.0.1:1/metrics"], None, "is not http://ADDRESS:PORT"),
        (BACKENDS, ["stable=http://127.0.0.1:99999"], None, "is not http://ADDRESS:PORT"),
        (BACKENDS, ["stable=http://example.com:80"], None, "is not http://ADDRESS:PORT"),
        (BACKENDS, ["stable=http://127.0.0.1:1"], "http://127.0.0.1:2", "no shadow section"),
        (BACKENDS + SHADOW, ["stable=http://127.0.0.1:1"], None, "candidate has no URL"),
    ],
)
def test_each_mismatch_is_an_error(
    rest: str, backends: list[str], shadow: str | None, message: str
) -> None:
    assert message in refused(rest, backends, shadow)


def test_all_mismatches_are_reported_in_one_run() -> None:
    message = refused(BACKENDS + SHADOW, ["other=http://127.0.0.1:1"])
    assert len(message.splitlines()) == 3
