"""`penstock bench URL|GRAPH --workload W`: measure a running endpoint under a workload."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.progress import LINE_INTERVAL_S, Progress, add_progress
from penstock.cli.replay_arguments import (
    add_latencies,
    add_workload,
    duration_ms,
    integer_between,
    requested_slo,
    requested_workload,
    share,
)

if TYPE_CHECKING:
    from penstock.graph.slo import Slo
    from penstock.verify.target import ProbeTarget


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="URL|GRAPH",
        help="URL of an endpoint, or a graph that `penstock up` runs on this machine",
    )
    parser.add_argument("--model", help="a model of the endpoint (default: its only one)")
    add_workload(parser)
    add_latencies(parser)
    parser.add_argument(
        "--attain",
        type=share,
        default=0.95,
        metavar="SHARE",
        help="share of requests that must meet the SLO (default: 0.95)",
    )
    parser.add_argument(
        "--seed",
        type=integer_between(0, 10**6),
        default=0,
        metavar="N",
        help="of the sampled requests (default: 0)",
    )
    parser.add_argument(
        "--request-timeout",
        type=duration_ms,
        default=600_000.0,
        metavar="60s",
        help="time after which a request counts as failed (default: 600s)",
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="new folder for the requests and AIPerf's records"
    )
    arguments.add_json(parser)
    add_progress(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.bench.aiperf import require_environment
    from penstock.bench.report import as_json, lines
    from penstock.bench.run import BenchRequest, bench
    from penstock.errors import BenchError, Problem
    from penstock.terminal import fitted

    require_environment()
    workload = requested_workload(args)
    endpoint, slo = _endpoint(args)
    try:
        model = _model(endpoint, args.model)
    finally:
        endpoint.close()
    request = BenchRequest(
        url=endpoint.url,
        model=model,
        workload=workload,
        slo=slo,
        attain=args.attain,
        seed=args.seed,
        timeout_s=args.request_timeout / 1000,
    )
    progress = Progress(args, "starting AIPerf", line_interval_s=LINE_INTERVAL_S)
    with _folder(args.out) as folder, progress.running():
        found = bench(request, Path(folder), progress)
    if args.json:
        print(as_json(found))
    else:
        for line in lines(found):
            print(*fitted(line), sep="\n")
    if not found.measurement.counted:
        raise BenchError(Problem(place=endpoint.url, message="served none of the requests"))
    return 0


def _endpoint(args: argparse.Namespace) -> tuple[ProbeTarget, Slo]:
    """The endpoint, which responds, and the SLO of the command line and of the graph."""
    from penstock.local.control import status
    from penstock.manifests.source import open_source
    from penstock.verify.preflight import require_endpoint
    from penstock.verify.target import ProbeTarget
    from penstock.verify.urls import is_url, require_urls

    if is_url(args.target):
        require_urls([args.target])
        found = ProbeTarget(url=args.target.rstrip("/").removesuffix("/v1"))
        slo = requested_slo(args)
    else:
        source = open_source(Path(args.target), ())
        state = status(Path(args.target)).state
        found = ProbeTarget(url=state.endpoint.removesuffix("/v1"))
        slo = requested_slo(args, source.loaded.graph.slo if source.loaded else None)
    require_endpoint(found)
    return found, slo


def _model(endpoint: ProbeTarget, requested: str | None) -> str:
    """UsageError for a model that the endpoint does not list, and if it lists several."""
    from penstock.errors import Problem, UsageError

    listed = ", ".join(endpoint.models) or "none"
    if requested in endpoint.models or (requested is None and len(endpoint.models) == 1):
        return requested or endpoint.models[0]
    what = "several models" if requested is None else f"no model {requested}"
    message = f"{endpoint.url} lists {what}: {listed}"
    raise UsageError(Problem(place="--model", message=message, fix="Name one of them."))


def _folder(out: Path | None) -> tempfile.TemporaryDirectory[str] | nullcontext[str]:
    """The new folder ``out``, else a temporary one. InputError if it exists or cannot be made."""
    from penstock.errors import InputError, Problem

    if out is None:
        return tempfile.TemporaryDirectory(prefix="penstock-bench-")
    try:
        out.mkdir(parents=True)
    except OSError as error:
        message = f"cannot be created: {error.strerror}"
        fix = "Name a new folder."
        raise InputError(Problem(file=str(out), message=message, fix=fix)) from None
    return nullcontext(str(out))
