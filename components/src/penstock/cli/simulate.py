"""`penstock simulate GRAPH… --workload W`: predict performance under a workload, without a GPU."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import arguments, replaying
from penstock.cli.command_line import add_switch
from penstock.cli.outputs import add_report, require_report, write_replay_report
from penstock.cli.progress import LINE_INTERVAL_S, Progress, add_progress
from penstock.cli.values import add_count, duration_ms
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.simulate.model import Replayable
    from penstock.simulate.study import Study, SustainedLoad

STARTUP_S = 120.0  # of a worker with a model of some 60 GiB: assumed, and reported as assumed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graphs", metavar="GRAPH", type=Path, nargs="+", help="graphs to compare")
    replaying.add_workload(parser)
    add_switch(
        parser, "--until-slo-breaks", "find the highest scale at which each graph meets the SLO"
    )
    replaying.add_slo(parser)
    replaying.add_acceptance(parser)
    replaying.add_calibration(parser)
    add_count(
        parser,
        "--seeds",
        "number of replays per graph (default: 3; 1 for a trace without the KV router)",
        most=100,
    )
    add_switch(
        parser,
        "--planner",
        "run Dynamo's planner in the replay, and compare it with fixed pools of its average "
        "and its peak size",
    )
    parser.add_argument(
        "--startup",
        type=duration_ms,
        metavar="60s",
        help=f"with --planner: time until an added worker is ready (default: {STARTUP_S:g}s)",
    )
    add_report(parser, "write an HTML report with charts")
    replaying.add_no_cache(parser)
    arguments.add_json(parser)
    arguments.add_wide(parser)
    add_progress(parser)
    arguments.add_sets(parser)
    arguments.add_hints(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.manifests.source import open_source
    from penstock.simulate.planner import with_planner
    from penstock.simulate.replayable import replayable, require_replayed_mode
    from penstock.simulate.study import Study

    replaying.end_as_interrupted()
    require_report(args.report)
    workload = replaying.requested_workload(args)
    replays = replaying.requested_replays(args)
    acceptance = replaying.requested_acceptance(args)
    hints = arguments.hints_of(args)
    _check_planner_flags(args)
    sources = [open_source(path, args.sets) for path in args.graphs]
    deployments = [_with_flags(args, replayable(source, hints, acceptance)) for source in sources]
    deployments = replaying.with_calibration(args, deployments)
    startup_s = args.startup / 1000 if args.startup else STARTUP_S
    planned = [
        with_planner(deployment, source, hints, startup_s)
        for deployment, source in zip(deployments, sources, strict=True)
        if args.planner
    ]
    for deployment, source in zip(planned or deployments, sources, strict=True):
        require_replayed_mode(deployment, source)
    if args.until_slo_breaks:
        _require_slo("--until-slo-breaks", deployments)
        replaying.require_arrival_rate(workload, "--until-slo-breaks")
    _require_slo("--planner", planned)
    with replays:
        study = Study(
            workload=workload,
            replays=replays,
            seeds=args.seeds,
            attain=args.attain,
            counts_all_requests=args.planner,
        )
        return _print(args, study, deployments, planned)


def _check_planner_flags(args: argparse.Namespace) -> None:
    if args.planner and args.until_slo_breaks:
        message = "cannot be combined with --until-slo-breaks, which needs pools of a fixed size"
        raise UsageError(message, place="--planner", fix="Remove one of them.")
    if args.startup and not args.planner:
        raise UsageError("has no effect without --planner", place="--startup", fix="Add --planner.")


def _require_slo(flag: str, deployments: list[Replayable]) -> None:
    if not all(deployment.slo for deployment in deployments):
        fix = "Add --ttft or --itl, or set `slo` in the graph."
        raise UsageError("needs an SLO", place=flag, fix=fix)


def _with_flags(args: argparse.Namespace, deployment: Replayable) -> Replayable:
    """With the SLO and the price of the command line instead of the graph's."""
    slo = replaying.requested_slo(args, deployment.slo)
    price = args.gpu_hour_price or deployment.gpu_hour_price
    return replace(deployment, slo=slo, gpu_hour_price=price)


def _print(
    args: argparse.Namespace, study: Study, deployments: list[Replayable], planned: list[Replayable]
) -> int:
    from penstock.reports.text import NARROW, print_report
    from penstock.simulate.documents import as_json
    from penstock.simulate.planner import compare_with_planner
    from penstock.simulate.report import Simulated, report_of
    from penstock.simulate.working_set import working_sets
    from penstock.text.numbers import count_of

    progress = Progress(args, "starting replays", line_interval_s=LINE_INTERVAL_S)

    def count_replays(done: int, total: int) -> None:
        progress(f"{done} of {count_of(total, 'replay')}", done, total)

    sustained: list[SustainedLoad] = []
    with progress.running():
        if args.until_slo_breaks:
            sustained = study.sustained_loads(deployments, progress)
            rows = [load.highest or load.rows[0] for load in sustained]
        elif planned:
            pairs = zip(deployments, planned, strict=True)
            rows = [r for pair in pairs for r in compare_with_planner(study, *pair, count_replays)]
        else:
            rows = study.steady_rows(deployments, count_replays)
    sets = working_sets(rows, study.workload)  # each reads all requests of the workload
    if not sustained and not planned:
        stages = [row.by_stage(study.workload) for row in rows]
        sets = [known for known, parts in zip(sets, stages, strict=True) for _ in parts]
        rows = [stage for parts in stages for stage in parts]
    if args.json:
        print(as_json(rows, study.workload, sustained, sets, study.attain))
    if args.json and not args.report:
        return 0
    report = report_of(
        Simulated(
            rows=[row.named_by_stage for row in rows],
            sustained=sustained,
            loaded=study.workload,
            attain=study.attain,
            sets=sets,
        )
    )
    if not args.json:
        print_report(report, width=None if args.wide else NARROW)
    seeds = max(len(row.metrics) for row in rows)
    write_replay_report(args, report, args.graphs, seeds)
    return 0
