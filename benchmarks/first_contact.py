"""Runs the commands of README.md's first screen as a new user does, on a clean machine.

python benchmarks/first_contact.py [--root DIR]   Needs root and `debootstrap`. `clean_root.py`
makes the machine: a fresh Debian, a new user, empty caches, a network that counts bytes. Writes
results/first_contact.json and the transcript results/first_contact.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from clean_root import USER, CleanRoot, debootstrap
from report import RESULTS, write_result

CHECKOUT = Path(__file__).parents[1]
FENCE = re.compile(r"```bash\n(.*?)\n```", re.DOTALL)
WARM_RUNS = 3
MEGABIT = 1e6 / 8  # bytes
FOLDER = "penstock"


@dataclass(frozen=True, kw_only=True)
class FirstScreen:
    """What README.md says before its first heading."""

    venv: str
    path: str
    up: str
    curl: str
    commands: tuple[str, ...]
    response: str


def read_first_screen(readme: str) -> FirstScreen:
    """SystemExit when the README has another form."""
    text = readme[: readme.index("\n## ")]
    blocks = FENCE.findall(text)
    inline = re.findall(r"`([^`\n]+)`", text)
    (up,) = [block for block in blocks if "penstock up " in block]
    (curl,) = [block for block in blocks if block.startswith("curl ")]
    (more,) = [block for block in blocks if "penstock scale " in block]
    (venv,) = [words for words in inline if words.startswith("python3 -m venv ")]
    (path,) = [words for words in inline if words.startswith("export PATH=")]
    (response,) = re.findall(r"The response is `([^`]+)`", text)
    commands = tuple(line.split("  #")[0].strip() for line in more.splitlines())
    return FirstScreen(venv=venv, path=path, up=up, curl=curl, commands=commands, response=response)


class Session:
    """Commands of the new user, with the transcript of their output."""

    def __init__(self, root: CleanRoot, screen: FirstScreen) -> None:
        self._root = root
        self._prefix = f"{screen.path} && cd {FOLDER} && "
        self._begun = time.monotonic()
        self.lines: list[str] = []
        self.steps: list[dict[str, Any]] = []

    def _stamp(self) -> str:
        megabytes = self._root.counter.received / 1e6
        return f"[{time.monotonic() - self._begun:6.1f} s {megabytes:6.1f} MB]"

    def _write(self, text: str) -> None:
        self.lines.append(f"{self._stamp()} {text}".rstrip())
        print(self.lines[-1], flush=True)

    def start(self, command: str, *, shown: str = "", in_clone: bool = True) -> Running:
        """Start ``command``; a thread writes its output to the transcript."""
        for number, line in enumerate((shown or command).splitlines()):
            self._write(("$ " if number == 0 else "> ") + line)
        process = self._root.start((self._prefix if in_clone else "") + command)
        return Running(process, self._write)

    def run(self, command: str, **options: Any) -> str:
        """The output of ``command``; SystemExit when it fails."""
        begun, before = time.monotonic(), self._root.counter.received
        running = self.start(command, **options)
        code = running.wait()
        self.step(options.get("shown") or command, begun, before)
        if code:
            raise SystemExit(f"{command}: exit code {code}\n{running.output()}")
        return running.output()

    def step(self, command: str, begun: float, before: int) -> None:
        """Record the time and the bytes since ``begun`` as one step."""
        self.steps.append(
            {
                "command": command.splitlines()[0],
                "seconds": round(time.monotonic() - begun, 2),
                "megabytes": round((self._root.counter.received - before) / 1e6, 1),
            }
        )


class Running:
    """A command whose output is read while it runs."""

    def __init__(self, process: subprocess.Popen[str], write: Callable[[str], None]) -> None:
        self._process = process
        self._lines: list[str] = []
        self._thread = threading.Thread(target=self._read, args=(write,), daemon=True)
        self._thread.start()

    def _read(self, write: Callable[[str], None]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)
            write(line.rstrip("\n"))

    def output(self) -> str:
        return "".join(self._lines)

    def wait(self, seconds: float = 600) -> int:
        code = self._process.wait(seconds)
        self._thread.join(5)
        return code

    def wait_for(self, words: str, seconds: float) -> None:
        """SystemExit when ``words`` do not appear in the output in time."""
        deadline = time.monotonic() + seconds
        while words not in self.output():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"no {words!r} in the output:\n{self.output()}")
            time.sleep(0.02)


def first_contact(root: CleanRoot, screen: FirstScreen) -> tuple[Session, dict[str, Any]]:
    """From the clone to `down`, with nothing installed and empty caches."""
    session = Session(root, screen)
    session.run(
        f"git clone -q /srv/penstock.git {FOLDER}",
        shown=f"git clone REPOSITORY {FOLDER}",
        in_clone=False,
    )
    session.run(screen.venv, in_clone=False)
    begun, before = time.monotonic(), root.counter.received
    up = session.start(screen.up)
    up.wait_for("ready: http", 900)
    session.step(screen.up, begun, before)
    answer = session.run(f"{screen.curl.replace('curl', 'curl -sS', 1)}; echo", shown=screen.curl)
    content = json.loads(answer)["choices"][0]["message"]["content"]
    to_answer, received = time.monotonic() - begun, root.counter.received - before
    cpu = root.cpu_seconds()
    for command in screen.commands:
        session.run(command)
    code = up.wait(60)
    figures = {
        "response": content,
        "is_response_of_readme": content == screen.response,
        "seconds_from_pip_install_to_the_response": round(to_answer, 1),
        "cpu_seconds_until_then": round(cpu, 1),
        "bytes_downloaded": received,
        "seconds_of_download_at_100_mbit_computed": round(received / (100 * MEGABIT), 1),
        "exit_code_of_up": code,
        "processes_left": root.processes(),
        "steps": session.steps,
    }
    return session, figures


def warm(root: CleanRoot, screen: FirstScreen) -> list[dict[str, float]]:
    """Seconds from `up` to the response of the README when everything is installed."""
    runs = []
    up_command = screen.up.split(" && ")[-1]
    curl = screen.curl.replace("curl", "curl -s", 1)
    for _ in range(WARM_RUNS):
        session = Session(root, screen)
        session.run("git checkout -q .")
        load = os.getloadavg()[0]
        begun, before = time.monotonic(), root.counter.received
        up = session.start(up_command)
        asked = session.start(
            f"until {curl} | grep -qF '{screen.response}'; do sleep 0.05; done",
            shown="(curl until the response arrives)",
        )
        if asked.wait(120):
            raise SystemExit(asked.output())
        seconds, cpu = time.monotonic() - begun, root.cpu_seconds()
        session.run(screen.commands[-1])
        up.wait(60)
        runs.append(
            {
                "seconds": round(seconds, 2),
                "cpu_seconds": round(cpu, 1),
                "load_average_1_minute": round(load, 1),
                "bytes_downloaded": root.counter.received - before,
            }
        )
    return runs


def copy_head(root: Path) -> str:
    """A bare copy of this checkout's HEAD in the root; its commit."""
    target = root / "srv" / "penstock.git"
    subprocess.run(["rm", "-rf", str(target)], check=True)
    subprocess.run(
        ["git", "clone", "-q", "--bare", "--no-local", "--single-branch", CHECKOUT, target],
        check=True,
    )
    subprocess.run(["chroot", root, "chown", "-R", USER, "/srv/penstock.git"], check=True)
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def measure(folder: Path) -> None:
    screen = read_first_screen((CHECKOUT / "README.md").read_text())
    debootstrap(folder)
    commit = copy_head(folder)
    load = os.getloadavg()[0]
    with CleanRoot(folder) as root:
        session, cold = first_contact(root, screen)
        RESULTS.joinpath("first_contact.txt").write_text("\n".join(session.lines) + "\n")
        runs = warm(root, screen)
    write_result(
        "first_contact",
        "python benchmarks/first_contact.py",
        {
            "commit": commit,
            "root": "debootstrap --variant=minbase bookworm; a new user; empty caches; own "
            "network, PID, mount and IPC namespaces",
            "bytes_counted_by": "the proxy that is the only way out of the network namespace; "
            "TLS and HTTP headers included",
            "load_average_1_minute_at_start": round(load, 1),
            "cold": cold,
            "warm": {"median_s": median(run["seconds"] for run in runs), "runs": runs},
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, help="keep the Debian here, and use it if it exists")
    given = parser.parse_args().root
    if os.geteuid() != 0:
        raise SystemExit("first_contact.py makes namespaces: run it as root.")
    if given:
        measure(given.absolute())
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder) / "root")


if __name__ == "__main__":
    main()
