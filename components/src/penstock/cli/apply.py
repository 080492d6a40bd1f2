"""`penstock apply GRAPH`: check, print the changes, ask for confirmation, write, and wait."""

from __future__ import annotations

import argparse
from pathlib import Path

from penstock.cli import arguments, gateway_shift
from penstock.cli.command_line import add_switch
from penstock.cli.progress import print_line
from penstock.errors import GraphError, UsageError

PLAINTEXT_CREDENTIAL = "PS710"  # Helm stores the values of every revision on the cluster


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser, "graph YAML")
    arguments.add_sets(parser)
    arguments.add_cluster(parser)
    arguments.add_yes(parser)
    arguments.add_wait(parser)
    add_switch(
        parser, "--rollback-on-failure", "roll back to the previous revision if the rollout fails"
    )
    add_switch(
        parser,
        "--adopt",
        "make objects that another tool, such as Argo CD, installed from the chart a release "
        "of Helm; stop that tool from writing them first",
    )
    parser.add_argument(
        "--blue-green",
        metavar="FILE",
        type=Path,
        help="install the release next to the one that serves, and then move the requests of the "
        "gateway in FILE to it in steps",
    )
    gateway_shift.add_pace(parser)
    add_switch(parser, "--skip-check", "apply even if `penstock check` finds errors")


def run(args: argparse.Namespace) -> int:
    from penstock.checks.run import require_sound
    from penstock.cluster.change import against_cluster
    from penstock.manifests.source import open_source
    from penstock.shift.weights import GatewayFile

    if args.adopt and args.rollback_on_failure:
        raise UsageError(
            "--adopt makes the first revision, so --rollback-on-failure has none to roll back to: "
            "adopt the graph as it is, then apply the change"
        )
    target = arguments.target_of(args)
    if args.blue_green is None:
        arguments.require_with(args, "--blue-green", gateway_shift.PACE)
    elif args.no_wait:
        raise UsageError("--blue-green waits for the release: remove --no-wait")
    else:
        file = GatewayFile.open(args.blue_green, target.name)
        gateway_shift.require_namespace(file, target)
        options = arguments.words_of(args, ["sets", "release", "kubeconfig", "context"])
        words = [str(args.graph), "--cluster", f"--namespace={target.namespace}", *options]
        gateway = gateway_shift.on_cluster(args, file, words)
        with gateway.open_frontends(file.old).endpoint():
            pass  # before the installation: the user may connect to frontends
    source = open_source(args.graph, args.sets, target.namespace)
    if source.loaded is None:
        raise GraphError(
            "is a DGD manifest, but apply installs graphs only",
            file=str(args.graph),
            fix=f"Run `kubectl apply --server-side -f {args.graph}`.",
        )
    if not args.skip_check:
        for line in require_sound(source, refused=[PLAINTEXT_CREDENTIAL]):
            print(line)
    _, api = arguments.connected(args)
    preflight = arguments.preflight(target, api, "apply")
    change = against_cluster(source.loaded, target, api, preflight.require)
    print_line("\n".join(change.lines()))
    rollout = arguments.rollout_of(args, api, target)
    question = f"apply to {target}"
    if args.blue_green is not None:
        question += f", and shift the requests of {args.blue_green} to it"
    if change.is_applied:
        if args.blue_green is not None and not arguments.confirm(args, question):
            return 0
        code = rollout.resume(rollback_on_failure=args.rollback_on_failure)
    else:
        change.require_possible(adopts=args.adopt)
        if not arguments.confirm(args, question):
            return 0
        code = rollout.upgrade(change, rollback_on_failure=args.rollback_on_failure)
    return code if args.blue_green is None or code else gateway_shift.shift(args, file, gateway)
