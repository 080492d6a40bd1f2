"""Router settings of single processes, by flag or variable."""

from __future__ import annotations

from penstock.checks.rules.containers import Process, mappings, truth
from penstock.checks.rules.routing.router import variable_of
from penstock.engines.settings import Location, Setting


def number_of(text: str | None) -> float | None:
    """None for a text that is not a number, which PS143 reports."""
    try:
        number = float(str(text))
    except ValueError:
        return None
    return number if number == number else None  # not NaN


def setting_of(process: Process, flag: str) -> Setting | None:
    """The text of a router setting, by flag or variable."""
    setting = process.text(flag, variable_of(flag))
    return Setting(*setting) if setting is not None else None


def router_mode_of(process: Process) -> str:
    """The router mode of a frontend or router."""
    is_load_aware = place_if_on(process, "--load-aware", "DYN_ROUTER_LOAD_AWARE")
    if process.launch.module == "dynamo.router" or is_load_aware:
        return "kv"
    mode = setting_of(process, "--router-mode")
    return str(mode.value) if mode is not None else "round-robin"


def place_if_on(process: Process, flag: str, variable: str = "") -> Location | None:
    """The place of a switch that is on."""
    variable = variable or variable_of(flag)
    argument = process.flag(flag)
    if argument is not None:
        return process.location("args", argument.spelling) if argument.value is True else None
    return process.location("env", variable) if truth(process.launch.env.get(variable)) else None


def first_router_setting(process: Process) -> Location | None:
    """The place of the first router setting that a component has itself."""
    for argument in process.flags:
        if (
            argument.spelling.startswith(("--router-", "--no-router-"))
            and argument.flag is not None
        ):
            return process.location("args", argument.spelling)
    # The first entries are those of the whole deployment, which the frontend needs.
    entries = (entry for env in process.container.env.env[1:] for entry in mappings(env.value))
    names = {str(entry.get("name")) for entry in entries}
    for name in process.launch.env:
        if name.startswith("DYN_ROUTER_") and name in names:
            return process.location("env", name)
    return None
