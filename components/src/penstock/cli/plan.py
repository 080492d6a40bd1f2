"""`penstock plan`: a graph for a model, GPUs, traffic and promises, with what speaks for it."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from pathlib import Path

from penstock.cli import arguments
from penstock.cli.replay_arguments import (
    Notes,
    add_slo,
    add_workload,
    end_as_interrupted,
    integer_between,
    slo_of,
    workload_of,
)

REPLAYS, LEAST_REPLAYS = 80, 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", required=True, metavar="NAME", help="gpt-oss-120b, or an id of the model hub"
    )
    parser.add_argument("--hardware", required=True, metavar="GPU", help="h100, b200, gb200, …")
    parser.add_argument(
        "--gpus", required=True, type=integer_between(10_000), metavar="N", help="at the most"
    )
    add_workload(parser)
    add_slo(parser)
    parser.add_argument(
        "--objective",
        choices=["cost", "throughput", "interactivity"],
        default="cost",
        help="the fewest GPUs that hold the load (default), the most load that the GPUs hold, or "
        "the most tokens a second for a user",
    )
    parser.add_argument(
        "--replays",
        type=integer_between(100_000, LEAST_REPLAYS),
        default=REPLAYS,
        metavar="N",
        help=f"what the search may take (default: {REPLAYS}, about a minute on two cores)",
    )
    parser.add_argument("--no-cache", action="store_true", help="replay what was replayed before")
    arguments.add_json(parser)
    arguments.add_output(parser, default=None)


def run(args: argparse.Namespace) -> int:
    from penstock.plan import report
    from penstock.plan.graph_text import graph_text
    from penstock.plan.planning import NoPlan, plan
    from penstock.plan.request import Objective, plan_request
    from penstock.simulate.cache import Cache, kept
    from penstock.simulate.replay import Replays, require_environment

    end_as_interrupted()
    _judge_output(args)
    python = require_environment()
    loaded = workload_of(args)
    with tempfile.TemporaryDirectory(prefix="penstock-plan-") as folder:
        request = plan_request(
            args.model,
            loaded,
            scratch=Path(folder),
            gpu=args.hardware,
            gpus=args.gpus,
            slo=slo_of(args),
            objective=Objective(args.objective),
            gpu_hour_price=args.gpu_hour,
        )
        cache = Cache(None, "") if args.no_cache else kept(python)
        note = Notes(sys.stderr, time.monotonic)
        with Replays(cache) as replays:
            found = plan(
                request, loaded, replays, budget=args.replays, attain=args.attain, say=note
            )
        note("")
    if isinstance(found, NoPlan):
        raise report.refusal(found, args.attain, args.load)
    header = report.header(found, args.attain, _command())
    text = graph_text(found.request, found.winner.candidate, header)
    if args.output:
        arguments.write_output(text, args.output)
    if args.json:
        print(report.as_json(found, args.attain, text))
    elif args.output != "-":
        for line in report.lines(found, args.attain):
            print(line)
        if not args.output:
            print("write the graph with -o FILE")
        elif not found.request.shape.is_gpt_oss:
            print(f"other verbs need the shape of {found.request.model}: --model DIR, its folder")
    return 0


def _command() -> str:
    return shlex.join(["penstock", *sys.argv[1:]])


def _judge_output(args: argparse.Namespace) -> None:
    """Before the replays, not after them."""
    from penstock.errors import GraphError, UsageError
    from penstock.graph.load import name_problems

    if args.output == "-" and args.json:
        raise UsageError("-o - and --json both write to the standard output; --json has the graph")
    if args.output in (None, "-"):
        return
    path = Path(args.output)
    if not args.output or path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(f"-o {args.output!r} is no file that can be made")
    if problems := name_problems(args.output):
        raise GraphError(*problems)
