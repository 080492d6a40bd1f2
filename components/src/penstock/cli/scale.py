"""`penstock scale GRAPH decode=4`: edit the file, which a running `up` or `--cluster` applies."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

from penstock.cli import arguments
from penstock.cli.command_line import add_switch
from penstock.cli.progress import print_line
from penstock.errors import ClusterError, GraphError, InputError, PenstockError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="GRAPH", type=_graph, help="graph YAML")
    arguments.add_running_sets(parser)
    parser.add_argument(
        "changes",
        metavar="POOL=N",
        nargs="+",
        help="set the replicas of a pool, such as decode=4; repeatable",
    )
    add_switch(
        parser, "--cluster", "also scale the release, without applying other changes of the file"
    )
    arguments.add_cluster(parser)
    arguments.add_yes(parser)
    arguments.add_wait(parser)


def _graph(text: str) -> Path:
    """Not the first change, where GRAPH was left out."""
    path = Path(text)
    if "=" in text and not path.exists():
        raise argparse.ArgumentTypeError(
            f"got {text!r}, but the graph comes first: `penstock scale graph.yaml {text}`"
        )
    return path


def run(args: argparse.Namespace) -> int:
    from penstock.graph.edit import edit_replicas, restore_text, set_replicas
    from penstock.graph.text_file import read_text_file
    from penstock.local.control import edited, require_not_overridden, require_same_sets
    from penstock.local.state import StateDir
    from penstock.manifests.source import is_manifest

    if args.cluster:
        arguments.refuse_sets(args)
    require_same_sets(StateDir(args.graph), args.sets)
    changes = _changes(args.changes)
    require_not_overridden(args.graph, changes)
    before = read_text_file(args.graph)
    if is_manifest(before):
        raise GraphError(
            "is a DGD manifest; scale edits only graphs",
            file=str(args.graph),
            fix="Edit its replicas; a running `up` applies the change.",
        )
    after = set_replicas(before, changes, str(args.graph))

    def edit() -> None:
        if not edit_replicas(args.graph, changes):
            print(f"{args.graph} already has these replicas")
            return
        for pool, count in changes.items():
            print(f"{args.graph}: {pool}.replicas: {count}")

    if after != before:
        _warn(after, str(args.graph))
    if args.cluster:
        return _scale_release(args, changes, edit, lambda: restore_text(args.graph, after, before))
    edited(args.graph, edit, changes)
    if not StateDir(args.graph).is_locked():
        print("no `penstock up` runs this graph; only the file has these replicas")
    return 0


def _warn(text: str, source: str) -> None:
    """Print a warning if the new numbers need more GPUs than there are, or leave a pool without
    replicas."""
    from penstock.checks.run import check_sources
    from penstock.manifests.source import sources_of
    from penstock.serving.understand import Hints

    try:
        findings = check_sources(sources_of(text, source), Hints())
    except PenstockError:
        return  # what applies the file reports it
    for finding in findings:
        if finding.rule in ("PS209", "PS809") and not finding.suppressed:
            print(
                f"warning: {finding.rule}: {finding.message}. Fix: {finding.fix}", file=sys.stderr
            )


def _scale_release(
    args: argparse.Namespace,
    changes: dict[str, int],
    edit: Callable[[], None],
    undo: Callable[[], bool],
) -> int:
    """Edit the file if the change is possible and the user confirms, and undo it if the cluster
    refuses it."""
    from penstock.cluster.change import of_replicas

    target, api = arguments.connected(args)
    arguments.preflight(target, api, "scale").require()
    change = of_replicas(target, api, changes)
    print_line("\n".join(change.lines()))
    change.require_possible()
    if not change.is_applied and not arguments.confirm(args, f"scale {target}"):
        return 0
    edit()
    rollout = arguments.rollout_of(args, api, target)
    if change.is_applied:
        return rollout.resume()
    try:
        return rollout.upgrade(change)
    except ClusterError:
        with contextlib.suppress(ClusterError, InputError):  # not known, or not writable: kept
            if not change.has_scaled(api) and undo():
                print_line(f"{args.graph}: the edit is undone")
        raise


def _changes(texts: list[str]) -> dict[str, int]:
    changes: dict[str, int] = {}
    for pool, count in map(_change, texts):
        if changes.setdefault(pool, count) != count:
            raise GraphError(
                f"given twice: {changes[pool]} and {count}", place=pool, fix="Give one number."
            )
    return changes


def _change(text: str) -> tuple[str, int]:
    from penstock.strict_yaml.kind import MOST_REPLICAS

    pool, equals, number = text.partition("=")
    if pool and equals and number.isascii() and number.isdigit():
        return pool, int(number)
    message = f"{text!r} is not POOL=N"
    if pool and equals:
        message = f"must be an integer from 0 to {MOST_REPLICAS:,}, got {number or 'nothing'}"
    fix = f"Give the number of replicas, such as `{pool or 'decode'}=2`."
    raise GraphError(message, place=f"{pool}.replicas" if pool and equals else "", fix=fix)
