"""Read a text file that the user named; an InputError says what is wrong with it.

It imports nothing of the graph model, so that `penstock check` of a manifest starts without
pydantic.
"""

from __future__ import annotations

from pathlib import Path

from penstock.errors import InputError, Problem
from penstock.graph.shipped_graphs import shipped_graphs
from penstock.nearest import nearest


def read_text_file(path: Path, most_bytes: int | None = None) -> str:
    """The text of a file that the user named.

    Raises InputError if it cannot be read, or has more than ``most_bytes``.
    """
    try:
        with path.open("rb") as file:
            content = file.read() if most_bytes is None else file.read(most_bytes + 1)
        if most_bytes is None or len(content) <= most_bytes:
            return content.decode()
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


def _similar(path: Path) -> str:
    """Suggest a graph of the same name that comes with penstock, or a YAML file of the same
    directory with a similar name."""
    if (there := path.parent / "dynamo_graphs" / path.name).is_file():
        return f"Did you mean {there}?"
    if path.stem in shipped_graphs():
        return f"`penstock init --example {path.stem}` writes a copy of this graph."
    try:
        names = [p.name for p in path.parent.iterdir() if p.suffix in (".yaml", ".yml")]
    except OSError:
        names = []
    if close := nearest(path.name, sorted(names), 0.5):
        return f"Did you mean {path.parent / close}?"
    if path.stem in shipped_graphs():
        return f"`penstock init --example {path.stem}` writes a copy of this graph."
    return "Check the path."
