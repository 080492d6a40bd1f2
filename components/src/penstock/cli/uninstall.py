"""`penstock uninstall GRAPH`: uninstall the release; the model cache is kept by default."""

from __future__ import annotations

import argparse

from penstock.cli import arguments
from penstock.cli.command_line import add_switch
from penstock.cli.progress import print_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_release(parser)
    add_switch(
        parser,
        "--delete-cache",
        "also delete the release's PersistentVolumeClaims: model weights and etcd data",
    )
    arguments.add_yes(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.cluster.release import read_release, require_release
    from penstock.cluster.rights import claim_needs
    from penstock.cluster.rollout import defer_signals
    from penstock.cluster.uninstall import list_leftovers, require_remains, uninstall

    target, api = arguments.connected(args)
    preflight = arguments.preflight(target, api, "uninstall")
    preflight.require((), extra=claim_needs() if args.delete_cache else ())
    release = read_release(target)
    leftovers = list_leftovers(api, target)
    objects = leftovers.files + leftovers.graphs + (leftovers.claims if args.delete_cache else ())
    if release is None:
        require_remains(api, target, leftovers, arguments.clock())
    if release is None and not objects:
        require_release(target)  # raises that it is not installed
    if release:
        number = release.revision.number
        print(f"{target}: revision {number} will be uninstalled, and serving stops")
    else:
        count = len(objects)
        print(f"{target} is already uninstalled; its {count} remaining objects will be deleted")
    fate = "will be deleted" if args.delete_cache else "is kept (delete it with --delete-cache)"
    for claim in leftovers.claims:
        print(f"  PersistentVolumeClaim {claim['metadata']['name']} {fate}")
    if not arguments.confirm(args, f"uninstall {target}"):
        return 0
    with defer_signals(print_line):
        uninstall(api, target, release, objects, arguments.clock())
    print(f"{target} is uninstalled")
    return 0
