"""`penstock status GRAPH`: show its local processes or, with `--cluster`, its release."""

from __future__ import annotations

import argparse

from penstock.cli import arguments
from penstock.cli.command_line import add_switch
from penstock.cli.outputs import print_json
from penstock.errors import RolloutError, UsageError

INTERVAL_S = 1.0  # between the two samples for the request rate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    arguments.add_running_sets(parser)
    arguments.add_json(parser)
    add_switch(parser, "--cluster", "show the release on a cluster instead of local processes")
    add_switch(parser, "--watch", "refresh every 2 s until q or Ctrl-C")
    arguments.add_wide(parser)
    arguments.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    if args.watch and args.json:
        raise UsageError("--watch and --json cannot be combined")
    if args.cluster:
        arguments.refuse_sets(args)
        return _release_status(args)
    from penstock.local.control import status_with_load
    from penstock.local.load import LoadSampler
    from penstock.local.status_table import print_status, watch_status

    sampler = LoadSampler()
    if args.watch:
        watch_status(lambda: status_with_load(args.graph, sampler, args.sets), wide=args.wide)
        return 0
    graph = status_with_load(args.graph, sampler, args.sets, INTERVAL_S)
    if args.json:
        print_json(graph.as_dict())
    else:
        print_status(graph, wide=args.wide)
    return 0


def _release_status(args: argparse.Namespace) -> int:
    """Exit code 16 if the release is not ready."""
    from penstock.cluster.status import StatusReader, as_dict, as_text, watch

    target, api = arguments.connected(args)
    reader = StatusReader(api, target)
    if args.watch:
        return watch(reader)
    status = reader.read()
    if args.json:
        print_json(as_dict(status))
    else:
        print(as_text(status))
    return 0 if status.progress.is_done else RolloutError.exit_code
