"""`penstock explain GRAPH [COMPONENT]`: describe what each component executes."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.command_line import add_switch
from penstock.cli.outputs import print_json

if TYPE_CHECKING:
    from penstock.manifests.source import Source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    parser.add_argument(
        "component", metavar="COMPONENT", nargs="?", help="describe only this component"
    )
    arguments.add_sets(parser)
    arguments.add_json(parser)
    add_switch(parser, "--memory", "describe the GPU memory of each worker instead")
    arguments.add_hints(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.manifests.explain import choose, explain
    from penstock.manifests.source import open_source

    source = open_source(args.graph, args.sets)
    components = choose(source.deployment, args.component)
    if args.memory:
        return _memory(args, source, {component.name for component in components})
    if args.json:
        print_json([dataclasses.asdict(c) for c in components])
        return 0
    print("\n\n".join(explain(component) for component in components))
    return 0


def _memory(args: argparse.Namespace, source: Source, names: set[str]) -> int:
    """Print one budget per pool; if there is none, the reason goes to standard error."""
    from penstock.memory.table import as_dict, as_text
    from penstock.serving.memory import (
        fix_of_missing,
        memory_budgets,
        no_budget_reason,
        runs_on_gpu,
    )
    from penstock.serving.understand import understand

    deployment = understand(source, arguments.hints_of(args))
    named = [
        (worker.name, budget)
        for worker, budget in memory_budgets(deployment)
        if worker.name in names
    ]
    if args.json:
        print_json([as_dict(name, budget) for name, budget in named])
    elif named:
        print("\n\n".join(as_text(name, budget) for name, budget in named))
    if not named:
        message = f"cannot compute the memory: {no_budget_reason(deployment)}"
        needs_fix = any(map(runs_on_gpu, deployment.workers))
        fix = f". Fix: {fix_of_missing(deployment)}" if needs_fix else ""
        print(f"penstock explain: {message}{fix}", file=sys.stderr)
    return 0
