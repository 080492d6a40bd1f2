"""Router settings of processes: ranges, pairs that exclude or need each other, those of workers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.checks.rules.containers import Process, mappings, truth
from penstock.checks.rules.routing.router import variable_of
from penstock.engines.settings import Location, Setting

ROUTER = "dynamo.router"
# The modules that route requests.
ROUTING = ("dynamo.frontend", ROUTER)
U32 = 2**32 - 1


@dataclass(frozen=True)
class Range:
    """The numbers that a flag accepts, both ends included."""

    flag: str
    # The first release that checks it.
    since: str
    least: float
    most: float = math.inf

    @property
    def text(self) -> str:
        if self.most == math.inf:
            return f"at least {self.least:g}"
        return f"{self.least:g} to {self.most:,.0f}"

    def accepts(self, text: str | None) -> bool | None:
        """None if the text is not a number, which PS143 reports."""
        number = _number(text)
        return None if math.isnan(number) else self.least <= number <= self.most

    def share(self, text: str | None) -> str:
        """The share that a percentage may mean; empty if it is none."""
        number = _number(text)
        return f"{number / 100:g}" if self.most == 1 and 1 < number <= 100 else ""


# validate_rejection_thresholds in common/configuration/groups/router_args.py, FrontendConfig
# and RuntimeConfig of ai-dynamo 1.6.1; the first releases by the history of these files.
RANGES = (
    Range("--active-decode-blocks-threshold", "1.3", 0, 1),
    Range("--active-prefill-tokens-threshold", "1.3", 0),
    Range("--active-prefill-tokens-threshold-frac", "1.3", 0),
    Range("--migration-limit", "1.0", 0, U32),
    Range("--migration-max-seq-len", "1.4", 1, U32),
    Range("--router-min-initial-workers", "1.4", 0),
    Range("--router-session-affinity-ttl-secs", "1.4", 1, 31_536_000),
)


def _number(text: str | None) -> float:
    try:
        return float(str(text))
    except ValueError:
        return math.nan


def setting_of(process: Process, flag: str) -> Setting | None:
    """The text of a router setting, by flag or variable."""
    given = process.text(flag, variable_of(flag))
    return Setting(*given) if given is not None else None


def router_mode_of(process: Process) -> str:
    """The router mode of a frontend or router."""
    is_load_aware = _place_if_on(process, "--load-aware", "DYN_ROUTER_LOAD_AWARE")
    if process.launch.module == ROUTER or is_load_aware:
        return "kv"
    mode = setting_of(process, "--router-mode")
    return str(mode.value) if mode is not None else "round-robin"


def _place_if_on(process: Process, flag: str, variable: str = "") -> Location | None:
    """The place of a switch that is on."""
    variable = variable or variable_of(flag)
    given = process.flag(flag)
    if given is not None:
        return process.location("args", given.spelling) if given.value is True else None
    return process.location("env", variable) if truth(process.launch.env.get(variable)) else None


@dataclass(frozen=True)
class Conflict:
    """Settings that exclude or need each other."""

    location: Location
    message: str
    fix: str
    # The first release that refuses them.
    since: str


def conflicts(process: Process) -> Iterator[Conflict]:
    """The conflicts of a frontend or router."""
    mode = router_mode_of(process)
    serves = _place_if_on(process, "--serve-indexer")
    if serves is not None and mode != "kv":
        message = f"--serve-indexer needs the router mode kv, not {mode}"
        yield Conflict(serves, message, "Set --router-mode kv, or remove --serve-indexer.", "1.1")
    if serves is not None and _place_if_on(process, "--use-remote-indexer"):
        message = "--serve-indexer and --use-remote-indexer exclude each other"
        yield Conflict(serves, message, "Remove one of them.", "1.1")
    yield from _of_load_model(process, mode)
    yield from _of_disaggregation(process)


def _of_load_model(process: Process, mode: str) -> Iterator[Conflict]:
    load_model = setting_of(process, "--router-prefill-load-model")
    config = process.text("--ais-perf-config")
    if load_model is None or load_model.value not in ("ais", "aic"):
        if config is not None:
            message = "--ais-perf-config needs --router-prefill-load-model ais"
            fix = "Set --router-prefill-load-model ais, or remove --ais-perf-config."
            yield Conflict(config[1], message, fix, "1.6")
        return
    processor = setting_of(process, "--dyn-chat-processor")
    tracks = process.flag("--router-track-prefill-tokens")
    # Before 1.6 the model is named aic, and needs the first two.
    needs = (
        ("the router mode kv", "1.1", mode != "kv"),
        ("the chat processor dynamo", "1.1", processor and processor.value != "dynamo"),
        ("--router-track-prefill-tokens", "1.6", tracks and tracks.value is False),
    )
    for needed, since, is_missing in needs:
        if is_missing:
            message = f"the prefill load model {load_model.value} needs {needed}"
            fix = f"Use {needed}, or remove the load model."
            yield Conflict(load_model.location, message, fix, since)


def _of_disaggregation(process: Process) -> Iterator[Conflict]:
    switch = _place_if_on(process, "--router-conditional-disagg")
    config = setting_of(process, "--router-conditional-disagg-config")
    place = switch or (config.location if config else None)
    if process.launch.module == ROUTER and place is not None:
        message = "the standalone router has no conditional disaggregation"
        yield Conflict(place, message, "Set it on the frontend.", "1.5")
    elif config is not None and switch is None:
        message = "--router-conditional-disagg-config needs --router-conditional-disagg"
        yield Conflict(config.location, message, "Add --router-conditional-disagg.", "1.5")


def first_router_setting(process: Process) -> Location | None:
    """The place of the first router setting that a component has itself."""
    for given in process.flags:
        if given.spelling.startswith(("--router-", "--no-router-")) and given.flag is not None:
            return process.location("args", given.spelling)
    # The first entries are those of the whole deployment, which the frontend needs.
    entries = (entry for env in process.container.env.env[1:] for entry in mappings(env.value))
    names = {str(entry.get("name")) for entry in entries}
    for name in process.launch.env:
        if name.startswith("DYN_ROUTER_") and name in names:
            return process.location("env", name)
    return None
