"""Arguments that several verbs take, declared once."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path


def add_graph(parser: argparse.ArgumentParser, what: str = "graph YAML or DGD manifest") -> None:
    parser.add_argument("graph", metavar="GRAPH", type=Path, help=what)


def add_sets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="sets",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="override a value of the graph, as Helm's --set; may be repeated",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_namespace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--namespace", default="default", help="Kubernetes namespace (default: default)"
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="-",
        help="write there; -: standard output",
    )


def write_output(text: str, target: str) -> None:
    """Print, or write the whole file at once."""
    if target == "-":
        print(text, end="" if text.endswith("\n") else "\n")
        return
    from penstock.errors import InputError, Problem

    path = Path(target)
    draft = path.with_name(f".{path.name}.penstock")
    try:
        if path.is_dir() or (path.exists() and not path.is_file()):
            raise IsADirectoryError(0, "not a regular file")
        draft.write_text(text)
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise InputError(
            Problem(file=target, message=f"cannot be written: {error.strerror}")
        ) from None
