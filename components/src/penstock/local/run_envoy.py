"""Run an Envoy on this machine in front of running graphs, until a signal.

Its configuration contains the keys, so it is passed in memory and never written to a disk. Envoy's
output is printed with every key replaced.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from penstock.environments import environments_root
from penstock.errors import MissingToolError, PenstockError, PortInUseError, StartError
from penstock.files import write_atomically
from penstock.gateway.envoy import Address, LocalSetup, assignments, config, discovered, typed
from penstock.gateway.policy import Policy
from penstock.local.envoy_drain import (
    ADMIN,
    READY_S,
    SETTLE_S,
    admin_section,
    drain,
    is_terminated,
    short_path,
    sigterm_blocked,
    wait_until_live,
)
from penstock.local.file_watch import FileWatch
from penstock.local.ports import reserved
from penstock.local.process import end_with_parent
from penstock.local.services import envoy_binary
from penstock.local.starter import accepts

STOP_S = 10.0
POLL_S = 0.05
LAST_LINES = 8
DRAIN_S = 180.0  # as the default of `drain_timeout_s`


def run_envoy(file: Path, read: Callable[[bool], tuple[Policy, LocalSetup]]) -> int:
    """Serve until Ctrl-C or SIGTERM, then finish the open requests; return 0. A second signal ends
    it at once. StartError when Envoy exits or never listens.

    ``read``: the policy in the gateway file and its setup. It is called again after each edit of
    the file, with True; any PenstockError of it rejects the edit.
    """
    binary = require_envoy()
    watch = FileWatch(file)  # before the first read: misses no save
    policy, local = read(False)
    with signals_as_interrupt(), _reserved(local.listen), _private_folder() as path:
        weights = LiveWeights(policy, replace(local, weights=path))
        with start_envoy(binary, config(policy, weights.local), local.keys) as envoy:
            with suppress(KeyboardInterrupt):
                envoy.wait_until_listening(local.listen)
                print(f"ready: {_url(local)} ({weights.shares()})", flush=True)
                while not envoy.is_terminated:
                    if envoy.exit_code() is not None:
                        raise envoy.exit_error()
                    if watch.saved(time.monotonic()):
                        print(weights.edited(read), flush=True)
                    time.sleep(POLL_S)
            with suppress(KeyboardInterrupt):
                envoy.drain(DRAIN_S, settle_s=0)
            return 0


class LiveWeights:
    """The shares of the releases in a running Envoy, which an edit of the gateway file changes."""

    def __init__(self, policy: Policy, local: LocalSetup) -> None:
        self._policy, self.local, self._version = policy, local, 0
        self._write(policy, local)

    def shares(self) -> str:
        total = sum(b.share for b in self._policy.backends)
        shares = [f"{b.release} {b.share / total:.0%}" for b in self._policy.backends]
        if (shadow := self._policy.shadow) is not None:
            shares.append(f"shadow {shadow.release} {shadow.share}%")
        return ", ".join(shares)

    def edited(self, read: Callable[[bool], tuple[Policy, LocalSetup]]) -> str:
        """Apply the saved file; a line for the operator."""
        try:
            policy, local = read(True)
        except PenstockError as error:
            return f"the edit is rejected, the gateway still has the previous weights:\n{error}"
        applied = replace(self._policy, backends=policy.backends, shadow=policy.shadow)
        self._write(applied, replace(local, weights=self.local.weights))
        note = "" if policy == applied else "; other changes in the file need a restart"
        return f"applied: {self.shares()}{note}"

    def _write(self, policy: Policy, local: LocalSetup) -> None:
        assert local.weights is not None
        self._version += 1
        for name, assignment in assignments(policy, local).items():
            message = typed("config.endpoint.v3.ClusterLoadAssignment", **assignment)
            write_atomically(local.weights / f"{name}.json", discovered(self._version, message))
        self._policy, self.local = policy, local


@contextmanager
def _private_folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder that only this user can enter."""
    # The folder of a graph may be deleted while the graph runs.
    with TemporaryDirectory("", "penstock-gateway-", parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def require_envoy() -> Path:
    """Envoy's binary; MissingToolError when the environment is not installed."""
    binary = envoy_binary(environments_root())
    if binary is None:
        fix = "Run `penstock tools env install envoy`."
        raise MissingToolError("the envoy environment is not installed", fix=fix)
    return binary


@contextmanager
def _reserved(listen: Address) -> Iterator[None]:
    try:
        with reserved(listen.host, listen.port):
            yield
    except PortInUseError as error:
        raise PortInUseError(replace(error.problems[0], place="--port")) from None


def _url(local: LocalSetup) -> str:
    scheme, host = "https" if local.certificate else "http", local.listen.host
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}:{local.listen.port}/v1"


@contextmanager
def signals_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    handled = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as with nohup
        handled.append(signal.SIGHUP)
    before = {n: signal.signal(n, interrupt) for n in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print(line: str) -> None:
    print(f"envoy | {line}", file=sys.stderr, flush=True)


@contextmanager
def start_envoy(
    binary: Path,
    configuration: Mapping[str, object],
    keys: Mapping[str, str],
    inherited: tuple[int, ...] = (),
    write: Callable[[str], None] = _print,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[EnvoyProcess]:
    """Run Envoy, and end it with this process, however that ends: no Envoy remains with the keys.

    ``inherited``: descriptors that the configuration names. ``write`` gets each line of output.
    ``environment``: None: that of this process. ``folder``: for its admin interface, which shows
    the keys to this user; None: one for temporary files.
    """
    ending = end_with_parent(signal.SIGINT)
    if not ending:
        fix = "Install util-linux, and start the gateway again."
        raise MissingToolError("setpriv is not on PATH", fix=fix)
    with _private_folder(folder) as private, short_path(private) as path:
        descriptor = int(path.name)  # the same in Envoy
        configuration = {**configuration, "admin": admin_section(str(path / ADMIN))}
        with _in_memory(configuration) as file, sigterm_blocked():
            argv = [*ending, str(binary), "-c", f"/dev/fd/{file}", "--disable-hot-restart"]
            argv += ["--concurrency", "1", "--log-level", "error"]
            # Its own session: Ctrl-C reaches only penstock, which then stops Envoy.
            child = subprocess.Popen(
                argv,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[file, descriptor, *inherited],
                env=environment,
            )
        envoy = EnvoyProcess(child, path / ADMIN, keys, write)
        try:
            yield envoy
        finally:
            envoy.end()
            try:
                child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@contextmanager
def _in_memory(configuration: Mapping[str, object]) -> Iterator[int]:
    """The descriptor of a file that is in no folder: nothing can read it or leave it behind."""
    file = os.memfd_create("envoy.json")
    try:
        os.write(file, json.dumps(configuration).encode())
        os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)


class EnvoyProcess:
    """The running process. A thread writes its output without the keys."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        admin: Path,
        keys: Mapping[str, str],
        write: Callable[[str], None],
    ) -> None:
        self._child, self._admin, self._write = child, admin, write
        self._keys = tuple(keys.values())
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for raw in self._child.stdout:
            line = redact_keys(self._keys, raw.decode(errors="replace").rstrip())
            self._last_lines.append(line)
            self._write(line)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def last_line(self) -> str:
        return self._last_lines[-1] if self._last_lines else "no output"

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._child.poll()

    def redact(self, keys: Mapping[str, str]) -> None:
        """Hide these keys in the output too."""
        self._keys = tuple({*self._keys, *keys.values()})

    def end(self) -> None:
        """Without waiting for it; `exit_code` is None until then."""
        self._child.send_signal(signal.SIGINT)  # it has SIGTERM blocked

    @property
    def is_terminated(self) -> bool:
        """Whether it was sent SIGTERM, so that it must be drained."""
        return is_terminated(self.pid)

    def drain(self, limit_s: float, settle_s: float = SETTLE_S) -> None:
        """See `envoy_drain.drain`."""
        drain(self._admin, self._has_ended, limit_s, settle_s)

    def hand_over_to(self, other: EnvoyProcess, limit_s: float) -> None:
        """End after the open requests; ``other``, on the same port, gets the new ones."""
        wait_until_live(other._admin, other._has_ended)
        self.drain(limit_s)
        self.end()

    def _has_ended(self) -> bool:
        return self.exit_code() is not None

    def wait_until_listening(self, listen: Address) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self._child.poll() is not None:
                raise self.exit_error()
            if accepts(listen.host, listen.port):
                return
            time.sleep(POLL_S)
        raise StartError(f"Envoy does not accept connections after {READY_S:.0f} s")

    def exit_error(self) -> StartError:
        """Wait for the exit and return the error."""
        code = self._child.wait()
        self._reader.join(1)
        message = f"Envoy exited with code {code}: {self.last_line}"
        return StartError(message)


def redact_keys(keys: tuple[str, ...], line: str) -> str:
    """Replace every key in the line, longest first: one may be part of another."""
    for key in sorted(keys, key=len, reverse=True):
        line = line.replace(key, "(key)")
    return line
