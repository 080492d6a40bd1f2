"""`penstock check GRAPH|MANIFEST…`: find errors and risks before a deployment uses a GPU."""

from __future__ import annotations

import argparse
from pathlib import Path

from penstock.cli import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        metavar="GRAPH|MANIFEST",
        type=_path,
        nargs="*",
        help="files to check (-: standard input)",
    )
    arguments.add_sets(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--sarif", action="store_true", help="print SARIF 2.1.0 for code scanning")
    parser.add_argument("--strict", action="store_true", help="fail on warnings too")
    parser.add_argument(
        "--explain", metavar="PSnnn", help="print the documentation of a rule and exit"
    )
    arguments.add_hints(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.checks import report
    from penstock.checks.run import check_file, tally
    from penstock.errors import CheckError, UsageError

    if args.explain:
        print(report.explain(_known(args.explain)))
        return 0
    if not args.files:
        raise UsageError("pass a graph or a manifest to check, or --explain PSnnn")
    hints = arguments.hints_of(args)
    findings = [f for path in args.files for f in check_file(path, hints, args.sets)]
    if args.json:
        print(report.as_json(findings, [str(path) for path in args.files]))
    elif args.sarif:
        print(report.as_sarif(findings))
    else:
        report.print_text(findings, len(args.files))
    counts = tally(findings)
    failed = counts.errors or (args.strict and counts.warnings)
    return CheckError.exit_code if failed else 0


def _path(text: str) -> Path:
    return Path("/dev/stdin" if text == "-" else text)


def _known(rule: str) -> str:
    from penstock.checks.registry import RULES
    from penstock.errors import UsageError

    if rule not in {known.id for known in RULES}:
        raise UsageError(f"there is no rule {rule}; rules are {RULES[0].id} to {RULES[-1].id}")
    return rule
