"""Streams, folders and files of the machine that are missing, full, closed or read-only."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.command_line import error_of
from tests.support.local_graphs import QUICKSTART
from tests.support.waiting import LIMIT_S, wait_for

CTRL_C = "\x03"
ANSWERS = {"model": "gpt-oss-20b", "gpu": "h100", "gpus": "1", "workload": "short-chat"}
OPTIONS = [word for name, value in ANSWERS.items() for word in (f"--{name}", value)]


def shell(command: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command line of bash, in which `$P` is penstock."""
    program = f"{sys.executable} -m penstock.cli.main"
    return subprocess.run(
        ["bash", "-c", command.replace("$P", program)],
        cwd=folder,
        env={**os.environ, "PENSTOCK_STATE_HOME": str(folder / "state"), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.program
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("$P --help | true; exit ${PIPESTATUS[0]}", 0),  # a reader that has exited
        ("$P --version | true; exit ${PIPESTATUS[0]}", 0),
        ("$P schema | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}", 0),
        ("$P ls >&-", 0),
        ("$P --help >&-", 0),
        ("$P check --list-rules >&- 2>&-", 0),
        ("$P unknown 2>&-", 2),
        ("$P unknown 2>/dev/full", 2),
        ("$P ls extra 2>&-", 2),
        ("$P init <&-", 2),
        ("$P --help >/dev/full", 3),
        ("$P schema >/dev/full", 3),
    ],
)
def test_a_closed_or_full_stream_gives_the_exit_code_and_no_traceback(
    command: str, code: int, tmp_path: Path
) -> None:
    done = shell(command, tmp_path)
    assert done.returncode == code
    assert "Traceback" not in done.stdout + done.stderr
    assert "unexpected error" not in done.stderr
    if code == 3:
        assert "the output cannot be written: No space left on device. Fix: Free " in done.stderr
    if command.endswith("2>&-"):
        assert done.stdout == ""


@pytest.mark.program
@pytest.mark.parametrize("verb", ["check g.yaml", "down g.yaml", "status g.yaml", "ls"])
def test_a_deleted_working_folder_is_an_error(verb: str, tmp_path: Path) -> None:
    done = shell(f"mkdir gone; cd gone; rmdir ../gone; $P {verb}", tmp_path)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        f"penstock {verb.split(maxsplit=1)[0]}: the working folder was deleted. "
        "Fix: Change to a folder that exists: `cd`."
    )


@pytest.mark.parametrize("verb", ["check", "up", "down", "render", "init"])
def test_a_name_that_is_too_long_is_an_error(verb: str, tmp_path: Path) -> None:
    name = str(tmp_path / ("a" * 300 + ".yaml"))
    more = OPTIONS if verb == "init" else []
    message = error_of([verb, name, *more], 3)
    assert "aaaa" in message
    assert ": File name too long. Fix: " in message


def test_a_state_folder_that_cannot_be_made_is_an_error_of_a_detached_graph_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "file"))
    for more in ([], ["--detach"]):
        assert "the state folder cannot be written: Not a directory. Fix: Set PENSTOCK_STATE_H" in (
            error_of(["up", str(QUICKSTART), "--port", "0", *more], 3)
        )


@pytest.mark.program
def test_a_graph_is_written_as_utf_8_in_every_locale(tmp_path: Path) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = shell(f"$P init g.yaml {' '.join(OPTIONS)}", tmp_path, **ascii_only)
    assert (done.returncode, done.stderr) == (0, "")
    assert "×" in (tmp_path / "g.yaml").read_text("utf-8")


@pytest.mark.parametrize("target", [".", "", "no/x.yaml"])
def test_an_output_that_is_not_a_file_has_a_fix(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message, _, fix = error_of(["render", str(QUICKSTART), "-o", target], 3).partition(". Fix: ")
    assert message.startswith(f"penstock render: {target or '-o'}: cannot be written")
    assert fix == "Name a file in an existing folder in which you may write.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "cause", "fix"),
    [
        ("no/x.yaml", "there is no such folder, or it is read-only", "Name a file in an existing"),
        (".", "is a folder", "Name a file in it, such as graph.yaml."),
    ],
)
def test_init_refuses_a_file_before_it_asks(
    file: str, cause: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("a question was asked"))
    assert f"{file}: {cause}. Fix: {fix}" in error_of(["init", file], 3)


def is_reading(pid: int) -> bool:
    """Whether a process that has asked a question waits for the answer."""
    return psutil.Process(pid).status() == psutil.STATUS_SLEEPING


@pytest.mark.program
@pytest.mark.parametrize(
    ("keys", "code", "words"),
    [
        (CTRL_C, 130, []),
        ("\x04", 2, ["\npenstock init: the input ended before all", "Fix: Give them as options"]),
        ("llama\n\x04", 2, ["llama is not known. Fix: "]),
        ("\n\n0\nmany\n2\nchats\n\n", 0, ["'0' is not an integer from 1 to", "'many' is not an in",
                                           "'chats' is not one of short-chat, d"]),
    ],
)  # fmt: skip
def test_wrong_answers_are_asked_again_and_the_end_of_the_input_is_an_error(
    keys: str, code: int, words: list[str], tmp_path: Path
) -> None:
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        # The terminal becomes its own, so that Ctrl-C is a signal.
        ["setsid", "--ctty", sys.executable, "-m", "penstock.cli.main", "init", "g.yaml"],
        cwd=tmp_path,
        stdin=inside,
        stdout=inside,
        stderr=inside,
    )
    os.close(inside)
    output = ""
    lines = keys.splitlines(keepends=True)
    try:
        while True:
            if output.endswith("]: ") and lines:
                output += "\n"
                # A signal between the question and the read is not noticed.
                wait_for(lambda: is_reading(process.pid), "the process to read")
                os.write(terminal, lines.pop(0).encode())
            output += os.read(terminal, 4096).decode()
    except OSError:  # the terminal is closed when the command exits
        pass
    finally:
        os.close(terminal)
    assert process.wait(LIMIT_S) == code
    for text in words:
        assert text in output.replace("\r", "")
    assert (tmp_path / "g.yaml").exists() == (code == 0)
