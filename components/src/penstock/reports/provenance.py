"""Where a report comes from: command, files, versions, seed, machine and date."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

import psutil

PACKAGES = ("penstock", "ai-dynamo")
GIB = 2**30
USER = re.compile(r"(?<=//)[^/@\s]+@")  # of a URL, with its password


def provenance(
    command: str,
    *,
    files: Iterable[Path] = (),
    versions: Mapping[str, str] | None = None,
    facts: Mapping[str, str] | None = None,
) -> list[tuple[str, str]]:
    """``files``: graphs and other input; those that cannot be read are left out. ``versions``: of
    other programs. ``facts``: such as the seed. There is no host name, and no user of a URL."""
    return [
        ("command", USER.sub("", command)),
        *((f"SHA-256 of {path}", digest) for path, digest in _digests(files)),
        *(facts or {}).items(),
        ("versions", ", ".join(_versions(versions or {}))),
        ("machine", machine()),
        ("date", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
    ]


def _digests(files: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    for path in dict.fromkeys(files):
        if path.is_file():
            with path.open("rb") as file:
                yield path, hashlib.file_digest(file, "sha256").hexdigest()


def _versions(programs: Mapping[str, str]) -> Iterator[str]:
    for name in PACKAGES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    yield from (f"{name} {number}" for name, number in programs.items())
    yield f"Python {platform.python_version()}"


def machine() -> str:
    """`AMD EPYC 7R13, 8 CPUs, 31 GiB, Debian GNU/Linux 12 (bookworm), Linux 6.1`."""
    memory = psutil.virtual_memory().total / GIB
    parts = [_processor(), f"{os.cpu_count()} CPUs", f"{memory:.0f} GiB", _system()]
    return ", ".join(filter(None, parts))


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return platform.machine()
    model_name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return " ".join(model_name[1].split()) if model_name else platform.machine()


def _system() -> str:
    kernel = f"{platform.system()} {platform.release()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {kernel}"
    except (OSError, KeyError):
        return kernel


def installed(python: Path, *packages: str) -> dict[str, str]:
    """The versions of packages in the environment of ``python``; those that it lacks are left
    out."""
    folders = [str(path) for path in python.parent.parent.glob("lib/python3*/site-packages")]
    versions = {
        package.metadata["Name"]: package.version for package in distributions(path=folders)
    }
    return {name: versions[name] for name in packages if name in versions}
