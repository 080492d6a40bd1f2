"""`penstock bench --calibrate`: factors from a run of a workload, or from a quick measurement."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli import arguments, bench_outputs, bench_targets, outputs, replaying
from penstock.cli.progress import LINE_INTERVAL_S, Progress
from penstock.errors import PenstockError, UsageError

if TYPE_CHECKING:
    from penstock.bench.measurement import Bench
    from penstock.simulate.calibration import Calibration
    from penstock.simulate.model import Replayable
    from penstock.simulate.replay import Replays

CALIBRATE = "--calibrate"
QUICK, DEFAULT = "quick", "calibration.yaml"
OF_WORKLOAD = (
    *("workload", "trace", "rate", "concurrency", "requests", "chat", "sweep", "csv", "out"),
    *("llm_d_report", "ttft", "itl", "e2e", "attain"),
)


@dataclass(frozen=True, kw_only=True)
class Requested:
    """The value of `--calibrate`."""

    file: Path
    is_quick: bool


class _Calibrate(argparse.Action):
    """A quick calibration needs no workload."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        for action in parser._actions if values.is_quick else ():
            action.required = action.required and action.dest != "workload"


def add_calibrate(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        CALIBRATE,
        action=_Calibrate,
        type=_requested,
        metavar="FILE|quick[:FILE]",
        help="with --predict: write factors to FILE that correct predictions for this model, GPU "
        "and engine; entries of FILE for others are kept. quick: measure them in two minutes, "
        f"without a workload; without --predict only print the figures (default FILE: {DEFAULT})",
    )


def _requested(text: str) -> Requested:
    word, _, name = text.partition(":")
    is_quick = word == QUICK
    return Requested(file=Path((name or DEFAULT) if is_quick else text), is_quick=is_quick)


def require_calibratable(args: argparse.Namespace) -> None:
    """UsageError for `--calibrate` without what it needs, and for `--calibration` without a
    prediction; InputError or GraphError for a file that is not a calibration file."""
    from penstock.simulate.calibration import existing_calibrations

    is_quick = args.calibrate is not None and args.calibrate.is_quick
    if not args.predict:
        fix = "Add --predict GRAPH, the graph that the target runs."
        needing = ["calibration"] if is_quick else ["calibrate", "calibration"]
        arguments.require_with(args, "--predict", needing, fix)
    if args.calibrate and args.calibration:
        message = f"{CALIBRATE} computes factors, and --calibration reads them"
        raise UsageError(message, fix="Remove one of them.")
    if is_quick:
        for flag in arguments.given(args, OF_WORKLOAD):
            message = (
                f"{CALIBRATE} {QUICK} sends its own requests, and {flag} has no effect on them"
            )
            raise UsageError(message, fix=f"Remove {flag}, or use {CALIBRATE} FILE.")
    if args.calibrate and args.predict:
        outputs.require_writable(args.calibrate.file, CALIBRATE)
        existing_calibrations(args.calibrate.file)
        _calibratable(args)


def calibrated_bench(
    args: argparse.Namespace, measured: Bench, progress: Progress
) -> tuple[Bench, str, PenstockError | None]:
    """(the run with its factors, what was written, why there are no factors)."""
    from penstock.bench.calibration import calibration_of

    command = outputs.own_command()
    entry, written, error = _written(
        args,
        progress,
        lambda deployment, replays: calibration_of(measured, deployment, replays, command),
    )
    return replace(measured, calibration=entry), written, error


def calibrate_quickly(args: argparse.Namespace) -> None:
    """Raises why there are no factors after the figures were printed."""
    from penstock.bench.calibration import quick_calibration_of
    from penstock.bench.documents import quick_document
    from penstock.bench.quick import Engines, measure
    from penstock.bench.quick_report import report_of

    replaying.end_as_interrupted()
    progress = Progress(args, "quick calibration", line_interval_s=LINE_INTERVAL_S)
    with (
        bench_outputs.run_folder(None) as folder,
        bench_targets.requested_targets(args, folder, progress) as (target,),
        progress.running(),
    ):
        engines = Engines.of(_calibratable(args)) if args.predict else Engines()
        quick = measure(target.endpoint, engines, progress)
    command, written, error = outputs.own_command(), "", None
    if args.predict:
        with progress.running():
            entry, written, error = _written(
                args,
                progress,
                lambda graph, replays: quick_calibration_of(quick, graph, replays, command),
            )
        quick = replace(quick, calibration=entry)
    report = report_of(quick)
    outputs.print_result(args, report, quick_document(quick))
    if written and not args.json:
        print(written)
    bench_outputs.write_page(args, report)
    if error is not None:
        raise error


def _written(
    args: argparse.Namespace,
    progress: Progress,
    compute: Callable[[Replayable, Replays], Calibration],
) -> tuple[Calibration | None, str, PenstockError | None]:
    """(the entry, what was written, why there is none)."""
    from penstock.simulate.calibration import calibrations_text, existing_calibrations, with_entry

    progress("computing the factors")
    path = args.calibrate.file
    try:
        with replaying.requested_replays(args) as replays:
            entry = compute(_calibratable(args), replays)
        file = existing_calibrations(path)
        outputs.write_output(calibrations_text(with_entry(file, entry)), str(path))
    except PenstockError as error:
        return None, "", error
    replaced = file.of(entry.key)
    instead = f"; replaced the entry of {replaced.measured_at}" if replaced else ""
    return entry, f"wrote {path}{instead}", None


def _calibratable(args: argparse.Namespace) -> Replayable:
    """The graph of `--predict`. UsageError for one with speculative decoding: a prediction without
    its acceptance rates has other step times."""
    from penstock.manifests.source import open_source
    from penstock.serving.understand import Hints, understand
    from penstock.simulate.replayable import replayable
    from penstock.simulate.timing import drafting_of

    source = open_source(args.predict, args.sets)
    hints = Hints(gpu=arguments.requested_gpu(args))
    if any(drafting_of(worker) for worker in understand(source, hints).workers):
        message = f"{args.predict} has speculative decoding, whose acceptance is not predicted"
        fix = "Measure the same deployment without speculation."
        raise UsageError(message, place=CALIBRATE, fix=fix)
    return replayable(source, hints)
