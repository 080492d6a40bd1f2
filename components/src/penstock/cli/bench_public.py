"""`penstock bench public`: the public methods of Artificial Analysis and OpenRouter."""

from __future__ import annotations

import argparse
from pathlib import Path

from penstock.cli import arguments
from penstock.cli.bench_outputs import add_out, run_folder
from penstock.cli.bench_targets import Target, add_targets, requested_targets, require_started
from penstock.cli.outputs import print_result
from penstock.cli.progress import LINE_INTERVAL_S, Progress, add_progress
from penstock.cli.replaying import add_request_timeout, end_as_interrupted
from penstock.cli.values import add_count, duration_ms
from penstock.errors import UsageError

ARTIFICIAL_ANALYSIS, OPENROUTER = "artificial-analysis", "openrouter"
SYSTEM_LOAD, AGENTPERF = "system-load", "agentperf"
SINGLE = ("10k", "1k", "100k", "1k-parallel")
PARTS = (*SINGLE, SYSTEM_LOAD, AGENTPERF)
REPLAYS = ("agentperf-default-v1", "aa-mini-v1")
TIMEOUT_MS = 600_000.0  # the default of --request-timeout
DURATION_MS = 1_800_000.0  # of OpenRouter's percentiles
PHASE_MS = 180_000.0  # of Artificial Analysis' System Load Test
# Option → the parts with which it applies; the method of OpenRouter has the empty part.
PARTS_OF = {
    "part": PARTS,
    "phase": (SYSTEM_LOAD,),
    "max_concurrency": (SYSTEM_LOAD,),
    "replay": (AGENTPERF,),
    "requests": SINGLE,
    "duration": ("",),
}
METHOD_OF = {"part": f"--method {ARTIFICIAL_ANALYSIS}", "duration": f"--method {OPENROUTER}"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(chat=False, ttft=None, itl=None, e2e=None)  # the methods define them
    add_targets(parser, f"with {OPENROUTER}, the frontends of one deployment")
    parser.add_argument(
        "--method", required=True, choices=[ARTIFICIAL_ANALYSIS, OPENROUTER], help="public method"
    )
    parser.add_argument(
        "--part",
        choices=PARTS,
        metavar="PART",
        help=f"test of {ARTIFICIAL_ANALYSIS}: {', '.join(PARTS)} (default: {SINGLE[0]})",
    )
    parser.add_argument(
        "--phase",
        type=duration_ms,
        metavar="180s",
        help=f"with --part {SYSTEM_LOAD}: length of a phase (default: {PHASE_MS / 1000:g}s)",
    )
    add_count(
        parser,
        "--max-concurrency",
        f"with --part {SYSTEM_LOAD}: end after this concurrency (default: when the "
        "throughput no longer rises)",
    )
    parser.add_argument(
        "--replay",
        choices=REPLAYS,
        help=f"with --part {AGENTPERF}: requests to replay (default: {REPLAYS[0]})",
    )
    add_count(parser, "--requests", "number of requests of a part (default: the method's)")
    parser.add_argument(
        "--duration",
        type=duration_ms,
        metavar="120s",
        help=f"with --method {OPENROUTER}: time for which metrics are read (default: 30m)",
    )
    add_request_timeout(parser, TIMEOUT_MS)
    add_out(parser)
    arguments.add_json(parser)
    add_progress(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.bench import aiperf
    from penstock.bench.methods import agentperf

    _require_fitting(args)
    end_as_interrupted()
    part = _chosen(args)
    measure = {SYSTEM_LOAD: _system_load, AGENTPERF: _agentperf, "": _openrouter}.get(part, _part)
    with run_folder(args.out) as folder:
        if part:  # before a graph is started
            arguments.require_tool(args, agentperf if part == AGENTPERF else aiperf)
        progress = Progress(args, "connecting", line_interval_s=LINE_INTERVAL_S)
        with requested_targets(args, folder, progress) as targets:
            measure(args, targets, folder, progress)
    return 0


def _require_fitting(args: argparse.Namespace) -> None:
    """UsageError for options that do not fit the method."""
    for name, parts in PARTS_OF.items():
        if _chosen(args) not in parts:
            needed = METHOD_OF.get(name, f"--part {', '.join(parts)}")
            arguments.require_with(args, needed, [name], "Remove {flag}.")
    if args.method == OPENROUTER:
        if args.request_timeout != TIMEOUT_MS:
            message = f"--request-timeout does not apply to --method {OPENROUTER}"
            raise UsageError(message, fix="Remove --request-timeout.")
        if args.start:
            message = f"--start does not apply to --method {OPENROUTER}, which sends no requests"
            raise UsageError(
                message, fix="Start the graph with `penstock up`, and send it requests."
            )
        if args.cluster:
            fix = "Name the URL of each frontend, for example in a pod of the cluster."
            raise UsageError(f"--cluster does not apply to --method {OPENROUTER}", fix=fix)
    elif len(args.targets) > 1:
        raise UsageError(f"--method {args.method} measures one target", fix="Name one target.")
    if args.speed and _chosen(args) == AGENTPERF:
        raise UsageError(f"--speed does not apply to --part {AGENTPERF}", fix="Remove --speed.")
    require_started(args)


def _chosen(args: argparse.Namespace) -> str:
    """The part of the method; empty if it has none."""
    return (args.part or SINGLE[0]) if args.method == ARTIFICIAL_ANALYSIS else ""


def _part(
    args: argparse.Namespace, targets: list[Target], folder: Path, progress: Progress
) -> None:
    from penstock.bench.methods.artificial_analysis import PARTS, measure_part
    from penstock.bench.methods.documents import prompts_document
    from penstock.bench.methods.report import part_report
    from penstock.bench.run import require_served

    part, endpoint = PARTS[_chosen(args)], targets[0].endpoint
    requests = args.requests or part.requests
    timeout_s = args.request_timeout / 1000
    with progress.running():
        result = measure_part(endpoint, part, requests, folder, progress, timeout_s=timeout_s)
    print_result(args, part_report(result), prompts_document(result))
    require_served(result.served, result.failures, result.interrupted, endpoint.url)


def _system_load(
    args: argparse.Namespace, targets: list[Target], folder: Path, progress: Progress
) -> None:
    from penstock.bench.methods.documents import system_load_document
    from penstock.bench.methods.report import system_load_report
    from penstock.bench.methods.system_load import system_load
    from penstock.bench.run import require_served

    endpoint, phase_s = targets[0].endpoint, (args.phase or PHASE_MS) / 1000
    most, timeout_s = args.max_concurrency, args.request_timeout / 1000
    with progress.running():
        result = system_load(endpoint, phase_s, most, folder, progress, timeout_s=timeout_s)
    print_result(args, system_load_report(result), system_load_document(result))
    last = result.phases[-1]
    require_served(last.served, last.failures, result.interrupted, endpoint.url)


def _agentperf(
    args: argparse.Namespace, targets: list[Target], folder: Path, progress: Progress
) -> None:
    from penstock.bench.methods.agentperf import agentperf, require_success
    from penstock.bench.methods.documents import agentperf_document
    from penstock.bench.methods.report import agentperf_report

    timeout_s = args.request_timeout / 1000 if args.request_timeout != TIMEOUT_MS else None
    with progress.running():
        result = agentperf(
            targets[0].endpoint,
            args.replay or REPLAYS[0],
            folder,
            progress,
            context=_configured_context(args),
            timeout_s=timeout_s,
        )
    print_result(args, agentperf_report(result), agentperf_document(result))
    require_success(result)


def _configured_context(args: argparse.Namespace) -> int | None:
    """Of the graph, in tokens; None for a URL, and for a manifest."""
    from penstock.manifests.source import open_source
    from penstock.verify.urls import is_url

    target = args.targets[0]
    if is_url(target):
        return None
    loaded = open_source(Path(target), args.sets).loaded
    return loaded.graph.model.context_length if loaded else None


def _openrouter(
    args: argparse.Namespace, targets: list[Target], _folder: Path, progress: Progress
) -> None:
    from penstock.bench.methods.documents import openrouter_document
    from penstock.bench.methods.openrouter import observe, require_traffic
    from penstock.bench.methods.report import openrouter_report
    from penstock.bench.run import require_uninterrupted

    models = {target.endpoint.model for target in targets}
    if len(models) > 1:
        message = f"the targets serve different models: {', '.join(sorted(models))}"
        raise UsageError(message, fix="Name the frontends of one deployment.")
    urls = [
        url
        for named, target in zip(args.targets, targets, strict=True)
        for url in _frontends(args, named, target)
    ]
    duration_s = (args.duration or DURATION_MS) / 1000
    with progress.running():
        observation = observe(urls, models.pop(), duration_s, progress)
    print_result(args, openrouter_report(observation), openrouter_document(observation))
    require_uninterrupted(observation.interrupted)
    require_traffic(observation)


def _frontends(args: argparse.Namespace, named: str, target: Target) -> list[str]:
    """A graph that runs here has an address for each frontend."""
    from penstock.local.control import status
    from penstock.manifests.deployment import Role
    from penstock.verify.urls import is_url

    if is_url(named):
        return [target.endpoint.url]
    replicas = status(Path(named), args.sets).state.replicas
    ports = [
        replica.system_port or replica.port for replica in replicas if replica.role is Role.FRONTEND
    ]
    return [f"http://127.0.0.1:{port}" for port in ports if port is not None]
