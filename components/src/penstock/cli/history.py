"""`penstock history GRAPH`: the revisions of its release, newest last."""

from __future__ import annotations

import argparse
import json

from penstock.cli import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_release(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.cluster.chronicle import chronicle

    entries = chronicle(arguments.target_of(args))
    if args.json:
        rows = [
            {"revision": e.revision.number, "status": e.revision.status, "at": e.revision.at}
            | {"change": e.change}
            for e in entries
        ]
        print(json.dumps(rows, indent=1))
        return 0
    for e in entries:
        revision = e.revision
        print(
            f"{revision.number:>4}  {revision.at:<20}  {revision.status:<16}  {e.change}".rstrip()
        )
    return 0
