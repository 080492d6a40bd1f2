"""`penstock simulate GRAPH… --workload W`: figures of a workload, without a GPU."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.replay_arguments import (
    Notes,
    add_acceptance,
    add_slo,
    add_workload,
    duration_ms,
    end_as_interrupted,
    integer_between,
    slo_of,
    workload_of,
)

if TYPE_CHECKING:
    from penstock.simulate.model import Replayable
    from penstock.simulate.study import Study, SustainedLoad

STARTUP_S = 120.0  # of a worker with a model of some 60 GiB: assumed, and said


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graphs", metavar="GRAPH", type=Path, nargs="+", help="graphs to compare")
    add_workload(parser)
    parser.add_argument(
        "--until-slo-breaks", action="store_true", help="find the load that each graph holds"
    )
    add_slo(parser)
    add_acceptance(parser)
    parser.add_argument(
        "--seeds",
        type=integer_between(100),
        metavar="N",
        help="replays of each (default: 3; 1 of a trace with a router that repeats itself)",
    )
    parser.add_argument(
        "--planner",
        action="store_true",
        help="let Dynamo's planner scale the graph's pools, beside fixed pools of about its cost",
    )
    parser.add_argument(
        "--startup",
        type=duration_ms,
        metavar="60s",
        help=f"with --planner: until a further worker answers (default: {STARTUP_S:g}s)",
    )
    parser.add_argument("--report", metavar="FILE.html", type=Path, help="write a page with plots")
    parser.add_argument("--no-cache", action="store_true", help="replay what was replayed before")
    arguments.add_json(parser)
    arguments.add_sets(parser)
    arguments.add_hints(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.errors import UsageError
    from penstock.manifests.source import open_source
    from penstock.simulate.cache import Cache, kept
    from penstock.simulate.planner import with_planner
    from penstock.simulate.replay import Replays, require_environment
    from penstock.simulate.replayable import replayable
    from penstock.simulate.study import Study
    from penstock.simulate.timing import Acceptance

    end_as_interrupted()
    if args.report and not args.report.absolute().parent.is_dir():
        raise UsageError(f"--report: there is no folder {args.report.parent}")
    workload = workload_of(args)
    python = require_environment()
    acceptance = Acceptance(args.acceptance) if args.acceptance else None
    given = arguments.hints_of(args)
    _judge(args)
    sources = [open_source(path, args.sets) for path in args.graphs]
    deployments = [_promised(args, replayable(source, given, acceptance)) for source in sources]
    startup_s = args.startup / 1000 if args.startup else STARTUP_S
    planned = [
        with_planner(deployment, source, given, startup_s)
        for deployment, source in zip(deployments, sources, strict=True)
        if args.planner
    ]
    if args.until_slo_breaks and not all(d.slo for d in deployments):
        raise UsageError("--until-slo-breaks needs an SLO: --ttft, --itl, or slo in the graph")
    if not all(d.slo for d in planned):
        raise UsageError(
            "--planner needs an SLO to be judged by: --ttft, --itl, or slo in the graph"
        )
    cache = Cache(None, "") if args.no_cache else kept(python)
    with Replays(cache) as replays:
        study = Study(
            workload=workload,
            replays=replays,
            seeds=args.seeds,
            attain=args.attain,
            is_whole=args.planner,
        )
        return _show(args, study, deployments, planned)


def _judge(args: argparse.Namespace) -> None:
    from penstock.errors import UsageError

    if args.planner and args.until_slo_breaks:
        raise UsageError("--planner changes the pools, and --until-slo-breaks asks what these hold")
    if args.startup and not args.planner:
        raise UsageError("--startup says how long the planner waits: add --planner")


def _promised(args: argparse.Namespace, deployment: Replayable) -> Replayable:
    """With what the command line says instead of the graph's own SLO and price."""
    slo = slo_of(args, deployment.slo)
    return replace(deployment, slo=slo, gpu_hour_price=args.gpu_hour or deployment.gpu_hour_price)


def _show(
    args: argparse.Namespace,
    study: Study,
    deployments: list[Replayable],
    planned: list[Replayable],
) -> int:
    from penstock.simulate import report
    from penstock.simulate.fixed import compare_with_planner
    from penstock.simulate.page import write_page

    note = Notes(sys.stderr, time.monotonic)

    def heard(done: int, of: int) -> None:
        note(f"{done} of {of} replays")

    held: list[SustainedLoad] = []
    if args.until_slo_breaks:
        held = study.held(deployments, note)
        rows = [h.most or h.rows[0] for h in held]
    elif planned:
        pairs = zip(deployments, planned, strict=True)
        rows = [row for pair in pairs for row in compare_with_planner(study, *pair, heard)]
    else:
        rows = study.rows(deployments, heard)
    note("")
    if args.json:
        print(report.as_json(rows, study.workload, held))
    else:
        load = "each at the load that it holds" if held else report.arrival_of(study.workload)
        print(f"{study.workload.name}: {load}; simulated, not measured")
        for line in report.table(rows):
            print(line)
        for found in held:
            print(report.sustained_load_line(found, study.workload))
        for line in report.remarks(rows):
            print(line)
    if args.report:
        write_page(args.report, rows, held, study.workload)
    return 0
