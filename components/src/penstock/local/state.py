"""The state folder of a graph: lock, state file, logs, discovery, temporary files.

Each graph file has one folder, so the lock prevents a second `up` of the same file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from pathlib import Path
from typing import IO

from penstock.errors import AlreadyUpError, InputError
from penstock.files import naming, write_file
from penstock.local.state_file import LocalState, dump_state, load_state
from penstock.text.commands import command, restart

MARKER = "PENSTOCK_STATE"  # in the environment of every child; identifies leftovers


def state_root() -> Path:
    """Parent of the state folders: $PENSTOCK_STATE_HOME, else the XDG state folder."""
    folder = os.environ.get("PENSTOCK_STATE_HOME")
    if folder:
        return Path(folder).absolute()
    xdg = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(xdg) / "penstock"


def reservations() -> Path:
    """Folder with one lock for each GPU that a graph of this user has reserved."""
    return state_root() / "gpus"


def _lock(lock: IO[str]) -> bool:
    """Take the exclusive lock; retry while `is_locked` of another process briefly has it."""
    for _ in range(20):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.02)
        else:
            return True
    return False


class StateDir:
    """The folder of the graph or manifest at ``source``; created on demand."""

    def __init__(self, source: Path, root: Path | None = None) -> None:
        resolved = Path(os.path.realpath(source))  # `resolve` raises for a loop of links
        digest = hashlib.sha256(str(resolved).encode()).hexdigest()[:8]
        self.source = resolved
        self._lock: IO[str] | None = None
        self._set_path((root or state_root()) / f"{resolved.stem}-{digest}")

    @classmethod
    def of_folder(cls, folder: Path) -> StateDir:
        """An existing state folder, whose graph is known only from its state file."""
        state = cls(folder)
        state._set_path(folder)
        return state

    def _set_path(self, path: Path) -> None:
        self.path, self.logs, self.state_file = path, path / "logs", path / "state.json"
        self.discovery, self.files = path / "run" / "discovery", path / "run" / "files"
        self.scratch = path / "run" / "tmp"
        """TMPDIR and HOME of the children; deleted when the graph stops."""

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def create(self) -> None:
        """Make the folder, which only this user may read. InputError if it cannot be written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o700)  # logs contain prompts, files may contain tokens
            (self.path / "lock").touch()
        except OSError as error:
            raise InputError(
                f"the state folder cannot be written: {error.strerror}",
                file=str(self.path),
                fix="Set PENSTOCK_STATE_HOME to another folder.",
            ) from None

    def acquire(self) -> None:
        """Lock the graph for this process. AlreadyUpError when another process runs it."""
        self.create()
        lock = (self.path / "lock").open("a+")
        if not _lock(lock):
            lock.close()
            raise AlreadyUpError(
                f"the graph is already up (pid {self.owner_pid()})",
                file=str(self.source),
                fix="It applies edits of the file; `penstock status` shows them. To start "
                f"again, run {command('down', self.source)} first.",
            ) from None
        with naming(self.path / "lock"):
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
        self._lock = lock

    def restore(self) -> bool:
        """Make the folder again if it was deleted while this process has the lock; whether it was.

        AlreadyUpError when another process took the lock since.
        """
        if self._lock is None:
            return False
        lock = self.path / "lock"
        has_lock = lock.exists() and lock.samefile(f"/proc/self/fd/{self._lock.fileno()}")
        # `rm -r` takes time: it may delete files after the lock was made again.
        if has_lock and self.files.exists() and self.scratch.exists():
            return False
        if not has_lock:
            self.acquire()
        self._make_folders()
        return True

    def _make_folders(self) -> None:
        for folder in (self.logs, self.discovery, self.files, self.scratch):
            folder.mkdir(parents=True, exist_ok=True)

    def owner_pid(self) -> int:
        """The pid of the process that runs the graph; call only while `is_locked`.

        Read from the lock, not from the state file: a killed penstock leaves its state behind, and
        its pid may belong to another process now.
        """
        path = self.path / "lock"
        for _ in range(100):
            if text := path.read_text():
                break
            time.sleep(0.01)  # the owner has the lock and is about to write
        return int(text or 0)

    def is_locked(self) -> bool:
        """Whether a live process runs the graph."""
        path = self.path / "lock"
        if self._lock is not None:
            return True
        if not path.exists():
            return False
        with path.open("a+") as lock:
            try:
                # Shared: two callers of this method must not block each other.
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    def prepare(self) -> None:
        """Create empty folders for this run; deletes the logs of the last one."""
        self.clear()
        shutil.rmtree(self.logs, ignore_errors=True)
        self._make_folders()

    def clear(self) -> None:
        """Remove everything except the logs."""
        shutil.rmtree(self.path / "run", ignore_errors=True)
        self.state_file.unlink(missing_ok=True)

    def write(self, state: LocalState) -> None:
        """Replace the state file in one step: a reader sees the old or the new content."""
        self.path.mkdir(parents=True, exist_ok=True)
        draft = self.path / f"state.json.{os.getpid()}"
        write_file(draft, dump_state(state))
        draft.replace(self.state_file)

    def read(self) -> LocalState | None:
        """The last state written, None when there is none; InputError for one that this version
        cannot read."""
        try:
            text = self.state_file.read_text()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise InputError(
                f"the state of the running graph cannot be read: {reason}",
                file=str(self.state_file),
                fix=f"Run {restart(self.source)}.",
            ) from None
        return load_state(text, self.state_file, self.source)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
