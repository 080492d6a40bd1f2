"""`penstock uninstall GRAPH`: remove the release; the model's cache stays unless told."""

from __future__ import annotations

import argparse

from penstock.cli import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_release(parser)
    parser.add_argument(
        "--delete-cache",
        action="store_true",
        help="delete the volume claims that the release made too: the model's weights, etcd's data",
    )
    arguments.add_yes(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.cluster.api import Api
    from penstock.cluster.release import current, require
    from penstock.cluster.rollout import unbroken
    from penstock.cluster.uninstall import left_by_helm, remove

    target = arguments.target_of(args)
    api = Api.connect(target)
    release = current(target)
    left = left_by_helm(api, target)
    doomed = left.files + (left.claims if args.delete_cache else ())
    if release is None and not doomed:
        require(target)  # says that there is none
    if release:
        print(f"{target}: revision {release.revision.number} goes, and nothing serves after it")
    else:
        print(f"{target} is uninstalled; what it left goes: {len(doomed)} objects")
    word = "goes too" if args.delete_cache else "stays (--delete-cache deletes it)"
    for claim in left.claims:
        print(f"  PersistentVolumeClaim {claim['metadata']['name']} {word}")
    if not arguments.confirm(args, f"uninstall {target}"):
        return 0
    with unbroken(arguments.say):
        remove(api, target, release, doomed)
    print(f"{target} is uninstalled")
    return 0
