"""The options of `penstock up --gateway`: mistakes are found before a process starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.errors import InputError, MissingToolError, UsageError
from tests.support.local_graphs import QUICKSTART, require_envoy

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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path / "none"))
    argv = ["up", str(QUICKSTART), "--gateway", keys_file(tmp_path)]
    assert main(argv) == MissingToolError.exit_code
    message = capsys.readouterr().err
    assert (
        "the envoy environment is not installed. Fix: Run `penstock env install envoy`" in message
    )
    assert not (tmp_path / "state").exists()


def test_tls_without_a_gateway_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["up", str(QUICKSTART), "--tls-cert", "a.pem", "--tls-key", "b.pem"]
    assert main(argv) == UsageError.exit_code
    assert "--tls-cert needs a gateway: add --gateway FILE" in capsys.readouterr().err


@pytest.mark.envoy
@pytest.mark.parametrize(
    ("tls", "expected"),
    [
        (["--tls-cert", "none.pem"], "give both --tls-cert and --tls-key, or neither"),
        (["--tls-cert", "none.pem", "--tls-key", "none.key"], "none.pem: no such file"),
    ],
)
def test_a_certificate_needs_two_files(
    tmp_path: Path, tls: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    require_envoy()
    argv = ["up", str(QUICKSTART), "--gateway", keys_file(tmp_path), *tls]
    assert main(argv) == UsageError.exit_code
    assert expected in capsys.readouterr().err


@pytest.mark.envoy
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
    tmp_path: Path, text: str, mode: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    require_envoy()
    argv = ["up", str(QUICKSTART), "--gateway", keys_file(tmp_path, text, mode)]
    assert main(argv) == InputError.exit_code
    shown = capsys.readouterr().err
    assert expected in shown
    assert KEY not in shown
    assert not (tmp_path / "state").exists()


@pytest.mark.envoy
def test_a_missing_file_of_keys_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_envoy()
    argv = ["up", str(QUICKSTART), "--gateway", str(tmp_path / "none.env")]
    assert main(argv) == InputError.exit_code
    assert "none.env: no such file" in capsys.readouterr().err
