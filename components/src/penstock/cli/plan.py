"""`penstock plan`: a graph for a model, GPUs, traffic and promises, with what speaks for it."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.replaying import (
    Notes,
    add_slo,
    add_workload,
    end_as_interrupted,
    slo_of,
    whole_number,
    workload_of,
)

if TYPE_CHECKING:
    from penstock.plan.model import PlannedModel
    from penstock.plan.space import Wanted
    from penstock.workload.load import LoadedWorkload

REPLAYS, LEAST_REPLAYS = 80, 10
LEAST_CONTEXT = 8192


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", required=True, metavar="NAME", help="gpt-oss-120b, or an id of the model hub"
    )
    parser.add_argument("--hardware", required=True, metavar="GPU", help="h100, b200, gb200, …")
    parser.add_argument(
        "--gpus", required=True, type=whole_number(10_000), metavar="N", help="at the most"
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
        type=whole_number(100_000, LEAST_REPLAYS),
        default=REPLAYS,
        metavar="N",
        help=f"what the search may take (default: {REPLAYS}, about a minute on two cores)",
    )
    parser.add_argument("--no-cache", action="store_true", help="replay what was replayed before")
    arguments.add_json(parser)
    arguments.add_output(parser, default=None)


def run(args: argparse.Namespace) -> int:
    from penstock.plan import words
    from penstock.plan.graph_text import graph_text
    from penstock.plan.model import planned_model
    from penstock.plan.planning import NoPlan, plan
    from penstock.simulate.cache import Cache, kept
    from penstock.simulate.replay import Replays, require_environment

    end_as_interrupted()
    _judge_output(args)
    python = require_environment()
    loaded = workload_of(args)
    with tempfile.TemporaryDirectory(prefix="penstock-plan-") as folder:
        wanted = _wanted(args, planned_model(args.model, Path(folder)), loaded)
        cache = Cache(None, "") if args.no_cache else kept(python)
        note = Notes(sys.stderr, time.monotonic)
        with Replays(cache) as replays:
            found = plan(wanted, loaded, replays, budget=args.replays, attain=args.attain, say=note)
        note("")
    if isinstance(found, NoPlan):
        raise words.refusal(found, args.attain)
    header = words.header(found, args.attain, _command())
    text = graph_text(found.wanted, found.winner.candidate, header)
    if args.output:
        arguments.write_output(text, args.output)
    if args.json:
        print(words.as_json(found, args.attain, text))
    elif args.output != "-":
        for line in words.lines(found, args.attain):
            print(line)
        if not args.output:
            print("write the graph with -o FILE")
        elif not found.wanted.shape.is_gpt_oss:
            print(f"other verbs need the shape of {found.wanted.model}: --model DIR, its folder")
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


def _wanted(args: argparse.Namespace, model: PlannedModel, loaded: LoadedWorkload) -> Wanted:
    """Everything that was asked; UsageError for what cannot be."""
    from penstock.errors import UsageError
    from penstock.hardware import GPUS
    from penstock.plan.space import Objective, Wanted
    from penstock.plan.traffic import shares
    from penstock.simulate.timing import SYSTEMS

    if args.hardware not in SYSTEMS:
        raise UsageError(
            f"--hardware {args.hardware} was not measured; there are {', '.join(SYSTEMS)}"
        )
    slo = slo_of(args)
    if not slo:
        raise UsageError("a plan needs something to hold: --ttft, --itl or --e2e")
    if loaded.workload.conversation and args.objective == "throughput":
        message = "conversations go on for longer than a plan's replays: their most is not found"
        raise UsageError(f"{message}; plan for cost or interactivity, at a --load")
    requests = loaded.requests(0)
    longest = max(one.input_tokens + one.output_tokens for one in requests)
    if longest > model.positions:
        message = f"{model.id} takes {model.positions} tokens"
        raise UsageError(f"requests of {longest} tokens: {message}; shorten those of {loaded.name}")
    context = LEAST_CONTEXT
    while context < 2 * longest:
        context *= 2
    return Wanted(
        model=model.id,
        shape=model.shape,
        folder=model.folder,
        gpu=GPUS[args.hardware],
        gpus=args.gpus,
        slo=slo,
        objective=Objective(args.objective),
        context=min(context, model.positions),
        shares=shares(requests),
        gpu_hour=args.gpu_hour,
    )
