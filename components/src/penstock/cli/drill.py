"""`penstock drill GRAPH|URL [--cluster]`: inject faults under load, and report failed requests."""

from __future__ import annotations

import argparse
import os
import random
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from penstock.cli import arguments
from penstock.cli.command_line import add_switch
from penstock.cli.progress import no_progress
from penstock.cli.replay_arguments import DeprecatedFlag, integer_between
from penstock.cli.report_output import add_report, require_report
from penstock.errors import DrillError, UsageError
from penstock.files import in_repository
from penstock.graph.choices import AnyFaultKind, FaultKind
from penstock.text.commands import invocation

if TYPE_CHECKING:
    from penstock.drill.faults import Choice
    from penstock.drill.run import DrillOptions, DrillResult, Pace
    from penstock.reports.model import Report

DEFAULT_COUNT = 20
STARTED_LATER = ("planner", "event-broker", "etcd", "nats", "endpoint")
DEFAULT_STREAMS = 32
CLUSTER_RECOVERY_S = 1800.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="GRAPH|URL",
        help="graph YAML: the drill starts a separate copy and leaves a running graph alone; or "
        "base URL of an OpenAI-compatible endpoint, with /v1 (API key: OPENAI_API_KEY)",
    )
    _add_cluster_arguments(parser)
    parser.add_argument(
        "--faults",
        metavar="KIND[:PROGRAM],…|FILE",
        default="default",
        help="faults to inject. For a graph: kinds, each optionally of one program, such as "
        f"kill:decode; kinds: {', '.join(get_args(FaultKind))} (default: all). "
        "With partition, packet-loss, slow-network or disk-full, the graph cannot reach other "
        "hosts. For a URL: YAML file with commands (required; example: "
        f"{in_repository('k8s/drill.yaml')})",
    )
    _add_length(parser)
    _add_concurrency(parser)
    parser.add_argument(
        "--stall-s",
        type=_positive,
        metavar="S",
        help="report a stream as stalled if nothing arrives for S seconds (default: `drill.stall_s`"
        " of the graph, or 5)",
    )
    add_switch(
        parser,
        "--exact",
        "compare responses with a run without faults, for prompts whose output is "
        "deterministic (vLLM on a CPU)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="model to request from a URL (default: the first that it lists)",
    )
    parser.add_argument(
        "--engine", choices=["mocker"], help="run mockers instead of the graph's engine"
    )
    arguments.add_sets(parser)
    add_report(parser, "write an HTML report")
    parser.add_argument(
        "-y",
        "--yes",
        action="store_true",
        help="do not ask before running commands or changing a cluster",
    )
    arguments.add_json(parser)


def _add_concurrency(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--concurrency",
        type=_positive,
        default=DEFAULT_STREAMS,
        metavar="N",
        help=f"number of requests at the same time (default: {DEFAULT_STREAMS})",
    )
    parser.add_argument(
        "--streams",
        dest="concurrency",
        type=_positive,
        action=DeprecatedFlag,
        const="--concurrency",
        help=argparse.SUPPRESS,
    )


def _add_length(parser: argparse.ArgumentParser) -> None:
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--count", type=_positive, metavar="N", help=f"number of faults (default: {DEFAULT_COUNT})"
    )
    length.add_argument(
        "--minutes", type=_positive, metavar="M", help="inject faults for M minutes"
    )
    parser.add_argument(
        "--seed",
        type=integer_between(0, 2**32 - 1),
        metavar="S",
        help="seed of the order of the faults (default: random)",
    )


def _add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    add_switch(
        parser,
        "--cluster",
        "drill the release of the graph on a cluster instead of a copy on this machine; kinds "
        "of --faults: delete[:POOL], evict[:POOL], kill[:POOL], drain[:NODE] (default: all except "
        "drain, which needs rights in the whole cluster)",
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        help="with --cluster: base URL of the release's endpoint, with /v1 (default: a port "
        "forwarded to the frontends)",
    )
    add_switch(
        parser, "--remove-last", "with --cluster: also remove the last ready pod of a component"
    )
    arguments.add_cluster(parser)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def run(args: argparse.Namespace) -> int:
    from penstock.drill import interrupts

    interrupts.raise_once()
    from penstock.drill.documents import drill_document
    from penstock.drill.report import report_of
    from penstock.reports.text import print_report

    require_report(args.report)
    args.seed = random.randrange(10**6) if args.seed is None else args.seed
    is_url = args.target.startswith(("http://", "https://"))
    _require_options_of_cluster(args, is_url=is_url)
    if args.cluster:
        result = _drill_cluster(args)
    else:
        result = _drill_endpoint(args) if is_url else _drill_graph(args)
    repeat = _repeat(args, result)
    report = report_of(args.target, result)
    if args.json:
        print(drill_document(result, repeat).as_json(indent=1, ensure_ascii=False))
    else:
        print_report(report)
        print(f"repeat: {repeat}")  # on one line, so that it can be copied
    if args.report is not None:
        _write_report(args, report, repeat)
    if result.was_interrupted:
        raise KeyboardInterrupt
    if not result.evaluation.passes:
        raise DrillError("the drill failed: see the failures above")
    return 0


def _write_report(args: argparse.Namespace, report: Report, repeat: str) -> None:
    from penstock.cli.graph_output import own_command
    from penstock.reports.html import write_report
    from penstock.reports.provenance import provenance

    files = [Path(args.target), Path(args.faults)]
    facts = {"seed": str(args.seed), "repeat": repeat}
    write_report(args.report, report, provenance(own_command(), files=files, facts=facts))


def _drill_graph(args: argparse.Namespace) -> DrillResult:
    from penstock.drill import isolation
    from penstock.drill.run import drill_graph
    from penstock.drill.targets import require_programs
    from penstock.graph.load import load_graph
    from penstock.local.missing_environment import install_missing

    if args.model is not None:
        raise UsageError("a graph names its own model", place="--model", fix="Remove --model.")
    # Load the original first, so that errors name the user's file and not the copy.
    graph = load_graph(Path(args.target), args.sets).graph
    install_missing(Path(args.target), args.sets, with_engine=args.engine is None)
    limits, servers = graph.drill, graph.infrastructure
    choices = _choices(args, bool(servers.etcd_endpoints or servers.nats_url))
    # Before the start; which services there are, and whether it has a planner, is known only then.
    require_programs(choices, {"frontend", *graph.pools}, STARTED_LATER)
    if isolation.is_inside():
        isolation.start_loopback()
    options = _options(args, args.stall_s or limits.stall_s, limits.permitted_failures)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-drill-") as folder,
        isolation.disk(Path(folder)) as disk,
    ):
        engine = ["--engine", args.engine] if args.engine else []
        say = _say_of(args)
        return drill_graph(Path(args.target), choices, engine, args.sets, options, disk, say)


def _choices(args: argparse.Namespace, names_servers: bool) -> list[Choice]:
    """The chosen faults that this machine permits.

    For faults of the network and the disk, the drill re-executes itself in new namespaces, and this
    does not return. ``names_servers``: the graph needs servers outside of them.
    """
    from penstock.drill import isolation
    from penstock.drill.faults import Need
    from penstock.drill.inject import KINDS, choose

    choices = choose(",".join(KINDS) if args.faults == "default" else args.faults)
    isolated = [choice for choice in choices if choice.kind.needs is Need.ISOLATION]
    if isolation.is_inside() or not isolated:
        return choices
    namespaces = None if names_servers else isolation.prefix()
    if namespaces is not None:
        isolation.enter(
            namespaces, [sys.executable, "-m", "penstock.cli.main", *_again(args), "--yes"]
        )
    reason = (
        "they run in an isolated network, which cannot reach the etcd or NATS server that the "
        "graph names. Remove `infrastructure.etcd_endpoints` and `infrastructure.nats_url`."
        if names_servers
        else "they require permission to create network and mount namespaces, and `unshare`, "
        "`mount`, `nft` and `tc`. Install util-linux, nftables and iproute2, or run as root."
    )
    names = ", ".join(map(str, isolated))
    if args.faults != "default":
        raise UsageError(f"--faults {names}: {reason}")
    _say(f"skipped {names}: {reason}")
    return [choice for choice in choices if choice not in isolated]


def _require_options_of_cluster(args: argparse.Namespace, *, is_url: bool) -> None:
    """UsageError for options that have no effect."""
    if not args.cluster:
        excluded = [flag for flag, value in _cluster_options(args) if value]
        if excluded:
            raise UsageError("requires --cluster", place=excluded[0], fix="Add it.")
        return
    if is_url:
        raise UsageError("--cluster: name the graph of the release, and pass the URL as --url")
    for flag, value in (("--engine", args.engine), ("--set", args.sets), ("--exact", args.exact)):
        if value:
            raise UsageError(f"{flag}: does not apply to a release on a cluster")


def _cluster_options(args: argparse.Namespace) -> list[tuple[str, object]]:
    return [
        ("--url", args.url),
        ("--remove-last", args.remove_last),
        ("--namespace", args.namespace),
        ("--release", args.release),
        ("--kubeconfig", args.kubeconfig),
        ("--context", args.context),
    ]


def _drill_cluster(args: argparse.Namespace) -> DrillResult:
    from penstock.drill.cluster import ClusterDrill, choose
    from penstock.graph.load import load_graph

    choices = choose(args.faults)
    args.graph = Path(args.target)
    limits = load_graph(args.graph).graph.drill
    drill = ClusterDrill(
        target=arguments.target_of(args),
        choices=choices,
        options=_options(
            args, args.stall_s or limits.stall_s, limits.permitted_failures, pace_of(args)
        ),
        url=args.url.rstrip("/") if args.url else None,
        model=args.model,
        headers=_headers(),
        may_remove_last=args.remove_last,
    )
    return drill.run(lambda what: _confirm(args, what), _say_of(args))


def pace_of(args: argparse.Namespace) -> Pace:
    """Pods on a cluster may drain and load a model for many minutes."""
    from penstock.drill.run import Pace

    return Pace(recovery_s=CLUSTER_RECOVERY_S)


def _headers() -> dict[str, str]:
    key = os.environ.get("OPENAI_API_KEY")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _drill_endpoint(args: argparse.Namespace) -> DrillResult:
    from penstock.drill.run import DEFAULT_STALL_S, drill_endpoint
    from penstock.drill.targets import RemoteEndpoint, load_faults

    for name, setting in (("--engine", args.engine), ("--set", args.sets)):
        if setting:
            raise UsageError(f"{name}: applies to a graph, not to a URL")
    if args.faults == "default":
        message = "a URL needs a YAML file with the commands that inject the faults"
        fix = f"Write one like {in_repository('k8s/drill.yaml')}, and add --faults FILE."
        raise UsageError(message, place="--faults", fix=fix)
    faults = load_faults(Path(args.faults)).faults
    commands = [part for fault in faults for part in (fault.command, fault.undo) if part]
    _confirm(args, "\n".join(["The drill will run these commands:", *map(shlex.join, commands)]))
    headers = _headers()
    endpoint = RemoteEndpoint(args.target.rstrip("/"), args.model, faults, args.seed, headers)
    return drill_endpoint(
        endpoint, _options(args, args.stall_s or DEFAULT_STALL_S, {}), headers, _say_of(args)
    )


def _confirm(args: argparse.Namespace, what: str) -> None:
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            "--yes: required, because stdin is not a terminal and the drill cannot ask"
        )
    print(what, file=sys.stderr)
    if input("Continue? [y/N] ").strip().lower() not in ("y", "yes"):
        raise UsageError("not confirmed: nothing was run")


def _options(
    args: argparse.Namespace,
    stall_s: float,
    permitted: Mapping[AnyFaultKind, int],
    pace: Pace | None = None,
) -> DrillOptions:
    from penstock.drill.run import DrillOptions, Pace

    return DrillOptions(
        count=None if args.minutes else args.count or DEFAULT_COUNT,
        minutes=args.minutes,
        seed=args.seed,
        streams=args.concurrency,
        stall_s=stall_s,
        exact=args.exact,
        permitted={str(kind): count for kind, count in permitted.items()},
        pace=pace or Pace(),
    )


def _again(args: argparse.Namespace) -> list[str]:
    """The arguments of this drill, with its seed."""
    words = ["drill", args.target, "--seed", str(args.seed)]
    words += ["--concurrency", str(args.concurrency)]
    words += ["--faults", args.faults] if args.faults != "default" else []
    words += ["--minutes", str(args.minutes)] if args.minutes else []
    words += ["--count", str(args.count)] if args.count else []
    words += ["--stall-s", str(args.stall_s)] if args.stall_s else []
    words += ["--exact"] if args.exact else []
    words += ["--model", args.model] if args.model else []
    words += ["--report", str(args.report)] if args.report else []
    words += ["--json"] if args.json else []
    words += ["--quiet"] if args.quiet else []
    words += ["--engine", args.engine] if args.engine else []
    words += ["--cluster"] if args.cluster else []
    for flag, value in _cluster_options(args):
        words += [flag] if value is True else [flag, str(value)] if value else []
    return words + [part for expression in args.sets for part in ("--set", expression)]


def _repeat(args: argparse.Namespace, result: DrillResult) -> str:
    """The command that injects the same faults in the same order."""
    exact = argparse.Namespace(**vars(args) | {"minutes": None, "count": len(result.faults)})
    exact.report, exact.json = None, False
    return f"{invocation()} {shlex.join(_again(exact))}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _say_of(args: argparse.Namespace) -> Callable[[str], None]:
    """Print each line with the time since the start, or nothing with --quiet."""
    started = time.monotonic()

    def say(line: str) -> None:
        _say(f"{time.monotonic() - started:5.0f} s  {line}")

    return no_progress if args.quiet else say
