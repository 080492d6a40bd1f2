"""Arguments that several verbs take, declared once."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.checks.subject_of import Given


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


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Which cluster and release; KUBECONFIG is heeded, and in a pod its service account."""
    parser.add_argument("--release", metavar="NAME", help="Helm release (default: the file's name)")
    parser.add_argument("--kubeconfig", metavar="FILE", type=Path, help="default: as kubectl's")
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig")


def add_given(parser: argparse.ArgumentParser) -> None:
    """What a manifest may not say of its machines and its model."""
    parser.add_argument("--gpu", help="GPU of the workers, where the file does not say (h100, …)")
    parser.add_argument(
        "--model",
        metavar="DIR",
        type=Path,
        help="folder with the model's config.json; gpt-oss is known without",
    )


def given_of(args: argparse.Namespace) -> Given:
    """`--gpu` and `--model`, checked."""
    from penstock.checks.subject_of import Given
    from penstock.errors import UsageError
    from penstock.hardware import GPUS

    if args.gpu is not None and args.gpu not in GPUS:
        raise UsageError(f"--gpu {args.gpu} is not known; known: {', '.join(GPUS)}")
    if args.model is not None:
        _require_model(args.model)
    return Given(gpu=args.gpu, model_folder=args.model)


def _require_model(folder: Path) -> None:
    from penstock.errors import UsageError
    from penstock.models.config import BrokenConfigError, UnknownShapeError
    from penstock.models.find import find_model

    if not (folder / "config.json").is_file():
        raise UsageError(f"--model {folder} has no config.json")
    try:
        find_model(folder.name, folder)
    except BrokenConfigError as error:
        raise UsageError(f"--model {folder}: {error}") from None
    except UnknownShapeError:
        pass  # PS307 says so, and the rest is checked


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
