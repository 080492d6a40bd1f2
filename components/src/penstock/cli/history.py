"""`penstock history GRAPH`: list the revisions of its release, newest last."""

from __future__ import annotations

import argparse

from penstock.cli import arguments
from penstock.cli.outputs import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_release(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.cluster.release import HistoryEntry, history, require_installed
    from penstock.cluster.report import history_change

    target, api = arguments.connected(args)
    revision = require_installed(target, api).revision
    entries = (
        history(target) if revision.is_recorded else (HistoryEntry(revision=revision, diff=None),)
    )
    if args.json:
        rows = [
            {
                "revision": e.revision.number or None,
                "status": e.revision.status,
                "at": e.revision.at,
                "change": history_change(e),
                "outcome": e.revision.outcome or None,
                "reverts_to": e.reverts_to,
            }
            for e in entries
        ]
        print_json(rows)
        return 0
    for e in entries:
        r = e.revision
        print(f"{r.number or '–':>4}  {r.at:<20}  {r.status:<16}  {history_change(e)}".rstrip())
    return 0
