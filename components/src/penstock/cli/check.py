"""`penstock check GRAPH|MANIFEST|DIR…`: find errors and risks before a deployment uses a GPU."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import arguments, outputs
from penstock.cli.command_line import add_switch
from penstock.engines.releases import DEPLOYED
from penstock.errors import CheckError, UsageError

if TYPE_CHECKING:
    from packaging.version import Version

    from penstock.checks.baseline import Baseline, Scope
    from penstock.checks.finding import Finding
    from penstock.checks.report import CheckReport
    from penstock.checks.select import Selection
    from penstock.engines.dry_run.process import EngineProcesses

FORMATS = ("concise", "full", "json", "sarif", "github")
INDENT = 9  # of the continued lines of --explain and --list-rules
LEVELS = ("error", "warning", "note")
EPILOG = """\
exit codes:
  0   no finding is above --max-level
  14  a finding is above --max-level
  2   the command line is invalid
  3   the baseline or the rules of --rules cannot be read, or the baseline
      cannot be written

Rules PS001 to PS004 (files that cannot be read or are invalid) are always
reported: --select, --ignore, comments and the baseline do not affect them.

To suppress a finding on one line, or a rule in one file, write a comment with a
reason:
  replicas: 1  # penstock: ignore PS810 one frontend is enough for a test
  # penstock: ignore-file PS803,PS805 updates are planned with another node
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument(
        "files",
        metavar="GRAPH|MANIFEST|DIR",
        type=_path,
        nargs="*",
        help="files to check, or folders of them (-: standard input)",
    )
    arguments.add_sets(parser)
    _add_formats(parser)
    _add_selection(parser)
    add_switch(
        parser,
        "--engine-dry-run",
        "build the configuration of each worker with the engine's own code, without a GPU "
        "(needs the environments vllm-cpu and sglang-check; takes 15 s per engine and GPU)",
    )
    parser.add_argument(
        "--explain", metavar="PSnnn", help="print the documentation of a rule and exit"
    )
    add_switch(parser, "--list-rules", "print the id, level and title of each rule")
    arguments.add_hints(parser)
    parser.add_argument(
        "--operator-version",
        metavar="X",
        help="check manifests for this version of the Dynamo operator, from 1.0 (default: "
        f"{DEPLOYED}, with the CRD of 1.5 and the fields that 1.6 added); newer ones are checked "
        "as 1.6, with a warning (PS910)",
    )


def _add_formats(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--format",
        choices=FORMATS,
        metavar="FORMAT",
        default="concise",
        help="concise: a line for each finding; full: with reason, fix and YAML to paste; json; "
        "sarif: SARIF 2.1.0 for code scanning; github: annotations of GitHub Actions "
        "(default: concise)",
    )
    for name in ("full", "json", "sarif"):
        form.add_argument(
            f"--{name}",
            dest="format",
            action="store_const",
            const=name,
            help=f"the same as --format {name}",
        )


def _add_selection(parser: argparse.ArgumentParser) -> None:
    for name, what in (("select", "report only"), ("ignore", "do not report")):
        parser.add_argument(
            f"--{name}",
            metavar="RULES",
            action="append",
            default=[],
            help=f"{what} these rules: ids or beginnings of ids with commas, such as PS4,PS501; "
            "repeatable; the longest beginning decides",
        )
    level = parser.add_mutually_exclusive_group()
    level.add_argument(
        "--max-level",
        choices=LEVELS,
        default="warning",
        help="highest level that is not a failure (default: warning); note: warnings are failures "
        "too; error: nothing is",
    )
    level.add_argument(
        "--strict",
        dest="max_level",
        action="store_const",
        const="note",
        help="the same as --max-level note: fail on warnings too",
    )
    parser.add_argument(
        "--rules",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="also apply the rules in the YAML files of this folder; repeatable",
    )
    parser.add_argument(
        "--baseline",
        metavar="FILE",
        type=Path,
        help="JSON file with accepted findings, which are not reported",
    )
    add_switch(
        parser, "--write-baseline", "write the findings to the file of --baseline, and exit with 0"
    )


def run(args: argparse.Namespace) -> int:
    from penstock.checks.registry import added_rules, all_rules
    from penstock.checks.rows.load import user_rules

    if not args.rules:
        return _run(args)
    user_rows = user_rules(args.rules, [rule.id for rule in all_rules()])
    with added_rules(user_rows):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from penstock.checks import report
    from penstock.checks.select import known_rule
    from penstock.text.terminal import print_fitted

    if args.explain:
        lines = report.explain(known_rule(args.explain)).splitlines()
    elif args.list_rules:
        lines = list(report.rule_lines())
    else:
        return _check(args)
    for line in lines:
        print_fitted(line, INDENT)
    return 0


def _check(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from penstock.checks.find_files import found_files
    from penstock.checks.merge import merged
    from penstock.checks.report import CheckReport
    from penstock.checks.run import check_file
    from penstock.checks.select import selection

    if not args.files:
        raise UsageError("pass a graph or a manifest to check, or --explain PSnnn")
    if args.write_baseline and args.baseline is None:
        raise UsageError("--write-baseline needs --baseline FILE, the file to write")
    rules = selection(args.select, args.ignore)
    hints = replace(arguments.hints_of(args), operator=_operator(args.operator_version))
    baseline = _baseline(args.baseline, is_renewed=args.write_baseline)
    paths = found_files(args.files)
    with _engines(is_asked=args.engine_dry_run) as engines:
        findings = [
            finding
            for path in paths.files
            for finding in check_file(
                path, hints, args.sets, engines=engines, is_shown=rules.includes
            )
        ]
    findings = [finding for finding in findings if rules.includes(finding.rule)]
    files = tuple(str(path) for path in paths.files)
    if args.write_baseline:
        return _write_baseline(args.baseline, baseline, findings, _scope(files, rules))
    result = CheckReport(findings=tuple(findings), files=files, skipped=paths.skipped)
    if baseline is not None:
        result = _without_accepted(result, baseline, args.baseline, _scope(files, rules))
    result = replace(result, findings=merged(result.findings))
    _print(result, args.format, is_quiet=args.quiet)
    return _exit_code(result.findings, args.max_level)


def _operator(text: str | None) -> Version:
    """`--operator-version`; UsageError for one whose CRD is not stored."""
    from packaging.version import InvalidVersion, Version

    from penstock.manifests.fields import stored_release, stored_releases
    from penstock.serving.deployment import DEPLOYED_OPERATOR

    if text is None:
        return DEPLOYED_OPERATOR
    try:
        version = Version(text)
    except InvalidVersion:
        version = None
    if version is None or stored_release(version) is None:
        known = stored_releases()
        message = f"the CRD of operator {text!r} is not known"
        fix = f"Use {', '.join(known[:-1])}, {known[-1]} or a newer version."
        raise UsageError(message, place="--operator-version", fix=fix)
    return version


@contextmanager
def _engines(*, is_asked: bool) -> Iterator[EngineProcesses | None]:
    """The processes of the engines whose environments are installed. No signal leaves them, or
    their temporary folder, behind."""
    if not is_asked:
        yield None
        return
    from penstock.checks.engine_dry_run import installed_engines
    from penstock.drill.interrupts import raised_once

    with raised_once(), installed_engines() as engines:
        yield engines


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path("/dev/stdin" if text == "-" else text)


def _baseline(path: Path | None, *, is_renewed: bool) -> Baseline | None:
    """The file of --baseline; None without one, or if it is written for the first time."""
    if path is None or (is_renewed and not path.exists()):
        return None
    # It imports pydantic, which the check of a manifest does without.
    from penstock.checks.baseline import parse_baseline
    from penstock.graph.text_file import read_text_file
    from penstock.manifests.source import MOST_BYTES

    return parse_baseline(read_text_file(path, MOST_BYTES), path)


def _write_baseline(
    path: Path, old: Baseline | None, findings: Sequence[Finding], scope: Scope
) -> int:
    from penstock.checks.baseline import as_text, renewed
    from penstock.text.numbers import counted

    baseline = renewed(findings, old, path.parent, scope)
    outputs.write_output(as_text(baseline), str(path))
    print(f"wrote {counted(len(baseline.findings), 'finding')} to {path}")
    return 0


def _scope(files: tuple[str, ...], rules: Selection) -> Scope:
    from penstock.checks.baseline import Scope

    return Scope(files=files, includes=rules.includes)


def _without_accepted(
    result: CheckReport, baseline: Baseline, path: Path, scope: Scope
) -> CheckReport:
    """The report without the findings of the baseline."""
    from dataclasses import replace

    from penstock.checks.baseline import match

    matched = match(result.findings, baseline, path.parent, scope)
    return replace(
        result, findings=matched.findings, accepted=matched.accepted, stale=len(matched.stale)
    )


def _print(result: CheckReport, form: str, *, is_quiet: bool) -> None:
    from penstock.checks import formats, report

    if form in ("concise", "full"):
        report.print_text(result, is_full=form == "full", is_quiet=is_quiet)
        return
    writers = {"json": formats.as_json, "sarif": formats.as_sarif, "github": formats.as_github}
    print(writers[form](result))


def _exit_code(findings: Sequence[Finding], max_level: str) -> int:
    failing = LEVELS[: LEVELS.index(max_level)]
    failed = any(f.level in failing and not f.suppressed for f in findings)
    return CheckError.exit_code if failed else 0
