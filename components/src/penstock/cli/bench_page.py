"""`penstock bench … --report FILE.html`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.graph_output import own_command
from penstock.cli.report_output import workload_files

if TYPE_CHECKING:
    from penstock.bench.compare import Comparison
    from penstock.bench.limits import LimitCheck
    from penstock.bench.prediction import Predicted
    from penstock.bench.report import Bench
    from penstock.bench.sweep import Sweep


def write_bench(args: argparse.Namespace, found: Bench, predicted: Predicted | None) -> None:
    """The report of one run, if one is requested."""
    if args.report is not None:
        from penstock.bench.page import write_page

        write_page(args.report, found, predicted, _provenance(args, found.client))


def write_sweep(args: argparse.Namespace, found: Sweep) -> None:
    if args.report is not None:
        from penstock.bench.sweep_page import write_page

        write_page(args.report, found, _provenance(args, found.levels[0].found.client))


def write_comparison(
    args: argparse.Namespace, found: Comparison, checked: Sequence[LimitCheck]
) -> None:
    if args.report is not None:
        from penstock.bench.compare_page import write_page

        write_page(args.report, found, checked, _provenance(args, found.client))


def _provenance(args: argparse.Namespace, client: str) -> list[tuple[str, str]]:
    from penstock.reports.provenance import installed, provenance
    from penstock.simulate.replay import require_environment
    from penstock.verify.urls import is_url

    graphs = [Path(target) for target in args.targets if not is_url(target)]
    versions = {}
    if args.predict:
        graphs.append(args.predict)
        versions = installed(require_environment(), "aisimulate")
    name, _, number = client.partition(" ")
    return provenance(
        own_command(),
        files=[*graphs, *workload_files(args)],
        versions={name: number, **versions},
        facts={"seed": str(args.seed)},
    )
