"""`penstock verify TARGET`: check that a running deployment does what its graph declares."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from penstock.cli import arguments, outputs
from penstock.cli.command_line import add_switch
from penstock.cli.outputs import add_report, require_report
from penstock.cli.progress import Progress, add_progress
from penstock.errors import InputError, NotVerifiedError, Problem, UsageError
from penstock.graph.choices import Probe

if TYPE_CHECKING:
    from penstock.graph.model import Graph
    from penstock.verify.probes import ProbeRun
    from penstock.verify.target import ProbeTarget, Process


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="URL|GRAPH",
        help="URL of an endpoint, or a graph that `penstock up` runs on this machine",
    )
    add_switch(
        parser,
        "--cluster",
        "verify the release of GRAPH on a cluster, through a port forwarded to its frontends, with "
        "the metrics and logs of its pods",
    )
    arguments.add_cluster(parser)
    parser.add_argument(
        "--graph",
        type=Path,
        help="graph YAML or DGD manifest to verify against (default: the running GRAPH)",
    )
    arguments.add_sets(parser)
    parser.add_argument(
        "--metrics",
        metavar="URL",
        action="append",
        default=[],
        help="read the metrics of a worker or frontend; repeatable (default with GRAPH: all)",
    )
    parser.add_argument(
        "--log",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="read the log of a worker or frontend; repeatable (default with GRAPH: all)",
    )
    parser.add_argument(
        "--model-dir",
        metavar="DIR",
        type=Path,
        help="folder with the model's config.json (default: the model's folder on this machine)",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=get_args(Probe),
        default=[],
        metavar="PROBE",
        help=f"run only this probe; repeatable (default: all): {', '.join(get_args(Probe))}",
    )
    add_report(parser, "write an HTML report")
    arguments.add_json(parser)
    add_progress(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.verify.documents import verify_document
    from penstock.verify.preflight import require_endpoint
    from penstock.verify.probes import run_probes
    from penstock.verify.report import print_results, report_of

    require_report(args.report)
    with _target(args) as target:
        require_endpoint(target)
        progress = Progress(args, "running probes")
        with progress.running():
            results = _hiding(progress, run_probes(target, args.only))
            if args.json:
                probes = list(results)
            else:
                probes = print_results(results, is_mocked=target.is_mocked)
    if args.json:
        print(verify_document(probes, is_mocked=target.is_mocked).as_json(indent=1))
    report = report_of(args.target, probes, is_mocked=target.is_mocked)
    outputs.write_report(args, report, [args.target, args.graph])
    failed = [probe.name for probe in probes if not probe.ok]
    if failed:
        raise NotVerifiedError(f"not verified: {', '.join(failed)}")
    return 0


def _hiding(progress: Progress, results: Iterator[ProbeRun]) -> Iterator[ProbeRun]:
    """Remove the line of progress before each result is printed."""
    for count, result in enumerate(results, start=1):
        progress.hide()
        yield result
        progress(f"running probes, {count} done")


@contextmanager
def _target(args: argparse.Namespace) -> Iterator[ProbeTarget]:
    """Of a URL, of a graph that runs here, or of a release."""
    from penstock.manifests.source import open_source
    from penstock.verify.expected import read_expectations
    from penstock.verify.target import ProbeTarget, Process, log_in, metrics_at
    from penstock.verify.urls import is_url, require_urls

    remote = is_url(args.target)
    _require_fitting(args, remote=remote)
    require_urls([*([args.target] if remote else []), *args.metrics])
    _require_readable(args)
    graph = args.graph or (None if remote else Path(args.target))
    source = open_source(graph, args.sets) if graph is not None else None
    loaded = source.loaded if source is not None else None
    target = ProbeTarget(
        url=args.target.rstrip("/").removesuffix("/v1"),
        expected=read_expectations(source) if source is not None else None,
        processes=(
            *(Process(name=url, metrics=metrics_at(url)) for url in args.metrics),
            *(Process(name=str(path), log=log_in(path)) for path in args.log),
        ),
        model_folder=args.model_dir or (_model_folder(loaded.graph) if loaded else None),
    )
    with ExitStack() as stack:
        if args.cluster:
            target.url, pods = stack.enter_context(_release(args))
            target.processes += pods
        elif not remote and source is not None:
            counts = {c.name: c.replicas for c in source.deployment.components}
            target = _running_here(target, Path(args.target), args, counts)
        stack.callback(target.close)
        yield target


def _release(args: argparse.Namespace) -> AbstractContextManager[tuple[str, tuple[Process, ...]]]:
    from penstock.verify.release import opened_release

    named = argparse.Namespace(**vars(args) | {"graph": Path(args.target)})
    return opened_release(arguments.target_of(named), partial(print, file=sys.stderr))


def _require_fitting(args: argparse.Namespace, *, remote: bool) -> None:
    """UsageError for options that have no effect."""
    if not args.cluster:
        arguments.require_with(args, "--cluster", arguments.CLUSTER)
    elif remote:
        raise UsageError("--cluster: name the graph of the release, not a URL")


def _model_folder(graph: Graph) -> Path | None:
    """The model's files, if they are on this machine."""
    from penstock.local.llamacpp_engine import find_gguf
    from penstock.local.machine import model_folder

    name = graph.model.path or graph.model.id
    if graph.engine.kind != "llamacpp":
        return model_folder(name)
    try:
        return find_gguf(name).folder
    except InputError:
        return None


def _require_readable(args: argparse.Namespace) -> None:
    missing = [path for path in args.log if not path.is_file()]
    if args.model_dir is not None and not (args.model_dir / "config.json").is_file():
        missing.append(args.model_dir / "config.json")
    if missing:
        fix = "Check the path."
        raise InputError(
            *(Problem(file=str(path), message="no such file", fix=fix) for path in missing)
        )
    if args.sets and args.graph is None and "://" in args.target:
        raise InputError("--set needs --graph", fix="Add --graph GRAPH.")


def _running_here(
    target: ProbeTarget, path: Path, args: argparse.Namespace, counts: dict[str, int]
) -> ProbeTarget:
    """``target`` with the addresses from the state file of the running graph at ``path``.

    An edit of the file is applied first: ``counts`` are its replicas of each component.
    """
    from dataclasses import replace

    from penstock.local.control import settled, status
    from penstock.local.reconcile import ReplicaState
    from penstock.manifests.deployment import Role
    from penstock.verify.target import Process, log_in, metrics_at

    state = status(path, args.sets if args.graph is None else ()).state
    if args.graph is None:
        state = settled(path, counts)
    processes = (
        Process(
            name=r.name,
            pool=r.program,
            role=r.role,
            metrics=None
            if r.role is Role.OTHER or r.state is not ReplicaState.READY
            else metrics_at(f"http://127.0.0.1:{r.system_port or r.port}/metrics"),
            log=log_in(Path(r.log)),
        )
        for r in state.replicas
    )
    return replace(
        target,
        url=state.endpoint.removesuffix("/v1"),
        has_substitute=state.has_substitute,
        namespace=state.discovery.namespace,
        processes=(*processes, *target.processes),
    )
