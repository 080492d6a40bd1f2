"""`penstock bench TARGET [TARGET] --workload W`: measure an endpoint, or compare two."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import (
    arguments,
    bench_calibration,
    bench_outputs,
    bench_targets,
    replaying,
)
from penstock.cli.bench_targets import Target
from penstock.cli.command_line import CommandParser, add_switch
from penstock.cli.outputs import print_result
from penstock.cli.progress import LINE_INTERVAL_S, Progress, add_progress
from penstock.cli.values import add_count, duration_ms, positive_number, share
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.bench.aiperf import Endpoint
    from penstock.bench.compare import Limit
    from penstock.bench.measurement import BenchRequest, Predicted
    from penstock.workload.load import LoadedWorkload

DURATION_MS, SLICE_MS, GAP_MS = 132_000.0, 4_000.0, 1_500.0  # defaults of a comparison: 12 pairs
ATTAIN = 0.95
OF_ONE = (
    *("attain", "requests", "predict", "calibrate", "calibration", "gpu", "sweep", "gpus"),
    *("llm_d_report", "speed", "ttft", "itl", "e2e"),
)
OF_TWO = ("duration", "slice", "gap", "fail_if")


def add_arguments(parser: CommandParser) -> None:
    bench_targets.add_targets(parser, "two targets are compared with each other")
    parser.epilog = (
        "Public methods: `penstock bench public --help`. To compare the responses of two "
        "endpoints: `penstock bench shadow --help`."
    )
    add_switch(
        parser,
        "--chat",
        "send chat requests with text, and measure the time to the first token after the "
        "reasoning (default: completions with token IDs)",
    )
    replaying.add_workload(parser)
    parser.fixes["--workload"] = (
        "Add --workload short-chat, or measure by a public method, which needs no workload: "
        "`penstock bench public`."
    )
    replaying.add_seed(parser, "the sampled requests and of the order of slices")
    replaying.add_request_timeout(parser, 600_000.0)
    bench_outputs.add_out(parser)
    bench_outputs.add_outputs(parser)
    _add_arguments_of_one(parser.add_argument_group("with one target"))
    _add_arguments_of_two(parser.add_argument_group("with two targets"))
    arguments.add_json(parser)
    add_progress(parser)


def _add_arguments_of_one(parser: argparse._ArgumentGroup) -> None:
    add_count(parser, "--requests", "number of requests (default: the workload's)")
    parser.add_argument(
        "--predict",
        type=Path,
        metavar="GRAPH",
        help="also simulate GRAPH with the same requests, and compare",
    )
    arguments.add_gpu(
        parser, "with --predict: GPU of the workers if GRAPH does not name it (h100, …)"
    )
    bench_calibration.add_calibrate(parser)
    replaying.add_calibration(parser, "with --predict: ")
    parser.add_argument(
        "--sweep",
        type=_scales,
        metavar="1,2,4",
        help="measure at each of these multiples of the load, until the SLO is missed",
    )
    add_count(
        parser,
        "--gpus",
        "with --sweep: GPUs of the target, for tokens/s/GPU (default: those of GRAPH)",
    )
    bench_outputs.add_outputs_of_one(parser)
    replaying.add_latencies(parser)
    parser.add_argument(
        "--attain",
        type=share,
        metavar="SHARE",
        help=f"share of requests that must meet the SLO (default: {ATTAIN:g})",
    )


def _add_arguments_of_two(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "--duration",
        type=duration_ms,
        metavar="120s",
        help=f"total time of all slices and gaps (default: {DURATION_MS / 1000:g}s)",
    )
    parser.add_argument(
        "--slice",
        type=duration_ms,
        metavar="5s",
        help=f"time for which one target gets requests (default: {SLICE_MS / 1000:g}s)",
    )
    parser.add_argument(
        "--gap",
        type=duration_ms,
        metavar="2s",
        help=f"pause after each slice, for its last responses (default: {GAP_MS / 1000:g}s)",
    )
    parser.add_argument(
        "--fail-if",
        type=_limit,
        action="append",
        metavar="LIMIT",
        help="exit with code 20 if the second target exceeds LIMIT, such as 'ttft_p90 > +5%%', and "
        "with 21 if that is not certain; repeatable",
    )


def _scales(text: str) -> tuple[float, ...]:
    from penstock.bench.sweep import scale_text

    scales = tuple(positive_number(number) for number in text.split(","))
    names = {scale_text(scale) for scale in scales}  # of their folders and files
    if len(scales) < 2 or len(names) < len(scales) or list(scales) != sorted(scales):
        message = f"{text!r} does not have two or more rising numbers, such as 1,2,4"
        raise argparse.ArgumentTypeError(message)
    return scales


def _limit(text: str) -> Limit:
    from penstock.bench.compare import limit_of

    try:
        return limit_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    from penstock.bench import aiperf

    _require_fitting_arguments(args)
    bench_outputs.require_outputs(args)
    if args.calibrate and args.calibrate.is_quick:
        bench_calibration.calibrate_quickly(args)
        return 0
    workload = replaying.requested_workload(args)
    _require_measurable(workload)
    arguments.require_tool(args, aiperf)
    replaying.end_as_interrupted()
    progress = Progress(args, "starting AIPerf", line_interval_s=LINE_INTERVAL_S)
    with (
        bench_outputs.run_folder(args.out) as folder,
        bench_targets.requested_targets(args, folder, progress) as targets,
    ):
        if len(targets) == 1:
            _measure(args, targets[0], workload, folder, progress)
        else:
            both = (targets[0].endpoint, targets[1].endpoint)
            _compare(args, both, workload, folder, progress)
    return 0


def _require_measurable(loaded: LoadedWorkload) -> None:
    """UsageError for traffic that only `simulate` has."""
    workload, message = loaded.workload, ""
    if workload.arrival is not None and workload.arrival.ladder is not None:
        message = f"{loaded.name} has a ladder of rates, and the figures of a run are of one rate"
        fix = "Use a workload with one rate, and name multiples of it with --sweep."
    elif workload.conversation is not None and workload.conversation.cached_output:
        message = "requests have random tokens in place of earlier outputs, so no cache has them"
        fix = f"Remove `conversation.cached_output` from {loaded.name}."
    if message:
        raise UsageError(message, place="--workload", fix=fix)


def _measure(
    args: argparse.Namespace,
    target: Target,
    workload: LoadedWorkload,
    folder: Path,
    progress: Progress,
) -> None:
    from penstock.bench.documents import run_document
    from penstock.bench.measurement import BenchRequest
    from penstock.bench.report import report_of
    from penstock.bench.run import bench, require_complete

    if args.requests:
        workload = workload.with_requests(args.requests)
    request = BenchRequest(
        endpoint=target.endpoint,
        workload=workload,
        slo=target.slo,
        attain=args.attain or ATTAIN,
        seed=args.seed,
        timeout_s=args.request_timeout / 1000,
    )
    if args.sweep:
        _sweep(args, target, request, folder, progress)
        return
    with progress.running():
        predicted = _prediction(args, workload)
        prediction = predicted.prediction if predicted else None
        measured = replace(bench(request, folder, progress), prediction=prediction)
        written, error = "", None
        if args.calibrate and not measured.interrupted:
            measured, written, error = bench_calibration.calibrated_bench(args, measured, progress)
    report = report_of(measured, predicted)
    print_result(args, report, run_document(measured))
    if written and not args.json:
        print(written)
    bench_outputs.write_run(args, target, measured, report)
    require_complete(measured)
    if error is not None:
        raise error


def _sweep(
    args: argparse.Namespace,
    target: Target,
    request: BenchRequest,
    folder: Path,
    progress: Progress,
) -> None:
    from penstock.bench.documents import sweep_document
    from penstock.bench.run import require_complete, require_uninterrupted
    from penstock.bench.sweep import sweep
    from penstock.bench.sweep_report import report_of

    gpus = args.gpus or bench_targets.gpus_of(args)
    with progress.running():
        measured = sweep(request, args.sweep, folder, progress, gpus=gpus)
    report = report_of(measured)
    print_result(args, report, sweep_document(measured))
    bench_outputs.write_sweep(args, target, measured, report)
    require_uninterrupted(measured.interrupted, request.endpoint.url)
    require_complete(measured.levels[-1].bench)


def _prediction(args: argparse.Namespace, workload: LoadedWorkload) -> Predicted | None:
    from penstock.bench.measurement import predicted
    from penstock.manifests.source import open_source
    from penstock.serving.understand import Hints
    from penstock.simulate.replayable import replayable, require_replayed_mode

    if args.predict is None:
        return None
    requested, source = replaying.requested_replays(args), open_source(args.predict, args.sets)
    # Without the time of the draft model, which the mockers do not have either.
    accepted = replaying.requested_acceptance(args, prices_draft=False)
    graph = replayable(source, Hints(gpu=arguments.requested_gpu(args)), accepted)
    require_replayed_mode(graph, source)
    (graph,) = replaying.with_calibration(args, [graph])
    with requested as replays:
        return predicted(graph, workload, args.seed, replays)


def _compare(
    args: argparse.Namespace,
    endpoints: tuple[Endpoint, Endpoint],
    workload: LoadedWorkload,
    folder: Path,
    progress: Progress,
) -> None:
    from penstock.bench.compare import (
        CompareRequest,
        check_limits,
        compare,
        require_limits,
        require_results,
        slicing_of,
    )
    from penstock.bench.compare_report import report_of
    from penstock.bench.documents import comparison_document
    from penstock.bench.run import require_uninterrupted

    request = CompareRequest(
        endpoints=endpoints,
        workload=workload,
        slicing=slicing_of(
            duration_ms=args.duration or DURATION_MS,
            slice_ms=args.slice or SLICE_MS,
            gap_ms=args.gap or GAP_MS,
        ),
        seed=args.seed,
        timeout_s=args.request_timeout / 1000,
    )
    with progress.running():
        comparison = compare(request, folder, progress)
    checked = check_limits(comparison, args.fail_if or ())
    report = report_of(comparison, checked)
    print_result(args, report, comparison_document(comparison, checked))
    bench_outputs.write_comparison(args, comparison, report)
    require_uninterrupted(comparison.interrupted)
    require_results(comparison)
    require_limits(checked)


def _require_fitting_arguments(args: argparse.Namespace) -> None:
    """UsageError for more than two targets, and for options that need another number of them."""
    count = len(args.targets)
    if count > 2:
        raise UsageError(f"{count} targets cannot be compared", fix="Name one or two.")
    needed, excluded = ("two targets", OF_TWO) if count == 1 else ("one target", OF_ONE)
    arguments.require_with(args, needed, excluded, "Name {needed}, or remove {flag}.")
    if args.predict and args.sweep:
        raise UsageError("--predict cannot be combined with --sweep", fix="Remove one of them.")
    bench_targets.require_started(args)
    bench_calibration.require_calibratable(args)
    if not args.predict:
        arguments.require_with(args, "--predict", ["gpu"], "Add --predict GRAPH.")
    if not args.sweep:
        arguments.require_with(args, "--sweep", ["gpus"], "Add --sweep 1,2,4.")
