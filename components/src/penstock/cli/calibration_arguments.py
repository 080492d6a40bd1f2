"""`--calibrate` of `bench`, and `--calibration` of the verbs that replay a graph."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.errors import PenstockError, Problem, UsageError

if TYPE_CHECKING:
    from penstock.bench.model import Bench
    from penstock.cli.progress import Progress
    from penstock.simulate.calibration import CalibrationFile
    from penstock.simulate.model import Replayable

CALIBRATE = "--calibrate"


def add_calibration(parser: argparse._ActionsContainer, more: str = "") -> None:
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help=f"{more}correct predictions with the factors in FILE, which `bench {CALIBRATE}` wrote",
    )


def add_calibrate(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        CALIBRATE,
        type=Path,
        metavar="FILE",
        help="with --predict: write factors to FILE that correct predictions for this model, GPU "
        "and engine; entries of FILE for others are kept",
    )


def requested_calibrations(args: argparse.Namespace) -> CalibrationFile | None:
    """InputError or GraphError if the file cannot be read."""
    from penstock.simulate.calibration import CalibrationFile, load_calibrations

    if args.calibration is None:
        return None
    content = load_calibrations(args.calibration)
    return CalibrationFile(name=args.calibration.name, content=content)


def with_calibration(
    args: argparse.Namespace, deployments: Sequence[Replayable]
) -> list[Replayable]:
    """With the factors of the file, where it has some. UsageError if it has none at all."""
    from penstock.simulate.calibration import group_of

    file = requested_calibrations(args)
    if file is None:
        return list(deployments)
    keys = dict.fromkeys(map(group_of, deployments))
    if not any(map(file.of, keys)):
        fix = "Name another file, or measure with `penstock bench --predict GRAPH --calibrate`."
        problem = Problem(place="--calibration", message=file.missing(*keys), fix=fix)
        raise UsageError(problem)
    return [file.calibrated(deployment) for deployment in deployments]


def require_calibratable(args: argparse.Namespace) -> None:
    """UsageError for `--calibrate` without what it needs, and for `--calibration` without a
    prediction; InputError or GraphError for a file that is not a calibration file."""
    from penstock.simulate.calibration import existing_calibrations

    for name, flag in {"calibrate": CALIBRATE, "calibration": "--calibration"}.items():
        if getattr(args, name) and not args.predict:
            fix = "Add --predict GRAPH, the graph that the target runs."
            raise UsageError(f"{flag} needs --predict", fix=fix)
    if args.calibrate and args.calibration:
        message = f"{CALIBRATE} computes factors, and --calibration reads them"
        raise UsageError(message, fix="Remove one of them.")
    if args.calibrate:
        arguments.require_writable(args.calibrate, CALIBRATE)
        existing_calibrations(args.calibrate)
        _calibratable(args)


def calibrated_bench(
    args: argparse.Namespace, measured: Bench, progress: Progress
) -> tuple[Bench, str, PenstockError | None]:
    """(the run with its factors, what was written, why there are no factors)."""
    from penstock.bench.calibration import calibration_of
    from penstock.cli.graph_output import own_command
    from penstock.simulate.calibration import (
        calibrations_text,
        existing_calibrations,
        with_entry,
    )
    from penstock.simulate.replay import Replays, environment_cache, require_environment

    progress("computing the factors")
    try:
        deployment = _calibratable(args)
        with Replays(environment_cache(require_environment())) as replays:
            entry = calibration_of(measured, deployment, replays, own_command())
        file = existing_calibrations(args.calibrate)
        arguments.write_output(calibrations_text(with_entry(file, entry)), str(args.calibrate))
    except PenstockError as error:
        return measured, "", error
    replaced = file.of(entry.key)
    instead = f"; replaced the entry of {replaced.measured_at}" if replaced else ""
    return replace(measured, calibration=entry), f"wrote {args.calibrate}{instead}", None


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
