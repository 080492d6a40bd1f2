"""The options of `penstock up --gateway`: mistakes are found before a process starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import InputError, MissingToolError, UsageError
from tests.support.command_line import error_of
from tests.support.emulated_cluster.released import certificate
from tests.support.local_graphs import QUICKSTART

KEY = "planted-key-of-alice-0123456789"


def keys_file(folder: Path, text: str = f"alice={KEY}\n", mode: int = 0o600) -> str:
    path = folder / "keys.env"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "state"))


def test_without_envoy_the_error_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path / "none"))
    argv = ["up", str(QUICKSTART), "--gateway", keys_file(tmp_path)]
    message = error_of(argv, MissingToolError.exit_code)
    assert "environment is not installed. Fix: Run `penstock tools env install envoy`" in message
    assert not (tmp_path / "state").exists()


def test_tls_without_a_gateway_is_an_error() -> None:
    argv = ["up", str(QUICKSTART), "--tls-cert", "a.pem", "--tls-key", "b.pem"]
    assert "--tls-cert needs a gateway. Fix: Add --gateway FILE." in error_of(
        argv, UsageError.exit_code
    )


@pytest.mark.needs("envoy")
def test_a_certificate_needs_two_files(tmp_path: Path) -> None:
    tls = ["--tls-cert", "none.pem"]
    argv = ["up", str(QUICKSTART), "--gateway", keys_file(tmp_path), *tls]
    assert "give both --tls-cert and --tls-key, or neither" in error_of(argv, UsageError.exit_code)


@pytest.mark.needs("envoy")
def test_tls_files_are_checked_before_the_start(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    (tmp_path / "other").mkdir()
    _, other = certificate(tmp_path / "other")
    none, text, broken = tmp_path / "none.pem", tmp_path / "text.pem", tmp_path / "broken.pem"
    text.write_text("not a certificate")
    broken.write_text("-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n")
    certificate_fix = "Fix: Set --tls-cert to the PEM file of the certificate."
    key_fix = "Fix: Set --tls-key to the PEM file of the private key."
    pair_fix = (
        "Fix: Set --tls-cert and --tls-key to a PEM certificate chain and its unencrypted key."
    )
    for pair, expected in (
        ((chain, none), f"{none} --tls-key: cannot be read: No such file or directory. {key_fix}"),
        ((text, key), f"{text} --tls-cert: has no PEM certificate. {certificate_fix}"),
        ((key, chain), f"{key} --tls-cert: has no PEM certificate. {certificate_fix}"),
        ((key, chain), f"{chain} --tls-key: has no PEM private key. {key_fix}"),
        ((chain, other), f"{other} --tls-key: is not the key of --tls-cert {chain}. {pair_fix}"),
        ((broken, key), f"{key} --tls-key: cannot be used with --tls-cert {broken}: "),
    ):
        tls = ["--tls-cert", str(pair[0]), "--tls-key", str(pair[1])]
        argv = ["up", str(QUICKSTART), "--gateway", keys_file(tmp_path), *tls]
        assert expected in error_of(argv, InputError.exit_code)


@pytest.mark.needs("envoy")
@pytest.mark.parametrize(
    ("text", "mode", "expected"),
    [
        (f"alice={KEY}\n", 0o644, "keys.env: other users can read the keys. Fix: Run `chmod 600"),
        (f"alice={KEY}\n\nbob\n", 0o600, "keys.env:3: is not CLIENT=KEY"),
        (f"alice={KEY}\nbob=short\n", 0o600, "keys.env:2: the key of client bob is shorter than"),
        (f"alice={KEY}\nbob={KEY}\n", 0o600, "keys.env:2: client bob has the key of another"),
        ("# no client yet\n", 0o600, "keys.env: contains no key. Fix: Write a line CLIENT=KEY"),
    ],
)
def test_each_mistake_in_the_keys_is_reported_with_its_line(
    tmp_path: Path, text: str, mode: int, expected: str
) -> None:
    argv = ["up", str(QUICKSTART), "--gateway", keys_file(tmp_path, text, mode)]
    errors = error_of(argv, InputError.exit_code)
    assert expected in errors
    assert KEY not in errors
    assert not (tmp_path / "state").exists()


@pytest.mark.needs("envoy")
def test_a_missing_file_of_keys_is_reported(tmp_path: Path) -> None:
    argv = ["up", str(QUICKSTART), "--gateway", str(tmp_path / "none.env")]
    assert "none.env: no such file" in error_of(argv, InputError.exit_code)
