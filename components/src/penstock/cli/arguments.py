"""Arguments that several commands take, declared once."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.cli.command_line import add_switch
from penstock.cli.progress import Progress, add_progress, no_progress, print_line
from penstock.cli.replaying import add_acceptance
from penstock.cli.values import positive_number, simulation_speed
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.cluster.api import Api
    from penstock.cluster.rights import Preflight
    from penstock.cluster.rollout import Clock, Rollout, Timeouts
    from penstock.helm import ReleaseTarget
    from penstock.serving.understand import Hints


def add_graph(parser: argparse.ArgumentParser, what: str = "graph YAML or DGD manifest") -> None:
    parser.add_argument("graph", metavar="GRAPH", type=Path, help=what)


def add_sets(
    parser: argparse.ArgumentParser, what: str = "override a value of the graph, like Helm's --set"
) -> None:
    parser.add_argument(
        "--set",
        dest="sets",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help=f"{what}; repeatable",
    )


def add_running_sets(parser: argparse.ArgumentParser) -> None:
    """`--set` of a verb that operates on a running graph."""
    add_sets(parser, "fail unless the running `up` has the same --set values")


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


CLUSTER = ("namespace", "release", "kubeconfig", "context")  # the options of `add_cluster`


def require_with(
    args: argparse.Namespace, needed: str, names: Iterable[str], fix: str = "Add {needed}."
) -> None:
    """UsageError for an option that has no effect without ``needed``, another option or its value.
    ``fix``: with `{flag}` and `{needed}`."""
    for flag in given(args, names):
        raise UsageError(f"{flag} needs {needed}", fix=fix.format(flag=flag, needed=needed))


def given(args: argparse.Namespace, names: Iterable[str]) -> dict[str, object]:
    """The options that the command line has, such as `--max-gpus` of `max_gpus`, and their
    settings."""
    settings = {("set" if name == "sets" else name): getattr(args, name) for name in names}
    return {
        f"--{name.replace('_', '-')}": setting
        for name, setting in settings.items()
        if not (setting is None or setting is False or setting == [])
    }


def words_of(args: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """The options as a command line has them."""
    words: list[str] = []
    for flag, setting in given(args, names).items():
        if isinstance(setting, list):
            words += [word for each in setting for word in (flag, str(each))]
        elif isinstance(setting, tuple):
            words += [flag, ",".join(map(str, setting))]
        else:
            words += [flag] if setting is True else [flag, str(setting)]
    return words


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
    from penstock.cluster.rollout import Timeouts

    return Timeouts(timeout_s=args.timeout_s, clock=clock())


def clock() -> Clock:
    """The clock of all verbs that wait for a cluster."""
    from penstock.cluster.rollout import Clock

    return Clock()


def refuse_sets(args: argparse.Namespace) -> None:
    """A release keeps the values it was applied with."""
    if args.sets:
        raise UsageError(
            "--set applies to local deployments; set values of a release with `penstock apply`"
        )


def connected(args: argparse.Namespace) -> tuple[ReleaseTarget, Api]:
    """The release with the arguments of `add_cluster`, and its cluster."""
    from penstock.cluster.api import Api

    target = target_of(args)
    return target, Api.connect(target)


def preflight(target: ReleaseTarget, api: Api, verb: str) -> Preflight:
    """The check of the rights that a verb needs."""
    from penstock.cluster.rights import Preflight, Verb

    return Preflight(api, target, Verb(verb), print_line, clock=clock())


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


def add_requested_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", help="model to request (default: the only one that the endpoint lists)"
    )


def add_mockers(parser: argparse.ArgumentParser, *, engine: str, timing: str, speed: str) -> None:
    """Mockers instead of the engine of a graph, and the time that they take."""
    parser.add_argument("--engine", choices=["mocker"], help=engine)
    parser.add_argument("--timing", choices=["model"], help=timing)
    parser.add_argument("--speed", type=simulation_speed, metavar="X", help=speed)
    add_acceptance(parser)


def require_timing(args: argparse.Namespace, *names: str) -> None:
    """UsageError for options of mockers with predicted step times, without these."""
    if not args.timing:
        require_with(args, "predicted timing", names, "Add --timing model.")


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
    from penstock.hardware import GPUS, gpus

    return gpus.requested_gpu(args.gpu, list(GPUS)).name if args.gpu is not None else None


def _require_model(folder: Path) -> None:
    from penstock.models.config import BrokenConfigError, UnknownShapeError
    from penstock.models.find import find_model

    if not (folder / "config.json").is_file():
        message = f"{folder} has no config.json"
        fix = "Name the folder with the files of the model, or remove --model."
        raise UsageError(message, place="--model", fix=fix)
    try:
        find_model(folder.name, folder)
    except BrokenConfigError as error:
        raise UsageError(f"--model {folder}: {error}") from None
    except UnknownShapeError:
        pass  # PS307 reports it, and the rest is checked


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
