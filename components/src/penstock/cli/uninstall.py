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
    from penstock.cluster.release import require
    from penstock.cluster.remove import kept_claims, remove

    target = arguments.target_of_file(args)
    api = Api.connect(target)
    release = require(target)
    claims = kept_claims(api, target, release)
    print(f"{target}: revision {release.revision.number} goes, and nothing serves after it")
    word = "goes too" if args.delete_cache else "stays (--delete-cache deletes it)"
    for claim in claims:
        print(f"  PersistentVolumeClaim {claim['metadata']['name']} {word}")
    if not arguments.confirm(args, f"uninstall {target}"):
        print("nothing was changed")
        return 0
    remove(api, target, claims if args.delete_cache else ())
    print(f"{target} is uninstalled")
    return 0
