"""`penstock ls`: list the graphs that are up on this machine."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.outputs import print_json
from penstock.text.commands import command

if TYPE_CHECKING:
    from penstock.local.graphs import LocalGraph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_json(parser)
    arguments.add_wide(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.local.graphs import GraphState, list_graphs

    graphs = list_graphs()
    if args.json:
        print_json([graph.as_dict() for graph in graphs])
        return 0
    if not graphs:
        if not args.quiet:
            print("no graph is up; start one with `penstock up GRAPH`", file=sys.stderr)
        return 0
    _print_table(graphs, wide=args.wide, is_quiet=args.quiet)
    for graph in graphs:
        if graph.state is GraphState.KILLED and graph.source:
            running = f" {graph.leftover_processes} of its processes are still running."
            print(
                f"{graph.name} was killed.{running if graph.leftover_processes else ''} Clean up "
                f"with {command('down', _short_path(graph.source))}."
            )
    return 0


def _print_table(graphs: list[LocalGraph], *, wide: bool, is_quiet: bool) -> None:
    from penstock.text.terminal import NARROW, print_table

    headings, rows = ["name", "state", "ready", "up", "url"], [_row(graph) for graph in graphs]
    if wide:
        headings += ["file", "pid", "replicas", "GPUs", "models"]
        rows = [[*row, *_details(graph)] for row, graph in zip(rows, graphs, strict=True)]
    else:
        # The command that stops a graph needs its file: without it only if it does not fit.
        with_file = [[*row, _file(graph)] for row, graph in zip(rows, graphs, strict=True)]
        if _width([[*headings, "file"], *with_file]) <= NARROW:
            headings, rows = [*headings, "file"], with_file
    print_table(headings, rows)
    if "file" not in headings and not is_quiet:
        print("Add --wide for the files, replicas, GPUs and models.")


def _row(graph: LocalGraph) -> list[str]:
    from penstock.text.terminal import duration_text

    counts = graph.replicas.values()
    ready = f"{sum(c.ready for c in counts)}/{sum(c.desired for c in counts)}"
    since = graph.started_at
    return [
        graph.name,
        str(graph.state),
        ready if graph.replicas else "",
        duration_text(time.time() - since) if since else "",
        graph.url or "",
    ]


def _details(graph: LocalGraph) -> list[str]:
    pools = ", ".join(f"{name} {c.ready}/{c.desired}" for name, c in graph.replicas.items())
    gpus = ", ".join(map(str, graph.gpus))
    return [_file(graph), str(graph.pid or ""), pools, gpus, ", ".join(graph.models)]


def _file(graph: LocalGraph) -> str:
    return _short_path(graph.source) if graph.source else ""


def _width(rows: list[list[str]]) -> int:
    """Of a table with two spaces after each column but the last."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return sum(widths) + 2 * len(widths)


def _short_path(source: str) -> str:
    """The path, relative to the current folder if the file is below it."""
    here = Path(os.path.realpath("."))
    path = Path(source)
    return str(path.relative_to(here)) if path.is_relative_to(here) else source
