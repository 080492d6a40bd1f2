"""Finds the files of a capture, and reads their lines, compressed or not."""

from __future__ import annotations

import codecs
import glob
import gzip
import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import InputError, Problem

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".log", ".log.gz")  # in a folder
LONGEST_LINE = 64 * 2**20  # bytes; a record of a million tokens has about 1 MiB
_SEGMENT = re.compile(r"\.\d{6}(?=\.jsonl\.gz$)")  # of Dynamo's file sink
_READABLE = "Check the path and its permissions."


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    number: int  # from 1
    text: bytes
    is_complete: bool = True  # False: the file ends inside the line


def find_files(sources: Sequence[str]) -> list[Path]:
    """The files that paths, patterns and folders name, each once, in the order of their names.

    InputError for a source without files.
    """
    files: dict[str, Path] = {}
    problems: list[Problem] = []
    for source in sources:
        paths, problem = _files_of(source)
        problems += [problem] if problem else []
        for path in paths:
            # Unlike Path.resolve, realpath raises nothing for a symbolic link to itself.
            files.setdefault(os.path.realpath(path), path)
    if problems:
        raise InputError(*problems)
    return list(files.values())


def _files_of(source: str) -> tuple[list[Path], Problem | None]:
    path = Path(source)
    if path.is_dir():
        try:
            files = sorted(p for p in path.iterdir() if p.name.endswith(SUFFIXES) and p.is_file())
        except OSError as error:
            return [], _unreadable(path, error)
        endings = ", ".join(SUFFIXES)
        message = f"the folder has no file that ends with {endings}"
        return files, None if files else Problem(file=source, message=message, fix="Name files.")
    if path.exists() and not path.is_file():
        # Each file is read twice: to detect its format, and for its requests.
        message, fix = "is not a regular file", "Write the log to a file, and name that file."
        return [], Problem(file=source, message=message, fix=fix)
    if path.exists() or path.is_symlink():
        return [path], None
    names = glob.glob(source, recursive=True)  # noqa: PTH207  # Path.glob needs a relative pattern
    files = sorted(path for path in map(Path, names) if path.is_file())
    message = "no file matches" if glob.has_magic(source) else "no such file"
    return files, None if files else Problem(file=source, message=message, fix="Check the path.")


def stream_of(path: Path) -> str:
    """Equal for the files of Dynamo's file sink that have the same path in its settings."""
    return str(path.with_name(_SEGMENT.sub("", path.name)))


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a file that are not empty.

    A compressed file that is still being written ends with an incomplete line. InputError for a
    file that cannot be read.
    """
    number = 0
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            raise IsADirectoryError(0, "is a directory")
        with path.open("rb") as raw:
            is_compressed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if is_compressed else path.open("rb") as file:
            while text := file.readline(LONGEST_LINE):
                number += 1
                if number == 1:
                    text = text.removeprefix(codecs.BOM_UTF8)
                if stripped := text.strip():
                    is_complete = text.endswith(b"\n")
                    yield Line(number=number, text=stripped, is_complete=is_complete)
                if not text.endswith(b"\n") and len(text) == LONGEST_LINE:
                    message = f"is longer than {LONGEST_LINE // 2**20} MiB"
                    fix = "Name a log with one record per line."
                    raise InputError(Problem(file=str(path), line=number, message=message, fix=fix))
    except EOFError:
        yield Line(number=number + 1, text=b"", is_complete=False)
    except (gzip.BadGzipFile, zlib.error) as error:
        message = f"is damaged after line {number}: {error}"
        fix = "Copy the file again, or remove it."
        raise InputError(Problem(file=str(path), message=message, fix=fix)) from None
    except OSError as error:
        raise InputError(_unreadable(path, error)) from None


def _unreadable(path: Path, error: OSError) -> Problem:
    message = f"cannot be read: {error.strerror or error}"
    return Problem(file=str(path), message=message, fix=_READABLE)
