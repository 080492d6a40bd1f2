"""`penstock drill GRAPH|URL [--cluster]`: inject faults under load, and report failed requests."""

from __future__ import annotations

import argparse
import os
import random
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from penstock.cli import arguments, outputs
from penstock.cli.command_line import add_switch
from penstock.cli.outputs import add_report, require_report
from penstock.cli.progress import no_progress
from penstock.cli.replaying import add_old_flag
from penstock.cli.values import add_count, integer_between
from penstock.errors import DrillError, UsageError
from penstock.files import in_repository
from penstock.graph.choices import FaultKind
from penstock.text.commands import invocation

if TYPE_CHECKING:
    from penstock.drill.faults import Choice
    from penstock.drill.run import DrillOptions, DrillResult, Pace
    from penstock.graph.model import Drill

DEFAULT_COUNT = 20
STARTED_LATER = ("planner", "event-broker", "etcd", "nats", "endpoint")
DEFAULT_STREAMS = 32
CLUSTER_RECOVERY_S = 1800.0
TRAFFIC = ("chat", "guided", "tools", "long")  # `RequestKind`, which takes long to import
POSITIVE = integer_between(1, 1_000_000)
OF_CLUSTER = ("url", "remove_last", *arguments.CLUSTER)
OPTIONS = (
    *("seed", "concurrency", "traffic", "faults", "minutes", "count", "stall_s", "exact", "model"),
    *("report", "json", "quiet", "engine", "cluster", *OF_CLUSTER, "sets"),
)


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
        type=POSITIVE,
        metavar="S",
        help="report a stream as stalled if nothing arrives for S seconds (default: `drill.stall_s`"
        " of the graph, or 5)",
    )
    parser.add_argument(
        "--traffic",
        type=_kinds,
        metavar="KIND,…",
        help=f"kinds of requests, sent in turn: {', '.join(TRAFFIC)} (default: chat). guided and "
        "tools have a grammar: Dynamo does not migrate them from a killed worker",
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


def _kinds(text: str) -> str:
    """``KIND,…``, checked."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in TRAFFIC:
            known = f"choose from {', '.join(TRAFFIC)}"
            raise argparse.ArgumentTypeError(f"{name!r} is not a kind of request; {known}")
    return ",".join(names)


def _add_concurrency(parser: argparse.ArgumentParser) -> None:
    add_count(
        parser,
        "--concurrency",
        f"number of requests at the same time (default: {DEFAULT_STREAMS})",
        default=DEFAULT_STREAMS,
    )
    add_old_flag(parser, "--streams", "--concurrency", POSITIVE)


def _add_length(parser: argparse.ArgumentParser) -> None:
    length = parser.add_mutually_exclusive_group()
    add_count(length, "--count", f"number of faults (default: {DEFAULT_COUNT})")
    length.add_argument("--minutes", type=POSITIVE, metavar="M", help="inject faults for M minutes")
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
    facts = {"seed": str(args.seed), "repeat": repeat}
    outputs.write_report(args, report, [args.target, args.faults], facts=facts)
    if result.was_interrupted:
        raise KeyboardInterrupt
    if not result.evaluation.passes:
        raise DrillError("the drill failed: see the failures above")
    return 0


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
    options = _options(args, limits)
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

    choices = choose(args.faults or ",".join(KINDS))
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
    if args.faults:
        raise UsageError(f"--faults {names}: {reason}")
    _say(f"skipped {names}: {reason}")
    return [choice for choice in choices if choice not in isolated]


def _require_options_of_cluster(args: argparse.Namespace, *, is_url: bool) -> None:
    """UsageError for options that have no effect."""
    if not args.cluster:
        arguments.require_with(args, "--cluster", OF_CLUSTER)
        return
    if is_url:
        raise UsageError("--cluster: name the graph of the release, and pass the URL as --url")
    if excluded := arguments.given(args, ["engine", "sets", "exact"]):
        raise UsageError(f"{next(iter(excluded))}: does not apply to a release on a cluster")


def _drill_cluster(args: argparse.Namespace) -> DrillResult:
    from penstock.drill.cluster import ClusterDrill, choose
    from penstock.graph.load import load_graph

    choices = choose(args.faults or "default")
    args.graph = Path(args.target)
    limits = load_graph(args.graph).graph.drill
    drill = ClusterDrill(
        target=arguments.target_of(args),
        choices=choices,
        options=_options(args, limits, pace_of(args)),
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
    from penstock.drill.run import drill_endpoint
    from penstock.drill.targets import RemoteEndpoint, load_faults
    from penstock.graph.model import Drill

    if excluded := arguments.given(args, ["engine", "sets"]):
        raise UsageError(f"{next(iter(excluded))}: applies to a graph, not to a URL")
    if not args.faults:
        message = "a URL needs a YAML file with the commands that inject the faults"
        fix = f"Write one like {in_repository('k8s/drill.yaml')}, and add --faults FILE."
        raise UsageError(message, place="--faults", fix=fix)
    faults = load_faults(Path(args.faults)).faults
    commands = [part for fault in faults for part in (fault.command, fault.undo) if part]
    _confirm(args, "\n".join(["The drill will run these commands:", *map(shlex.join, commands)]))
    headers = _headers()
    endpoint = RemoteEndpoint(args.target.rstrip("/"), args.model, faults, args.seed, headers)
    return drill_endpoint(endpoint, _options(args, Drill()), headers, _say_of(args))


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


def _options(args: argparse.Namespace, limits: Drill, pace: Pace | None = None) -> DrillOptions:
    """``limits``: the graph's, which an option may override."""
    from penstock.drill.run import DrillOptions, Pace
    from penstock.drill.traffic import RequestKind

    return DrillOptions(
        count=None if args.minutes else args.count or DEFAULT_COUNT,
        minutes=args.minutes,
        seed=args.seed,
        streams=args.concurrency,
        stall_s=args.stall_s or limits.stall_s,
        exact=args.exact,
        permitted={str(kind): count for kind, count in limits.permitted_failures.items()},
        recovery_s={str(kind): seconds for kind, seconds in limits.recovery_s.items()},
        kinds=tuple(map(RequestKind, (args.traffic or RequestKind.CHAT).split(","))),
        pace=pace or Pace(),
    )


def _again(args: argparse.Namespace) -> list[str]:
    """The arguments of this drill, with its seed."""
    return ["drill", args.target, *arguments.words_of(args, OPTIONS)]


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
