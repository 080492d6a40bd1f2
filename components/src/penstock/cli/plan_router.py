"""`penstock plan --router GRAPH --workload W`: find router settings by replays."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cli import arguments, outputs, replaying
from penstock.cli.outputs import check_graph_output, own_command
from penstock.cli.progress import Progress, add_progress
from penstock.cli.values import add_count
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.manifests.source import Source
    from penstock.tune.tuning import Tuning

# Of penstock.tune.tuning, which takes long to import; a test compares them.
MIN_SEEDS, SEEDS, MAX_SEEDS = 2, 2, 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    replaying.add_workload(parser)
    replaying.add_latencies(parser)
    replaying.add_acceptance(parser)
    replaying.add_calibration(parser)
    add_count(
        parser,
        "--seeds",
        f"replays of each setting to choose; twice as many confirm (default: {SEEDS})",
        least=MIN_SEEDS,
        most=MAX_SEEDS,
        default=SEEDS,
    )
    replaying.add_no_cache(parser)
    arguments.add_json(parser)
    outputs.add_output(parser, default=None)
    outputs.add_force(parser, "it exists")
    add_progress(parser)
    arguments.add_sets(parser)
    arguments.add_hints(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.manifests.source import open_source
    from penstock.simulate.replayable import replayable
    from penstock.tune.tuning import parts_of, require_tunable, tune, with_enough_requests

    replaying.end_as_interrupted()
    hints = arguments.hints_of(args)
    check_graph_output(args)
    workload = replaying.requested_workload(args)
    source = open_source(args.graph, args.sets)
    _check_editable(args, source)
    requested = replaying.requested_replays(args)
    deployment = replayable(source, hints, replaying.requested_acceptance(args))
    require_tunable(deployment, source)
    (deployment,) = replaying.with_calibration(args, [deployment])
    deployment = replace(deployment, slo=replaying.requested_slo(args, deployment.slo))
    progress = Progress(args, "starting replays")
    with progress.running(), requested as replays:
        try:
            workload = with_enough_requests(workload, deployment, replays)
            tuning = tune(deployment, parts_of(workload, replays, args.seeds), args.seeds, progress)
        except KeyboardInterrupt:
            progress.hide()
            raise KeyboardInterrupt("nothing was written") from None
    return _print(args, tuning)


def _check_editable(args: argparse.Namespace, source: Source) -> None:
    if args.output is None:
        return
    message = ""
    if source.loaded is None:
        message, fix = "writes graphs, and this is a DGD manifest", "Remove -o."
    elif args.sets:
        message = "writes the file's own values, and --set overrides some"
        fix = "Write them into the graph, or remove -o."
    if message:
        raise UsageError(message, place="-o", fix=fix)


def _print(args: argparse.Namespace, tuning: Tuning) -> int:
    from penstock.reports.text import print_report
    from penstock.tune.report import as_json, report_of

    text = _graph_text(args, tuning) if tuning.is_changed else None
    if args.output and text is not None:
        outputs.write_output(text, args.output)
    if args.json:
        print(as_json(tuning, text))
    elif args.output != "-" or text is None:
        to = sys.stderr if args.output == "-" else sys.stdout
        print_report(report_of(tuning), to=to)
        if args.output:
            print(_written(args, text), file=to)
        elif text is not None and not args.quiet:
            print("hint: write a copy of the graph with these settings with -o FILE")
    return 0


def _written(args: argparse.Namespace, text: str | None) -> str:
    if text is None:
        return f"{args.output}: not written, as the graph's settings stay"
    return f"wrote {args.output}"


def _graph_text(args: argparse.Namespace, tuning: Tuning) -> str | None:
    """None for a manifest, and with --set, whose values the file does not have."""
    from penstock.graph.text_file import read_text_file
    from penstock.manifests.source import is_manifest
    from penstock.tune import report
    from penstock.tune.graph_text import tuned_text

    text = read_text_file(args.graph)
    if args.sets or is_manifest(text):
        return None
    comment = report.comment(tuning, own_command())
    base = tuning.base.settings
    return tuned_text(text, tuning.recommended, base, comment, str(args.graph))
