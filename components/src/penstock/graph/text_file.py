"""Read a text file that the user named, or a graph that comes with penstock; an error says what is
wrong with it.

It imports nothing of the graph model, so that `penstock check` of a manifest starts without
pydantic.
"""

from __future__ import annotations

import codecs
import stat
from pathlib import Path

from penstock.errors import InputError, Problem, UsageError
from penstock.files import shipped
from penstock.text.names import did_you_mean, nearest

# A pipe of the shell: standard input, or `<(…)`.
PIPES = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
# First bytes → what the file is, and how to get its text.
SIGNATURES = (
    (b"\x1f\x8b", "is compressed with gzip", "Decompress it: `gunzip FILE`."),
    (b"PK\x03\x04", "is a ZIP archive", "Extract it, and name a file that it contains."),
    (b"\x28\xb5\x2f\xfd", "is compressed with Zstandard", "Decompress it: `unzstd FILE`."),
    (codecs.BOM_UTF32_LE, "is UTF-32, not UTF-8", "Convert it: `iconv -f UTF-32 -t UTF-8 FILE`."),
    (codecs.BOM_UTF16_LE, "is UTF-16, not UTF-8", "Convert it: `iconv -f UTF-16 -t UTF-8 FILE`."),
    (codecs.BOM_UTF16_BE, "is UTF-16, not UTF-8", "Convert it: `iconv -f UTF-16 -t UTF-8 FILE`."),
)
BEGINNING = 4096  # bytes that show whether a file is text


def read_text_file(path: Path, most_bytes: int | None = None) -> str:
    """The text of a file that the user named, without a byte order mark.

    Raises InputError if it cannot be read, or has more than ``most_bytes``.
    """
    try:
        if problem := _not_a_file(path):
            raise InputError(problem)
        with path.open("rb") as file:
            content = file.read() if most_bytes is None else file.read(most_bytes + 1)
        if problem := _not_text(path, content[:BEGINNING]):
            raise InputError(problem)
        if most_bytes is None or len(content) <= most_bytes:
            return content.decode("utf-8-sig")
        mib = f"{most_bytes / 2**20:.0f} MiB"
        fix = "Name a graph or a manifest, or split the file."
        problem = Problem(file=str(path), message=f"is larger than {mib}, the limit", fix=fix)
    except FileNotFoundError:
        problem = Problem(file=str(path), message="no such file", fix=_similar(path))
    except IsADirectoryError:
        problem = Problem(file=str(path), message="is a directory", fix="Name a file.")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{error.object[error.start]:02x} at offset {error.start}"
        line = error.object.count(b"\n", 0, error.start) + 1
        problem = Problem(
            file=str(path), line=line, message=f"not UTF-8: {byte}", fix="Save the file as UTF-8."
        )
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        fix = "Check the path and its permissions."
        problem = Problem(file=str(path), message=message, fix=fix)
    raise InputError(problem)


def _not_a_file(path: Path) -> Problem | None:
    """A named pipe without a writer, a terminal or /dev/zero would be read forever."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or str(path).startswith(PIPES):
        return None
    kinds = ((stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))
    kind = next((name for is_kind, name in kinds if is_kind(mode)), "a device")
    return Problem(file=str(path), message=f"is {kind}, not a file", fix="Name a file.")


def _not_text(path: Path, beginning: bytes) -> Problem | None:
    for signature, message, fix in SIGNATURES:
        if beginning.startswith(signature):
            return Problem(file=str(path), message=message, fix=fix.replace("FILE", str(path)))
    nuls = beginning.count(0)
    if nuls < max(2, len(beginning) // 100):
        return None  # the reader reports a character that is not allowed
    if nuls >= len(beginning) // 3 and 0 in beginning[:2]:
        order = "BE" if beginning[0] == 0 else "LE"
        fix = f"Convert it: `iconv -f UTF-16{order} -t UTF-8 {path}`."
        return Problem(file=str(path), message="is UTF-16, not UTF-8", fix=fix)
    message = f"is a binary file, not text: byte 0x00 at offset {beginning.index(0)}"
    return Problem(file=str(path), message=message, fix="Name a graph or a manifest.")


def _similar(path: Path) -> str:
    """Suggest a graph of the same name that comes with penstock, or a YAML file of the same
    directory with a similar name."""
    if (there := path.parent / "dynamo_graphs" / path.name).is_file():
        return f"Did you mean `{there}`?"
    if path.stem in shipped_graphs():
        return f"`penstock init --example {path.stem}` writes a copy of this graph."
    try:
        names = [p.name for p in path.parent.iterdir() if p.suffix in (".yaml", ".yml")]
    except OSError:
        names = []
    if close := nearest(path.name, sorted(names), 0.7):
        return f"Did you mean `{path.parent / close}`?"
    return "Check the path."


def shipped_graphs() -> list[str]:
    """The names of the graphs that come with penstock, without `.yaml`."""
    return sorted(file.stem for file in _folder().glob("*.yaml"))


def shipped_graph(name: str) -> str:
    """The text of the graph with this name; UsageError if none has it."""
    name = name.removesuffix(".yaml")
    names = shipped_graphs()
    if name in names:
        return (_folder() / f"{name}.yaml").read_text("utf-8")
    fix = did_you_mean(name, names) or f"Use one of {', '.join(names)}."
    raise UsageError(f"no graph is called {name!r}", place="--example", fix=fix)


def _folder() -> Path:
    return shipped("graphs", "dynamo_graphs")
