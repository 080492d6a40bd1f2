"""What `penstock bench` prints, and its files: `--out`, `--report`, `--csv`, `--llm-d-report`."""

from __future__ import annotations

import argparse
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import outputs
from penstock.cli.bench_targets import Target
from penstock.errors import InputError

if TYPE_CHECKING:
    from penstock.bench.compare import Comparison
    from penstock.bench.measurement import Bench
    from penstock.bench.sweep import Sweep
    from penstock.reports.model import Report


def add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        help="keep the requests and AIPerf's records in DIR, a new folder (default: delete them)",
    )


def add_outputs(parser: argparse.ArgumentParser) -> None:
    outputs.add_report(parser, "write an HTML report with charts")
    parser.add_argument(
        "--csv",
        type=Path,
        metavar="FILE.csv",
        help="write one row per request; with --sweep per load, with two targets per metric",
    )


def add_outputs_of_one(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "--llm-d-report",
        type=Path,
        metavar="FILE.yaml",
        help="write llm-d's Benchmark Report 0.2.1; with --sweep one file per load, such as "
        "FILE-scale-2.yaml",
    )


def require_outputs(args: argparse.Namespace) -> None:
    """Before the run: UsageError if a file cannot be written, InputError if it would replace one
    that `bench` did not write."""
    from penstock.bench.csv_report import HEADERS
    from penstock.bench.llmd_report import MARK

    calibrated = args.calibrate and args.calibrate.file
    files = [("--report", args.report), ("--csv", args.csv), ("--calibrate", calibrated)]
    files += [("--llm-d-report", path) for path in _report_paths(args)]
    for option, path in files:
        if path is not None:
            outputs.require_named(path, option)
    outputs.require_different(files)
    outputs.require_report(args.report)
    if args.csv is not None:
        outputs.require_writable(args.csv, "--csv")
        outputs.require_own(args.csv, HEADERS, "a CSV file of penstock bench")
    for path in _report_paths(args):
        outputs.require_writable(path, "--llm-d-report")
        outputs.require_own(path, [MARK], "a Benchmark Report of penstock bench")


def _report_paths(args: argparse.Namespace) -> list[Path]:
    if args.llm_d_report is None:
        return []
    if not args.sweep:
        return [args.llm_d_report]
    return [_of_scale(args.llm_d_report, scale) for scale in args.sweep]


def _of_scale(path: Path, scale: float) -> Path:
    from penstock.bench.sweep import scale_text

    return path.with_name(f"{path.stem}-scale-{scale_text(scale)}{path.suffix}")


def write_run(args: argparse.Namespace, target: Target, bench: Bench, report: Report) -> None:
    from penstock.bench.csv_report import run_csv
    from penstock.bench.llmd_report import as_yaml, report_of

    with _all_tried() as attempt:
        attempt(write_page, args, report)
        if args.csv is not None:
            attempt(outputs.write_output, run_csv(bench), str(args.csv))
        for path in _report_paths(args):
            llmd = report_of(bench, uid=_new_id(), stack=_stack(args, target))
            attempt(outputs.write_output, as_yaml(llmd), str(path))


def write_sweep(args: argparse.Namespace, target: Target, sweep: Sweep, report: Report) -> None:
    from penstock.bench.csv_report import sweep_csv
    from penstock.bench.llmd_report import as_yaml, report_of

    with _all_tried() as attempt:
        attempt(write_page, args, report)
        if args.csv is not None:
            attempt(outputs.write_output, sweep_csv(sweep), str(args.csv))
        if args.llm_d_report is None:
            return
        experiment, stack = _new_id(), _stack(args, target)
        for stage, level in enumerate(sweep.levels):
            llmd = report_of(
                level.bench, uid=_new_id(), experiment=experiment, stage=stage, stack=stack
            )
            path = _of_scale(args.llm_d_report, level.scale)
            attempt(outputs.write_output, as_yaml(llmd), str(path))


def write_comparison(args: argparse.Namespace, comparison: Comparison, report: Report) -> None:
    from penstock.bench.csv_report import comparison_csv

    with _all_tried() as attempt:
        attempt(write_page, args, report)
        if args.csv is not None:
            attempt(outputs.write_output, comparison_csv(comparison), str(args.csv))


def write_page(args: argparse.Namespace, report: Report) -> None:
    """The HTML report, if one is requested."""
    from penstock.bench.aiperf import VERSION
    from penstock.reports.provenance import installed
    from penstock.simulate.replay import require_environment

    name, _, number = VERSION.partition(" ")
    versions = {name: number} if args.workload else {}
    if args.report is not None and args.predict:
        versions |= installed(require_environment(), "aisimulate")
    files = [*args.targets, args.predict, args.workload, args.trace]
    outputs.write_report(args, report, files, versions=versions, facts={"seed": str(args.seed)})


@contextmanager
def _all_tried() -> Iterator[Callable[..., None]]:
    """Calls each function; one that raises InputError does not prevent the others, so that no
    output is lost. The first such error is raised at the end."""
    errors: list[InputError] = []

    def attempt(write: Callable[..., None], *args: object) -> None:
        try:
            write(*args)
        except InputError as error:
            errors.append(error)

    try:
        yield attempt
    finally:
        if errors:
            raise errors[0]


def _new_id() -> str:
    return uuid.uuid4().hex


def _stack(args: argparse.Namespace, target: Target) -> list[dict[str, object]]:
    """Of a graph whose own engines served the requests; empty for a URL and for substitutes."""
    from penstock.bench.llmd_report import stack_of
    from penstock.manifests.source import open_source
    from penstock.serving.understand import Hints, understand

    if not target.has_own_engines:
        return []
    return stack_of(understand(open_source(Path(target.endpoint.graph), args.sets), Hints()))


@contextmanager
def run_folder(out: Path | None) -> Iterator[Path]:
    """The new folder ``out``, else a temporary one. InputError if it exists or cannot be made. If
    it is still empty when an error occurs, it is removed."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
            yield Path(scratch)
        return
    try:
        out.mkdir(parents=True)
    except OSError as error:
        message = f"cannot be created: {error.strerror}"
        raise InputError(message, file=str(out), fix="Name a new folder.") from None
    try:
        yield out.absolute()  # AIPerf has another working folder
    finally:
        with suppress(OSError):  # it is not empty
            out.rmdir()
