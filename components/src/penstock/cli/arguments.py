"""Arguments that several commands take, declared once."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.cli.command_line import add_switch
from penstock.cli.progress import Progress, add_progress, no_progress, print_line
from penstock.cli.replay_arguments import positive_number
from penstock.errors import InputError, UsageError

WRITABLE = "Name a file in an existing folder in which you may write."
MARKED_BYTES = 500  # the beginning of a file, with the mark of the command that wrote it

if TYPE_CHECKING:
    from penstock.cluster.api import Api
    from penstock.cluster.rollout import Rollout
    from penstock.cluster.wait import Clock, Timeouts
    from penstock.helm import ReleaseTarget
    from penstock.serving.understand import Hints


def add_graph(parser: argparse.ArgumentParser, what: str = "graph YAML or DGD manifest") -> None:
    parser.add_argument("graph", metavar="GRAPH", type=Path, help=what)


def add_sets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="sets",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="override a value of the graph, like Helm's --set; repeatable",
    )


def add_running_sets(parser: argparse.ArgumentParser) -> None:
    """`--set` of a verb that operates on a running graph."""
    parser.add_argument(
        "--set",
        dest="sets",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="fail unless the running `up` has the same --set values; repeatable",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    add_switch(parser, "--json", "print JSON")


def add_wide(parser: argparse.ArgumentParser) -> None:
    add_switch(parser, "--wide", "print all columns (default: those that fit 80)")


def add_namespace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n", "--namespace", default="default", help="Kubernetes namespace (default: default)"
    )


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Select a cluster and a release."""
    parser.add_argument("-n", "--namespace", help="Kubernetes namespace (default: the context's)")
    parser.add_argument(
        "--release", metavar="NAME", help="name of the Helm release (default: the file's name)"
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help="kubeconfig file (default: KUBECONFIG, ~/.kube/config, or the pod's service account)",
    )
    parser.add_argument(
        "--context", metavar="NAME", help="kubeconfig context (default: the current context)"
    )


def add_release(parser: argparse.ArgumentParser) -> None:
    """Select a release by the name of its graph file; the file itself need not exist."""
    add_graph(parser, "graph YAML; its file name is the name of the release")
    add_cluster(parser)


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="skip the confirmation")


def confirm(args: argparse.Namespace, question: str) -> bool:
    """Whether the user confirms. Raises UsageError without a terminal, unless --yes is given."""
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"{question} needs confirmation: use a terminal, or pass --yes")
    answer = ""
    with contextlib.suppress(EOFError):
        answer = input(f"{question}? [y/N] ")
    agrees = answer.strip().lower() in ("y", "yes")
    if not agrees:
        print("no changes were made")
    return agrees


def add_wait(parser: argparse.ArgumentParser) -> None:
    add_switch(parser, "--no-wait", "return after the write without waiting for the rollout")
    parser.add_argument(
        "--timeout-s",
        type=positive_number,
        default=3600.0,
        metavar="S",
        help="time in seconds until all replicas must be ready (default: 3600)",
    )
    add_progress(parser)


def rollout_of(args: argparse.Namespace, api: Api, target: ReleaseTarget) -> Rollout:
    """The rollout with the arguments of `add_wait`."""
    from penstock.cluster.rollout import Rollout

    progress = Progress(args, f"waiting for {target}")
    return Rollout(
        api,
        target,
        print_line,
        timeouts_of(args),
        waits=not args.no_wait,
        print_progress=no_progress if args.quiet else progress.print_line,
        while_waiting=progress.running,
    )


def timeouts_of(args: argparse.Namespace) -> Timeouts:
    from penstock.cluster.wait import Timeouts

    return Timeouts(timeout_s=args.timeout_s, clock=clock())


def clock() -> Clock:
    """The clock of all verbs that wait for a cluster."""
    from penstock.cluster.wait import Clock

    return Clock()


def refuse_sets(args: argparse.Namespace) -> None:
    """A release keeps the values it was applied with."""
    if args.sets:
        raise UsageError(
            "--set applies to local deployments; set values of a release with `penstock apply`"
        )


def target_of(args: argparse.Namespace) -> ReleaseTarget:
    """The release with the arguments of `add_cluster`."""
    from penstock.cluster.connect import context_namespace
    from penstock.helm import ReleaseTarget

    return ReleaseTarget(
        name=args.release or args.graph.stem,
        namespace=args.namespace or context_namespace(args.kubeconfig, args.context),
        kubeconfig=args.kubeconfig,
        context=args.context,
    )


def add_hints(parser: argparse.ArgumentParser) -> None:
    """Hardware and model, for manifests that do not contain them."""
    add_gpu(parser, "GPU of the workers if the file does not name it (h100, …)")
    parser.add_argument(
        "--model",
        metavar="DIR",
        type=Path,
        help="folder with the model's config.json (not needed for gpt-oss)",
    )


def add_gpu(parser: argparse._ActionsContainer, what: str, *, required: bool = False) -> None:
    """`--gpu`, with `--hardware` as another name, in any case."""
    parser.add_argument(
        "--gpu", "--hardware", dest="gpu", metavar="GPU", required=required, help=what
    )


def hints_of(args: argparse.Namespace) -> Hints:
    """`--gpu` and `--model`, checked."""
    from penstock.serving.understand import Hints

    gpu = requested_gpu(args)
    if args.model is not None:
        _require_model(args.model)
    return Hints(gpu=gpu, model_folder=args.model)


def requested_gpu(args: argparse.Namespace) -> str | None:
    """`--gpu`; UsageError for one that is not supported."""
    from penstock.hardware import GPUS, find_gpu
    from penstock.hardware.gpus import gpu_fix

    if args.gpu is None:
        return None
    gpu = find_gpu(args.gpu)
    if gpu is None:
        message, fix = gpu_fix(args.gpu, list(GPUS))
        raise UsageError(message, place="--gpu", fix=fix)
    return gpu.name


def _require_model(folder: Path) -> None:
    from penstock.models.config import BrokenConfigError, UnknownShapeError
    from penstock.models.find import find_model

    if not (folder / "config.json").is_file():
        message = f"{folder} has no config.json"
        fix = "Name the folder with the files of the model."
        raise UsageError(message, place="--model", fix=fix)
    try:
        find_model(folder.name, folder)
    except BrokenConfigError as error:
        raise UsageError(f"--model {folder}: {error}") from None
    except UnknownShapeError:
        pass  # PS307 reports it, and the rest is checked


def add_output(parser: argparse.ArgumentParser, default: str | None = "-") -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default=default,
        help=f"write to FILE (default: {'standard output' if default == '-' else 'no file'})",
    )


def add_no_install(parser: argparse._ActionsContainer, what: str) -> None:
    """``what``: the environments that the command installs, with their sizes."""
    add_switch(parser, "--no-install", f"do not install missing environments: {what}")


class Tool(Protocol):
    """A module that needs an environment: its name, and the size of the installation."""

    NAME: str
    SIZE: str

    def require_environment(self) -> Path: ...


def require_tool(args: argparse.Namespace, tool: Tool) -> None:
    """Install a missing environment, unless --no-install is given: MissingToolError without it."""
    from penstock.local.missing_environment import install_tool

    if not args.no_install:
        install_tool(tool.NAME, tool.SIZE, quiet=args.quiet)
    tool.require_environment()


def add_force(parser: argparse.ArgumentParser, what: str) -> None:
    add_switch(parser, "--force", f"replace FILE if {what}")


def add_generated_output(parser: argparse.ArgumentParser) -> None:
    """`-o` of a command whose own output it replaces without a question."""
    add_output(parser)
    add_force(parser, "penstock did not generate it")


def write_generated(args: argparse.Namespace, text: str, mark: str) -> None:
    """`write_output`, but InputError for a file with other content, unless --force is given.

    ``mark``: what stands at the beginning of every output of the command.
    """
    path = Path(args.output)
    if args.output != "-" and not args.force and is_foreign(path, mark):
        message = "already exists, and penstock did not generate it"
        fix = "Name another file, or pass --force to replace this one."
        raise InputError(message, file=args.output, fix=fix)
    write_output(text, args.output)


def is_foreign(path: Path, *marks: str) -> bool:
    """Whether replacing the path loses something: a file with content that begins with none of the
    marks, or a dangling symbolic link."""
    if path.is_symlink() and not path.exists():
        return True
    if not path.is_file():
        return False  # folders, devices and FIFOs are checked where the file is written
    try:
        with path.open("rb") as file:
            start = file.read(MARKED_BYTES)
    except OSError:
        return True
    return bool(start) and not any(mark.encode() in start for mark in marks)


def require_writable(path: Path, option: str, *, in_place: bool = False) -> None:
    """UsageError, before work that takes minutes, if the file of an option cannot be written.

    ``in_place``: an existing file is overwritten, not replaced, so its folder does not matter.
    """
    folder = path.absolute().parent
    message = fix = ""
    if path.is_dir():
        message, fix = f"{path} is a folder", "Name a file in it."
    elif not folder.is_dir():
        message = f"there is no folder {path.parent}"
        fix = "Create the folder, or name another file."
    elif in_place and path.exists():
        if not os.access(path, os.W_OK):
            message, fix = f"{path} is read-only", WRITABLE
    elif not os.access(folder, os.W_OK):
        message, fix = f"the folder of {path} is read-only", WRITABLE
    if message:
        raise UsageError(message, place=option, fix=fix)


def require_absent(path: Path, *, force: bool) -> None:
    """InputError for a file that exists, unless it may be replaced."""
    if (path.exists() or path.is_symlink()) and not force:
        fix = "Name another file, or add --force to replace it."
        raise InputError("already exists", file=str(path), fix=fix)


def write_output(text: str, target: str) -> None:
    """Print, or write the file atomically."""
    if target == "-":
        print(text, end="" if text.endswith("\n") else "\n")
        return
    from penstock.files import write_atomically

    path = Path(target)
    try:
        if path.is_dir() or (path.exists() and not path.is_file()):
            raise IsADirectoryError(0, "not a regular file")
        write_atomically(path, text)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", file=target or "-o", fix=WRITABLE
        ) from None
