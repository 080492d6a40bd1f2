"""KV caches between two processes, through memory files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.llamacpp.shared_memory import KvFiles, TransferError, discard, opened

# The prefill worker: writes each line into a file, and answers with its handle.
CHILD = """
import json, os, sys
from penstock.llamacpp.shared_memory import KvFiles
files = KvFiles(60.0)
for line in sys.stdin:
    command, text = line.split()
    if command == "create":
        file = files.create(0.0)
        os.write(file, text.encode())
        print(json.dumps(files.handle(file, 0.0)), flush=True)
    else:
        files.drop(float(text))
        print(json.dumps(files.pending), flush=True)
"""


class Prefill:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, command: str, text: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command} {text}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)


@contextmanager
def prefill() -> Iterator[Prefill]:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        worker = Prefill(process)
        try:
            yield worker
        finally:
            worker.kill()


def test_another_process_reads_the_file_and_empties_it() -> None:
    with prefill() as worker:
        handle = worker("create", "keys-and-values")
        assert worker("drop", "1") == 1
        with opened(handle) as file:
            assert os.pread(file, 100, 0) == b"keys-and-values"
        assert worker("drop", "1") == 0
        with pytest.raises(TransferError), opened(handle):
            pass


def test_a_file_of_a_dead_process_is_gone() -> None:
    with prefill() as worker:
        handle = worker("create", "x")
        worker.kill()
    with pytest.raises(TransferError, match=f"/proc/{handle['pid']}/fd/"), opened(handle):
        pass
    discard(handle)  # without an error


def test_an_expired_file_is_dropped_and_a_newer_one_is_kept() -> None:
    files = KvFiles(10.0)
    old, new = _written(files, b"old", 0.0), _written(files, b"new", 5.0)
    files.drop(10.5)
    with pytest.raises(TransferError), opened(old):
        pass
    with opened(new) as file:
        assert os.pread(file, 9, 0) == b"new"
    files.close()


def test_a_descriptor_that_was_used_again_is_recognized() -> None:
    files = KvFiles(60.0)
    old = _written(files, b"same size", 0.0)
    files.discard(old["fd"])
    new = _written(files, b"same size", 0.0)
    assert new["fd"] == old["fd"], "the kernel gives the lowest free number"
    with pytest.raises(TransferError, match="not the file of this request"), opened(old):
        pass
    with opened(new) as file:
        assert os.pread(file, 9, 0) == b"same size"
    files.close()


def test_a_failed_read_keeps_the_file_for_another_attempt() -> None:
    files = KvFiles(60.0)
    handle = _written(files, b"kv", 0.0)
    with pytest.raises(KeyError), opened(handle):
        raise KeyError
    assert files.pending == 1
    discard(handle)
    assert files.pending == 0
    files.close()


def test_a_file_that_is_being_written_is_not_taken_for_one_that_was_read() -> None:
    """Its descriptor would be given to the next request, and both would write into one file."""
    files = KvFiles(60.0)
    first = files.create(0.0)
    second = files.create(0.0)
    assert first != second
    os.write(first, b"first")
    os.write(second, b"second")
    with opened(files.handle(first, 0.0)) as file:
        assert os.pread(file, 9, 0) == b"first"
    with opened(files.handle(second, 0.0)) as file:
        assert os.pread(file, 9, 0) == b"second"
    files.create(0.0)  # a third, whose request fails
    files.close()


def test_no_descriptor_stays_open() -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    files = KvFiles(60.0)
    for number in range(5):
        discard(_written(files, b"kv", float(number)))
    files.close()
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def _written(files: KvFiles, content: bytes, now: float) -> dict[str, Any]:
    file = files.create(now)
    os.write(file, content)
    return files.handle(file, now)
