"""Rules about router flags: ranges, pairs that exclude or need each other, flags of workers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.containers import Process, mappings, processes, truth
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import WORKERS

FRONTEND, ROUTER = "dynamo.frontend", "dynamo.router"
U32 = 2**32 - 1
SINCE_1_0 = Versions(dynamo=">=1.0")
# Workers of older releases read no settings of the router.
ADVERTISED = Versions(dynamo=">=1.5")
VALIDATED = "FrontendConfig.validate in dynamo/frontend/frontend_args.py"


@dataclass(frozen=True, kw_only=True)
class Range:
    """The values that a flag accepts, both ends included."""

    flag: str
    variable: str
    least: float
    most: float = math.inf
    versions: Versions = SINCE_1_0


# validate_rejection_thresholds in common/configuration/groups/router_args.py, FrontendConfig
# and RuntimeConfig of ai-dynamo 1.6.1; the first releases by the history of these files.
RANGES = (
    Range(
        flag="--active-decode-blocks-threshold",
        variable="DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD",
        least=0,
        most=1,
        versions=Versions(dynamo=">=1.3"),
    ),
    Range(
        flag="--active-prefill-tokens-threshold",
        variable="DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD",
        least=0,
        versions=Versions(dynamo=">=1.3"),
    ),
    Range(
        flag="--active-prefill-tokens-threshold-frac",
        variable="DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC",
        least=0,
        versions=Versions(dynamo=">=1.3"),
    ),
    Range(flag="--migration-limit", variable="DYN_MIGRATION_LIMIT", least=0, most=U32),
    Range(
        flag="--migration-max-seq-len",
        variable="DYN_MIGRATION_MAX_SEQ_LEN",
        least=1,
        most=U32,
        versions=Versions(dynamo=">=1.4"),
    ),
    Range(
        flag="--router-min-initial-workers",
        variable="DYN_ROUTER_MIN_INITIAL_WORKERS",
        least=0,
        versions=Versions(dynamo=">=1.4"),
    ),
    Range(
        flag="--router-session-affinity-ttl-secs",
        variable="DYN_ROUTER_SESSION_AFFINITY_TTL_SECS",
        least=1,
        most=31_536_000,
        versions=Versions(dynamo=">=1.4"),
    ),
)


def out_of_range(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for process in processes(deployment):
        for one in RANGES if process.launch.module == FRONTEND else ():
            found = process.text(one.flag, one.variable)
            number = _number(found[0]) if found else None
            if found is None or number is None or one.least <= number <= one.most:
                continue
            span = f"at least {one.least:g}"
            if one.most < math.inf:
                span = f"{one.least:g} to {one.most:,.0f}"
            near = f"{number / 100:g}" if one.most == 1 and 1 < number <= 100 else ""
            place, name = found[1], str(found[1].path[0])
            is_env = place.what == "env"
            yield RuleResult(
                location=place,
                message=f"{name} is {found[0]}; the range is {span}",
                fix=Fix(
                    text=f"Did you mean {near}?" if near else f"Use {span}.",
                    env={name: near} if near and is_env else {},
                    args=(name, near) if near and not is_env else (),
                ),
                versions=one.versions,
            )


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _is_on(process: Process, flag: str, variable: str) -> Location | None:
    """The place of a switch that is on."""
    given = process.flag(flag)
    if given is not None:
        return process.location("args", given.spelling) if given.value is True else None
    return process.location("env", variable) if truth(process.launch.env.get(variable)) else None


@dataclass(frozen=True, kw_only=True)
class _Conflict:
    location: Location
    message: str
    fix: str
    versions: Versions


def conflicting_router_settings(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for process in processes(deployment):
        if process.launch.module in (FRONTEND, ROUTER) and not process.launch.unexpanded:
            for conflict in (*_indexer(process), *_load_model(process), *_conditional(process)):
                yield RuleResult(
                    location=conflict.location,
                    message=conflict.message,
                    fix=Fix(text=conflict.fix),
                    versions=conflict.versions,
                )


def _mode(process: Process) -> str:
    if process.launch.module == ROUTER or _is_on(process, "--load-aware", "DYN_ROUTER_LOAD_AWARE"):
        return "kv"
    found = process.text("--router-mode", "DYN_ROUTER_MODE")
    return found[0] if found else "round-robin"


def _indexer(process: Process) -> Iterator[_Conflict]:
    serves = _is_on(process, "--serve-indexer", "DYN_SERVE_INDEXER")
    if serves is None:
        return
    since = Versions(dynamo=">=1.1")
    if _mode(process) != "kv":
        yield _Conflict(
            location=serves,
            message=f"--serve-indexer needs the router mode kv, not {_mode(process)}",
            fix="Set --router-mode kv, or remove --serve-indexer.",
            versions=since,
        )
    if _is_on(process, "--use-remote-indexer", "DYN_USE_REMOTE_INDEXER"):
        yield _Conflict(
            location=serves,
            message="--serve-indexer and --use-remote-indexer exclude each other",
            fix="Remove one of them.",
            versions=since,
        )


def _load_model(process: Process) -> Iterator[_Conflict]:
    since = Versions(dynamo=">=1.6")
    found = process.text("--router-prefill-load-model", "DYN_ROUTER_PREFILL_LOAD_MODEL")
    uses_ais = found is not None and found[0] in ("ais", "aic")
    config = process.text("--ais-perf-config")
    if config is not None and not uses_ais:
        yield _Conflict(
            location=config[1],
            message="--ais-perf-config needs --router-prefill-load-model ais",
            fix="Set --router-prefill-load-model ais, or remove --ais-perf-config.",
            versions=since,
        )
    if found is None or not uses_ais:
        return
    processor = process.text("--dyn-chat-processor", "DYN_CHAT_PROCESSOR")
    tracks = process.flag("--router-track-prefill-tokens")
    problems = {
        "the router mode kv": _mode(process) != "kv",
        "the chat processor dynamo": processor is not None and processor[0] != "dynamo",
        "--router-track-prefill-tokens": tracks is not None and tracks.value is False,
    }
    # Before 1.6 the model is named aic, and needs the first two.
    for needed in (name for name, is_missing in problems.items() if is_missing):
        yield _Conflict(
            location=found[1],
            message=f"the prefill load model {found[0]} needs {needed}",
            fix=f"Use {needed}, or remove the load model.",
            versions=since if "track" in needed else Versions(dynamo=">=1.1"),
        )


def _conditional(process: Process) -> Iterator[_Conflict]:
    since = Versions(dynamo=">=1.5")
    variable = "DYN_ROUTER_CONDITIONAL_DISAGG"
    on = _is_on(process, "--router-conditional-disagg", variable)
    config = process.text("--router-conditional-disagg-config", f"{variable}_CONFIG")
    place = on or (config[1] if config else None)
    if process.launch.module == ROUTER and place is not None:
        yield _Conflict(
            location=place,
            message="the standalone router has no conditional disaggregation",
            fix="Set it on the frontend.",
            versions=since,
        )
    elif config is not None and on is None:
        yield _Conflict(
            location=config[1],
            message="--router-conditional-disagg-config needs --router-conditional-disagg",
            fix="Add --router-conditional-disagg.",
            versions=since,
        )


def router_flags_of_workers(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for process in processes(deployment):
        if process.component.role not in WORKERS or process.launch.module == FRONTEND:
            continue
        mode = process.text("--router-mode", "DYN_ROUTER_MODE")
        if mode is not None:
            if deployment.frontends and mode[0] != deployment.router_mode and "$" not in mode[0]:
                yield RuleResult(
                    location=mode[1],
                    message=f"{process.component.name} advertises router mode {mode[0]}, but the "
                    f"frontend has {deployment.router_mode}",
                    fix=Fix(text="Set the router mode on the frontend only."),
                    versions=ADVERTISED,
                )
            continue
        found = next(iter(_router_settings(process)), None)
        if found is not None:
            yield RuleResult(
                location=found,
                message=f"{found.path[0]} has no effect on {process.component.name}, which sets no "
                "router mode",
                fix=Fix(text="Set it on the frontend."),
            )


def _router_settings(process: Process) -> Iterator[Location]:
    for given in process.flags:
        if given.spelling.startswith(("--router-", "--no-router-")) and given.flag is not None:
            yield process.location("args", given.spelling)
    # The first entries are those of the whole deployment, which the frontend needs.
    own = {
        str(entry.get("name"))
        for entries in process.container.env.env[1:]
        for entry in mappings(entries.value)
    }
    for name in process.launch.env:
        if name.startswith("DYN_ROUTER_") and name in own:
            yield process.location("env", name)
