"""The targets of `penstock bench`: endpoints that run, and graphs that it starts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.command_line import add_switch
from penstock.cli.progress import Progress
from penstock.cli.replaying import requested_slo
from penstock.errors import BenchError, PenstockError, StartError, UsageError

if TYPE_CHECKING:
    from penstock.bench.aiperf import Endpoint
    from penstock.graph.slo import Slo
    from penstock.local.state_file import LocalState
    from penstock.verify.target import ProbeTarget

START_LIMIT_S = 600.0  # an engine on a CPU compiles for minutes
OF_STARTED = ("engine", "timing", "speed", "acceptance")


@dataclass(frozen=True, kw_only=True)
class Target:
    endpoint: Endpoint
    slo: Slo
    """Of the command line and of the graph."""
    has_own_engines: bool
    """Whether it is a graph whose own engines serve, and no substitutes."""


@dataclass(frozen=True, kw_only=True)
class _Served:
    url: str
    file: Path | None = None
    """Of the graph that runs there; None if it is not known."""
    sets: tuple[str, ...] = ()
    has_substitutes: bool = False


def add_targets(parser: argparse.ArgumentParser, several: str) -> None:
    """``several``: what more than one target means."""
    parser.add_argument(
        "targets",
        metavar="URL|GRAPH",
        nargs="+",
        help="URL of an endpoint, or a graph that `penstock up` runs on this machine or, with "
        f"--cluster, that is released on a cluster; {several}",
    )
    arguments.add_requested_model(parser)
    arguments.add_sets(parser)
    add_switch(
        parser,
        "--start",
        "start each GRAPH on this machine for this run, as `penstock up` does, and stop it",
    )
    arguments.add_mockers(
        parser,
        engine="with --start: run mockers instead of the engine",
        timing="with --start: the mockers take as long as `simulate` predicts",
        speed="with --timing: simulation speed; 0.5 runs at half real time, and all figures are "
        "in simulated time (default: 1)",
    )
    arguments.add_no_install(
        parser, "aiperf (0.8 GB), agentperf (0.1 GB), and with --start those of `penstock up`"
    )
    add_switch(
        parser,
        "--cluster",
        "measure the release of each GRAPH on a cluster, through the API server",
    )
    arguments.add_cluster(parser)


def require_started(args: argparse.Namespace) -> None:
    """UsageError for `--start`, `--cluster` or `--set` without a graph, and for options that need
    `--start` or `--cluster`."""
    from penstock.verify.urls import is_url

    for flag, is_given in (("--start", args.start), ("--cluster", args.cluster)):
        if is_given and all(map(is_url, args.targets)):
            message = f"{flag} needs a graph, and the target is a URL"
            raise UsageError(message, fix=f"Name a graph, or remove {flag}.")
    if args.start and args.cluster:
        raise UsageError("--start cannot be combined with --cluster", fix="Remove one of them.")
    if args.cluster and not args.predict:
        arguments.refuse_sets(args)
    if args.release and len(args.targets) > 1:
        message = "--release names one release, and there are two targets"
        fix = "Remove --release; each release then has the name of its file."
        raise UsageError(message, fix=fix)
    if args.sets and not args.predict and all(map(is_url, args.targets)):
        message = "--set needs a graph, and the target is a URL"
        raise UsageError(message, fix="Name a graph, or remove --set.")
    if not args.start:
        arguments.require_with(args, "--start", OF_STARTED)
    if not args.cluster:
        arguments.require_with(args, "--cluster", arguments.CLUSTER)
    arguments.require_timing(args, "speed", "acceptance")


@contextmanager
def requested_targets(
    args: argparse.Namespace, folder: Path, progress: Progress
) -> Iterator[list[Target]]:
    """All targets, which respond; graphs that this starts are stopped at the end. Their logs are
    in ``folder``. StartError for a graph that does not start."""
    from penstock.verify.urls import is_url

    with ExitStack() as opened:
        served = []
        for number, target in enumerate(args.targets, start=1):
            graph, graph_folder = Path(target), folder / f"graph-{number}"
            if args.start and not is_url(target):
                started = _started(args, graph, graph_folder, progress)
                served.append(opened.enter_context(started))
            elif args.cluster and not is_url(target):
                served.append(opened.enter_context(_released(args, graph, progress)))
            else:
                served.append(running_target(args, target))
        yield [_target(args, *pair) for pair in zip(args.targets, served, strict=True)]


@contextmanager
def _started(
    args: argparse.Namespace, graph: Path, folder: Path, progress: Progress
) -> Iterator[_Served]:
    """The graph, which runs until the end."""
    from penstock.drill.graph_process import GraphProcess
    from penstock.local.missing_environment import install_missing
    from penstock.local.ports import Ports

    if not args.no_install:
        install_missing(graph, args.sets, with_engine=args.engine is None, quiet=args.quiet)
    folder.mkdir()
    options = ["--port", str(Ports().free()), *arguments.words_of(args, [*OF_STARTED, "sets"])]
    progress(f"starting {graph.name}")
    with GraphProcess(graph, folder, options) as process:
        try:
            with progress.running():
                url = process.wait_ready(START_LIMIT_S)
        except TimeoutError as error:
            raise StartError(str(error)) from None
        has_substitutes = any(each["is_substitute"] for each in process.state()["replicas"])
        sets = tuple(args.sets)
        yield _Served(url=url, file=graph, sets=sets, has_substitutes=has_substitutes)


@contextmanager
def _released(args: argparse.Namespace, graph: Path, progress: Progress) -> Iterator[_Served]:
    """The graph's release, at a local port."""
    from penstock.bench.cluster_target import forwarded_release

    args.graph = graph
    target = arguments.target_of(args)

    def say(line: str) -> None:
        progress.hide()
        print(line, file=sys.stderr)

    with forwarded_release(target, say) as url:
        yield _Served(url=url, file=graph)


def running_target(args: argparse.Namespace, target: str) -> _Served:
    """An endpoint that runs. NotUpError for a graph that does not."""
    from penstock.local.control import status
    from penstock.local.graphs import list_graphs
    from penstock.local.state import StateDir
    from penstock.verify.urls import is_url, require_urls

    state: LocalState | None
    if is_url(target):
        require_urls([target])
        url = target.rstrip("/")
        local = next((g for g in list_graphs() if g.url and g.url.removesuffix("/v1") == url), None)
        state = StateDir.of_folder(Path(local.folder)).read() if local else None
    else:
        state = status(Path(target), args.sets).state
        url = state.endpoint
    if state is None:
        return _Served(url=url)
    file, sets = Path(state.source), state.sets
    return _Served(url=url, file=file, sets=sets, has_substitutes=state.has_substitute)


def is_mocked(served: _Served) -> bool | None:
    """Whether mockers serve: instead of the graph's engine, or because the graph says so."""
    from penstock.manifests.deployment import Engine
    from penstock.manifests.source import open_source
    from penstock.serving.understand import Hints, understand

    if served.has_substitutes:
        return True
    if served.file is None:
        return None
    try:
        workers = understand(open_source(served.file, served.sets), Hints()).workers
    except PenstockError:
        return None  # an edit since its start that `up` rejects
    return any(worker.engine is Engine.MOCKER for worker in workers)


def _target(args: argparse.Namespace, target: str, served: _Served) -> Target:
    from penstock.bench.aiperf import Endpoint
    from penstock.manifests.source import open_source
    from penstock.verify.preflight import require_endpoint
    from penstock.verify.target import ProbeTarget
    from penstock.verify.urls import is_url

    source = None if is_url(target) else open_source(Path(target), args.sets)
    slo = source.loaded.graph.slo if source is not None and source.loaded else None
    probed = ProbeTarget(url=served.url.removesuffix("/v1"))
    try:
        require_endpoint(probed)
        endpoint = Endpoint(
            url=probed.url,
            model=model_of(probed, args.model),
            graph="" if is_url(target) else target,
            is_chat=args.chat,
            speed=args.speed or 1.0,
            engine_is_substitute=is_mocked(served),
        )
    finally:
        probed.close()
    return Target(
        endpoint=endpoint,
        slo=requested_slo(args, slo),
        has_own_engines=not (is_url(target) or served.has_substitutes),
    )


def model_of(endpoint: ProbeTarget, requested: str | None) -> str:
    """UsageError for a model that the endpoint does not list, and if it lists several; BenchError
    if it lists none."""
    listed = ", ".join(endpoint.models)
    if requested in endpoint.models or (requested is None and len(endpoint.models) == 1):
        return requested or endpoint.models[0]
    if not endpoint.models:
        fix = "Wait until a worker has registered its model."
        raise BenchError("lists no model", place=endpoint.url, fix=fix)
    what = f"{len(endpoint.models)} models" if requested is None else f"no model {requested}"
    message = f"{endpoint.url} lists {what}: {listed}"
    raise UsageError(message, place="--model", fix="Name one of them.")


def gpus_of(args: argparse.Namespace) -> int | None:
    """Of the first target; None for a URL, and for a graph without GPUs."""
    from penstock.manifests.source import open_source
    from penstock.verify.urls import is_url

    target = args.targets[0]
    return None if is_url(target) else open_source(Path(target), args.sets).deployment.gpus or None
