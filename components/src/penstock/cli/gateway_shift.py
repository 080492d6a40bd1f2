"""`penstock gateway shift FILE --to RELEASE`: move the requests to another release, in steps."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli import arguments
from penstock.cli.command_line import add_switch
from penstock.cli.progress import print_line
from penstock.cli.values import integer_between, positive_number
from penstock.errors import ClusterError, InputError, RolloutError, UsageError

if TYPE_CHECKING:
    from penstock.gateway.policy import BackendTarget
    from penstock.helm import ReleaseTarget
    from penstock.shift.frontends import LocalFrontends, ReleaseFrontends
    from penstock.shift.run import Gateway
    from penstock.shift.weights import GatewayFile

# The defaults of `add_pace`, by name, so that an option without effect is recognized.
PACE: dict[str, Any] = {
    "steps": (5, 25, 50, 100),
    "copies": 100,
    "step_s": 60.0,
    "step_requests": 100,
    "slower": 1.2,
    "other_prompts": False,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shift = parser.add_argument_group("shift")
    shift.add_argument("--to", metavar="RELEASE", help="release to which all requests move")
    shift.add_argument(
        "--graph",
        dest="graphs",
        metavar="RELEASE=GRAPH",
        action="append",
        default=[],
        help="RELEASE is the graph that `penstock up GRAPH` runs on this machine; repeat for both "
        "releases (default: releases on a cluster)",
    )
    add_pace(shift)
    shift.add_argument(
        "--kubeconfig", metavar="FILE", type=Path, help="kubeconfig file (default: as for apply)"
    )
    shift.add_argument("--context", metavar="NAME", help="kubeconfig context")
    arguments.add_yes(parser)


def add_pace(parser: argparse._ActionsContainer) -> None:
    """The options of every shift."""
    parser.add_argument(
        "--steps",
        metavar="PERCENT,…",
        type=_steps,
        help="percentages of the requests that the new release gets, one after the other (default: "
        "5,25,50,100)",
    )
    parser.add_argument(
        "--copies",
        metavar="PERCENT",
        type=integer_between(0, 100),
        help="first mirror this percentage of the requests to the new release, which fills its "
        "caches (default: 100; 0: none)",
    )
    parser.add_argument(
        "--step-s",
        metavar="S",
        type=positive_number,
        help="shortest duration of a step in seconds (default: 60)",
    )
    parser.add_argument(
        "--step-requests",
        metavar="N",
        type=integer_between(20, 1_000_000),
        help="minimum number of requests of the new release in a step (default: 100)",
    )
    parser.add_argument(
        "--slower",
        metavar="FACTOR",
        type=positive_number,
        help="maximum ratio of the mean TTFT and ITL to those of the old release (default: 1.2)",
    )
    add_switch(
        parser,
        "--other-prompts",
        "continue if a chat has another number of prompt tokens than before",
    )


def _steps(text: str) -> tuple[int, ...]:
    try:
        steps = tuple(int(part) for part in text.split(","))
    except ValueError:
        steps = ()
    if not steps or list(steps) != sorted(set(steps)) or steps[0] < 1 or steps[-1] != 100:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, but needs rising percentages that end with 100, such as 5,25,50,100"
        )
    return steps


def run(args: argparse.Namespace) -> int:
    from penstock.shift.weights import GatewayFile

    if args.to is None:
        raise UsageError("--to is required: the release to which all requests move")
    file = GatewayFile.open(args.file, args.to)
    running = _local(args, file) if args.graphs else on_cluster(args, file)
    if not arguments.confirm(args, f"shift the requests from {file.old} to {file.new}"):
        return 0
    return shift(args, file, running)


@dataclass(frozen=True, kw_only=True)
class RunningGateway:
    """A gateway, and the releases behind it."""

    open_frontends: Callable[[str], LocalFrontends | ReleaseFrontends]
    """By the name of the release. Raises PenstockError if it does not run."""
    gateway: Gateway
    verify: tuple[str, ...]
    """Arguments of `penstock verify` for the graph of the new release; empty if it is not known."""
    remove: str
    """The command that ends the old release."""


def shift(args: argparse.Namespace, file: GatewayFile, running: RunningGateway) -> int:
    """The shift with the options of `add_pace`."""
    from penstock.local.run_envoy import signals_as_interrupt
    from penstock.shift.frontends import prompt_of, require_same_prompts
    from penstock.shift.run import LIMIT_S, Options, Shift

    pace = {
        name: preset if (given := getattr(args, name)) is None else given
        for name, preset in PACE.items()
    }
    permits_other = pace.pop("other_prompts")
    old, new = running.open_frontends(file.old), running.open_frontends(file.new)
    before, after = prompt_of(old, file.old), prompt_of(new, file.new)
    require_same_prompts(before, after, permits_other=permits_other)
    if file.percent:
        pass  # some probes fail if clients send requests
    elif running.verify:
        _verify(*running.verify)
    options = Options(**pace, limit_s=max(LIMIT_S, 10 * pace["step_s"]))
    with signals_as_interrupt():
        Shift(file, old, new, options, running.gateway, arguments.clock(), print_line).run()
    print_line(
        f"{file.new} serves all requests. {file.old} still runs. To end it: {running.remove}"
    )
    return 0


def _verify(*words: str) -> None:
    """`penstock verify`. NotVerifiedError if a probe fails."""
    from penstock.cli import verify

    parser = argparse.ArgumentParser()
    verify.add_arguments(parser)
    verify.run(parser.parse_args(words))


def _local(args: argparse.Namespace, file: GatewayFile) -> RunningGateway:
    from penstock.shift.frontends import LocalFrontends

    graphs = {}
    for text in args.graphs:
        release, separator, graph = text.partition("=")
        if not separator or release not in (file.old, file.new):
            raise UsageError(f"--graph {text}: write {file.old}=GRAPH or {file.new}=GRAPH")
        graphs[release] = Path(graph)
    for release in (file.old, file.new):
        if release not in graphs:
            raise UsageError(f"add --graph {release}=GRAPH: its frontends are on this machine, too")
    return RunningGateway(
        open_frontends=lambda release: LocalFrontends(graphs[release]),
        gateway=_guarded(lambda: None, lambda: None),  # `gateway up` applies the saved file
        verify=(str(graphs[file.new]),),
        remove=f"penstock down {graphs[file.old]}",
    )


def require_namespace(file: GatewayFile, target: ReleaseTarget) -> None:
    """InputError unless the file has the new release in the namespace in which it is installed."""
    from penstock.gateway.policy import build_policy

    backends = build_policy(file.gateway).backends
    namespace = next(b.namespace for b in backends if b.release == file.new)
    if namespace != target.namespace:
        raise InputError(
            f"{file.new} is in the namespace {namespace}, but apply installs it in "
            f"{target.namespace}",
            file=str(file.path),
            place="backends",
            fix=f"Set --namespace {namespace}, or `namespace: {target.namespace}` of the backend.",
        )


def on_cluster(
    args: argparse.Namespace, file: GatewayFile, verify: Sequence[str] = ()
) -> RunningGateway:
    """The gateway of Envoy Gateway that the file describes. ClusterError if it is not installed.

    ``verify``: as that of RunningGateway.
    """
    from penstock.cluster.api import Api
    from penstock.gateway.policy import build_policy
    from penstock.gateway.routes import MANAGER, route
    from penstock.helm import ReleaseTarget
    from penstock.shift.frontends import ReleaseFrontends

    policy = build_policy(file.gateway)

    def target(name: str, namespace: str) -> ReleaseTarget:
        return ReleaseTarget(
            name=name, namespace=namespace, kubeconfig=args.kubeconfig, context=args.context
        )

    def backend(release: str) -> BackendTarget:
        return next(b for b in policy.backends if b.release == release)

    api = Api.connect(target(policy.name, policy.namespace))
    place = f"HTTPRoute {policy.name} (namespace {policy.namespace})"
    installed = api.get(route(policy))
    if installed is None:
        raise ClusterError(
            "the gateway is not installed",
            place=place,
            fix=f"Run `penstock gateway render {file.path} | kubectl apply -f -`.",
        )
    if errors := api.dry_run(route(policy), installed).errors:
        raise ClusterError(f"would be rejected: {'; '.join(errors)}", place=place)

    def confirm() -> None:
        manifest = route(build_policy(file.gateway))
        live = api.get(manifest) or {"spec": {"rules": [{}]}}
        expected, found = (_weights(each) for each in (manifest, live))
        if expected != found:
            raise RolloutError(
                f"has other weights than {file.path}: another client has changed them",
                place=place,
                fix="Stop that client, such as Argo CD, and start the shift again.",
            )

    old = backend(file.old)
    where = [f"--namespace={old.namespace}", *arguments.words_of(args, ("kubeconfig", "context"))]
    return RunningGateway(
        open_frontends=lambda name: ReleaseFrontends(target(name, backend(name).namespace)),
        gateway=_guarded(lambda: api.apply(route(build_policy(file.gateway)), MANAGER), confirm),
        verify=tuple(verify),
        remove=shlex.join(["penstock", "uninstall", f"{old.release}.yaml", *where]),
    )


def _guarded(publish: Callable[[], None], confirm: Callable[[], None]) -> Gateway:
    from penstock.cluster.rollout import defer_signals
    from penstock.shift.run import Gateway

    return Gateway(publish=publish, confirm=confirm, guard=lambda: defer_signals(print_line))


def _weights(route: Mapping[str, Any]) -> dict[str, int]:
    references = route["spec"]["rules"][0].get("backendRefs", ())
    return {each["name"]: each.get("weight", 1) for each in references}
