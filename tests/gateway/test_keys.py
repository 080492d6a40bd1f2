"""The file with API keys: kubectl's format, and errors that show no key."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest

from penstock.errors import InputError
from penstock.gateway.keys import load_keys, parse_keys
from tests.gateway.samples import PLANTED


def refused(text: str) -> str:
    with pytest.raises(InputError) as error:
        parse_keys(text, "keys.env")
    return str(error.value)


def test_clients_and_keys_are_read() -> None:
    text = f"# clients\n\nteam-a={PLANTED}\nteam.b={PLANTED}=2\n"
    assert parse_keys(text, "keys.env") == {"team-a": PLANTED, "team.b": f"{PLANTED}=2"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "keys.env: contains no key"),
        (PLANTED, "keys.env:1: is not CLIENT=KEY"),
        (f"a b={PLANTED}", "keys.env:1: is not CLIENT=KEY"),
        (f"a={PLANTED}\na={PLANTED}x", "keys.env:2: client a is listed twice"),
        (f"a={PLANTED}\nb={PLANTED}", "keys.env:2: client b has the key of another client"),
        ("a=planted-key", "the key of client a is shorter than 16 characters"),
        ("a=", "the key of client a is shorter than 16 characters"),
        (f"a={PLANTED} # comment", "the key of client a contains a space"),
        (f"a={PLANTED}é", "the key of client a contains a space or a non-ASCII character"),
    ],
)
def test_each_mistake_is_reported_and_no_key_is_shown(text: str, expected: str) -> None:
    message = refused(text)
    assert expected in message
    assert "planted" not in message


def test_a_file_that_other_users_can_read_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "keys.env"
    file.write_text(f"a={PLANTED}\n")
    file.chmod(0o644)
    with pytest.raises(
        InputError, match=r"other users can read the keys. Fix: Run `chmod 600 /.*/keys.env`."
    ):
        load_keys(file)
    file.chmod(0o600)
    assert load_keys(file) == {"a": PLANTED}


@pytest.mark.needs("kubectl")
def test_kubectl_reads_the_same_clients_and_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys.env"
    file.write_text(f'# clients\n\nteam-a={PLANTED}\n  team.b={PLANTED}=2\nc="{PLANTED}"\n')
    argv = ["kubectl", "create", "secret", "generic", "gateway-keys", f"--from-env-file={file}"]
    done = subprocess.run([*argv, "--dry-run=client", "-o", "json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)["data"]
    decoded = {client: base64.b64decode(key).decode() for client, key in data.items()}
    assert decoded == parse_keys(file.read_text(), "keys.env")
