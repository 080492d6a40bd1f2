"""Runs one Envoy on this machine until it is told to stop, in front of graphs that are up.

Its configuration holds the keys: a file only its owner can read, gone once Envoy has read it; what
Envoy says is shown with every key taken out.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from penstock.environments import environments_root
from penstock.errors import MissingToolError, PortInUseError, Problem, StartError
from penstock.gateway.envoy import Address, LocalSetup, config
from penstock.gateway.policy import Policy
from penstock.local.ports import require_free
from penstock.local.services import envoy_binary
from penstock.local.starter import accepts

READY_S = 15.0
STOP_S = 10.0
POLL_S = 0.05
LAST_LINES = 8


def run_envoy(policy: Policy, local: LocalSetup) -> int:
    """Serve until Ctrl-C or SIGTERM; 0. StartError when Envoy ends by itself or never listens."""
    binary = require_envoy()
    _require_port(local.listen)
    with tempfile.TemporaryDirectory(prefix="penstock-gateway-") as name, _terminated():
        file = write_config(policy, local, Path(name))
        with _envoy(binary, file, local.keys) as envoy:
            try:
                envoy.wait_until_it_listens(local.listen)
                file.unlink()
                print(_ready(policy, local), flush=True)
                raise envoy.ended()
            except KeyboardInterrupt:
                return 0


def require_envoy() -> Path:
    """Envoy's program; MissingToolError without the environment."""
    binary = envoy_binary(environments_root())
    if binary is None:
        fix = "penstock env install envoy"
        raise MissingToolError(Problem(message="the envoy environment is not installed", fix=fix))
    return binary


def write_config(policy: Policy, local: LocalSetup, folder: Path) -> Path:
    """The configuration, in a file that only its owner can read."""
    file = folder / "envoy.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(config(policy, local)))
    return file


def _require_port(listen: Address) -> None:
    try:
        require_free(listen.host, listen.port)
    except PortInUseError as error:
        fix = "end what holds it, or choose another with --port N"
        problem = Problem(place="--port", message=error.problems[0].message, fix=fix)
        raise PortInUseError(problem) from None


def _ready(policy: Policy, local: LocalSetup) -> str:
    total = sum(b.share for b in policy.backends)
    shares = [f"{b.release} {b.share / total:.0%}" for b in policy.backends]
    if policy.shadow is not None:
        shares.append(f"shadow {policy.shadow.release} {policy.shadow.share}%")
    scheme, host = "https" if local.certificate else "http", local.listen.host
    host = f"[{host}]" if ":" in host else host
    return f"ready: {scheme}://{host}:{local.listen.port}/v1 ({', '.join(shares)})"


@contextmanager
def _terminated() -> Iterator[None]:
    """SIGTERM, and the end of the terminal, end it as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {n: signal.signal(n, interrupt) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _envoy(binary: Path, file: Path, keys: Mapping[str, str]) -> Iterator[_Envoy]:
    argv = [str(binary), "-c", str(file), "--disable-hot-restart"]
    argv += ["--concurrency", "1", "--log-level", "error"]
    # A session of its own: Ctrl-C reaches us alone, and we end it.
    child = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        yield _Envoy(child, keys)
    finally:
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


class _Envoy:
    """The running process; a thread hands on what it says, without the keys."""

    def __init__(self, child: subprocess.Popen[bytes], keys: Mapping[str, str]) -> None:
        self._child = child
        self._keys = tuple(keys.values())
        self._said: deque[str] = deque(maxlen=LAST_LINES)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for raw in self._child.stdout:
            line = redact_keys(self._keys, raw.decode(errors="replace").rstrip())
            self._said.append(line)
            print(f"envoy | {line}", file=sys.stderr, flush=True)

    def wait_until_it_listens(self, listen: Address) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self._child.poll() is not None:
                raise self.ended()
            if accepts(listen.host, listen.port):
                return
            time.sleep(POLL_S)
        raise StartError(f"Envoy does not listen after {READY_S:.0f} s")

    def ended(self) -> StartError:
        """Waits for its end."""
        code = self._child.wait()
        self._reader.join(1)
        last = self._said[-1] if self._said else "it said nothing"
        return StartError(Problem(message=f"Envoy ended with {code}: {last}"))


def redact_keys(keys: tuple[str, ...], line: str) -> str:
    """The line with every key replaced, longest first: one may be part of another."""
    for key in sorted(keys, key=len, reverse=True):
        line = line.replace(key, "(key)")
    return line
