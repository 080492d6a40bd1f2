"""Flags that a module does not have in the version of the image, and what replaces them.

The tables of the newest release come from the parsers; `engines/flag_history.py` knows the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from penstock.checks.finding import Fix
from penstock.checks.rules.command_line.given_flags import (
    FileFlag,
    absent_in,
    all_launches,
    file_flags,
    may_be_any_build,
)
from penstock.checks.version_range import EVERY_RELEASE, PENSTOCK, Absence, Versions, outside
from penstock.engines.equivalent_flags import ONLY_DOCUMENTED, SAME, SIMILAR, owner, same_meaning
from penstock.engines.flag_history import flag_names, has_history, presence, releases_of
from penstock.engines.flags import REMOVED, FlagTable, GivenFlag, Removed
from penstock.engines.releases import DEPLOYED, OLDEST, RELEASES, following
from penstock.engines.settings import Location
from penstock.manifests.deployment import Launch, Role
from penstock.manifests.flags import flag_value
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import dynamo_version
from penstock.text.names import nearest_name

# Module, flag and value → the flag of earlier releases with the same effect.
BEFORE = {("dynamo.vllm", "--disaggregation-mode", "prefill"): "--is-prefill-worker"}
# Modules whose flags became fields of one configuration: the planner in 1.0, the other in 1.7.
CONFIGURED = ("dynamo.planner", "dynamo.global_planner")
# The first release whose frontend parses its flags.
PARSES_ITSELF = (1, 0)
SIMILARITY = 0.8  # minimum similarity of a suggestion; below it are unrelated flags


@dataclass(frozen=True, kw_only=True)
class UsedFlag:
    """A flag of a command line, or a key of an engine file, which is converted to one."""

    location: Location
    module: str
    flag: str
    # The flag itself, or the key.
    name: str
    # None for a key.
    given: GivenFlag | None = None
    absences: tuple[Absence, ...]
    # What to write instead, unless the flag was removed; None if it resembles none.
    similar: Callable[[], Fix | None]


@dataclass(frozen=True, kw_only=True)
class AbsentFlag:
    """A flag that its module does not have in some releases."""

    used: UsedFlag
    # As the end of a message; empty if no release has the flag.
    since: str
    versions: Versions
    fix: Fix
    # Whether a build of one's own may have added it: no release has it, and it resembles none.
    may_be_added: bool


def used_arguments(deployment: ServingDeployment) -> Iterator[UsedFlag]:
    """The flags of command lines that only the module's parser reads."""
    for component, launch, table in all_launches(deployment):
        if _has_engine_chat_processor(launch):
            continue
        module = launch.module or ""
        for argument in table.read(launch.arguments):  # once a launch: it reads all arguments
            is_known = argument.flag is not None
            yield UsedFlag(
                location=Location(component, "args", (argument.spelling,)),
                module=module,
                flag=argument.spelling,
                name=argument.spelling,
                given=argument,
                absences=tuple(_of_argument(module, argument)),
                similar=partial(_older, module, argument)
                if is_known
                else partial(_similar, table, argument),
            )


def used_keys(deployment: ServingDeployment) -> Iterator[UsedFlag]:
    """The keys of engine files."""
    for line in file_flags(deployment):
        argument = line.given
        is_known = (line.table.find(line.flag) if argument is None else argument.flag) is not None
        yield UsedFlag(
            location=line.location,
            module=line.module,
            flag=line.flag,
            name=line.key,
            absences=tuple(_absences(line.module, line.flag, is_known=is_known)),
            similar=partial(_newer, line.key) if is_known else partial(_rename, line),
        )


def absent_flags(deployment: ServingDeployment, uses: Iterable[UsedFlag]) -> Iterator[AbsentFlag]:
    """Those of the flags that some releases lack and that no release removed."""
    for used in uses:
        for absence in used.absences:
            if absence.was_removed or used.flag in REMOVED:
                continue
            component, similar = used.location.component, used.similar()
            is_in_none = absence.versions is EVERY_RELEASE and similar is None
            yield AbsentFlag(
                used=used,
                since=absence.since,
                versions=absent_in(deployment, component, absence.versions),
                fix=similar or Fix(text=f"Remove {used.name}."),
                may_be_added=is_in_none and may_be_any_build(deployment, component),
            )


def removed_flags(deployment: ServingDeployment) -> Iterator[tuple[UsedFlag, Absence, Fix]]:
    """The flags that a release removed, and what replaces them."""
    for used in (*used_arguments(deployment), *used_keys(deployment)):
        for absence in used.absences:
            if absence.was_removed or (used.flag in REMOVED and not absence.since):
                yield used, absence, _replacement(deployment, used)


def _replacement(deployment: ServingDeployment, used: UsedFlag) -> Fix:
    if used.given is not None and used.flag == FLAG:
        return instead_of_flag(deployment, used.location.component, used.given)
    if used.given is not None and used.module in CONFIGURED:
        return Fix(text=f"Replace {used.name} with a field of the JSON or YAML of --config.")
    return Fix(text=REMOVED.get(used.flag, Removed()).fix(used.name))


def parses_itself(deployment: ServingDeployment, used: UsedFlag) -> bool:
    """Whether the module is a frontend with an error message of its own (main.py)."""
    version = dynamo_version(deployment.pods[used.location.component])
    is_old = (version or PARSES_ITSELF) < PARSES_ITSELF
    return used.module == "dynamo.frontend" and not is_old


def _absences(module: str, flag: str, *, is_known: bool) -> Iterator[Absence]:
    """``is_known``: whether the newest release has the flag, according to its parser."""
    if not has_history(module):  # penstock's own
        if not is_known:
            yield Absence(versions=PENSTOCK)
        return
    seen = presence(module, flag)
    if seen is not None:
        yield from outside(seen, is_parsed=is_known)
    elif not is_known:
        yield Absence(versions=EVERY_RELEASE)


def _of_argument(module: str, argument: GivenFlag) -> Iterator[Absence]:
    is_name = argument.spelling.startswith("--") and not re.search(r"[\s$]", argument.spelling)
    if not is_name or argument.spelling.startswith("--trtllm."):
        return
    flag = argument.spelling.partition(".")[0]
    is_known = argument.flag is not None or _is_in_sources(module, flag)
    ended = _until_the_module_ends(module)
    for absence in _absences(module, flag, is_known=is_known):
        if ended is None:
            yield absence
        elif not absence.was_removed:
            yield replace(absence, versions=ended if not absence.since else absence.versions)


def _until_the_module_ends(module: str) -> Versions | None:
    """The releases up to the last with the module, if it was removed: PS769 reports the others."""
    runs = releases_of(module)
    end = following(runs.last) if runs is not None else None
    if end is None or list(RELEASES).index(end) > list(RELEASES).index(DEPLOYED):
        return None
    return Versions(dynamo=f">={OLDEST},<{end}")


def _is_in_sources(module: str, flag: str) -> bool:
    """Whether the newest release has the flag, of a module without a table from its parser."""
    span = presence(module, flag) if flag_names(module) else None
    known = list(RELEASES)
    return span is not None and known.index(span.last) >= known.index(DEPLOYED)


def _has_engine_chat_processor(launch: Launch) -> bool:
    """Whether it is a frontend with an engine's chat processor, which accepts its flags."""
    if launch.module != "dynamo.frontend":
        return False
    processor = flag_value(launch.arguments, "--dyn-chat-processor")
    return (processor or launch.env.get("DYN_CHAT_PROCESSOR", "dynamo")) != "dynamo"


def _similar(table: FlagTable, argument: GivenFlag) -> Fix | None:
    """What to write instead; None if the flag resembles none of the module."""
    flag = argument.spelling
    if instead := ONLY_DOCUMENTED.get(flag):
        return Fix(text=f"Remove {flag} and set {instead}.")
    if other := same_meaning(flag, table.by_spelling, SIMILAR):
        text = f"Use {other} and adapt the value: the flags are similar, not the same."
        return Fix(text=text, replaces=flag)
    near = _near(flag, table)
    if not near:
        return _of_another(flag, flag)
    takes = table.by_spelling[near].takes
    texts = (argument.text,) if takes != "none" and argument.text is not None else ()
    args = (near, *texts) if texts or takes in ("none", "maybe") else ()
    return Fix(text=f"Replace {flag} with {near}.", args=args, replaces=flag)


def _rename(line: FileFlag) -> Fix | None:
    """As `_similar`, for a key of an engine file."""
    if other := same_meaning(line.flag, line.table.by_spelling, SIMILAR):
        text = f"Use {other[2:]} and adapt the value: the keys are similar, not the same."
        return Fix(text=text, replaces=line.key)
    key = _near(line.flag, line.table)[2:]
    if not key:
        return _of_another(line.flag, line.key)
    text = f"Rename {line.key} to {key}."
    return Fix(text=text, config={key: line.value}, replaces=line.key)


def _near(flag: str, table: FlagTable) -> str:
    """The flag of the module that ``flag`` resembles; empty if another engine has ``flag``."""
    if near := same_meaning(flag, table.by_spelling, SAME):
        return near
    names = [name for name in table.by_spelling if name.startswith("--")]
    return "" if owner(flag) else nearest_name(flag, names, SIMILARITY)


def _of_another(flag: str, name: str) -> Fix | None:
    """The fix for a flag of another engine; None if no engine has the flag."""
    has = owner(flag)
    return Fix(text=f"Remove {name}, which is {has}.") if has else None


def _older(module: str, argument: GivenFlag) -> Fix:
    """What to do about a flag that the release does not have yet."""
    before = BEFORE.get((module, argument.spelling, str(argument.text)))
    if before is None:
        return _newer(argument.spelling)
    text = f"Use {before} instead, or an image of a release that has {argument.spelling}."
    return Fix(text=text, replaces=argument.spelling, args=(before,))


def _newer(name: str) -> Fix:
    return Fix(text=f"Remove {name}, or use an image of a release that has it.")


FLAG, VARIABLE = "--connector", "DYN_CONNECTOR"
NONE = ("none", "null")
KVBM = "kvbm.vllm_integration.connector"
# `_connector_to_kv_transfer_json` in dynamo/vllm/args.py of 1.6.1.
CONNECTORS: Mapping[str, Mapping[str, str]] = {
    "lmcache": {"kv_connector": "LMCacheConnectorV1"},
    "flexkv": {"kv_connector": "FlexKVConnectorV1"},
    "nixl": {"kv_connector": "NixlConnector"},
    "kvbm": {"kv_connector": "DynamoConnector", "kv_connector_module_path": KVBM},
}
NIXL_ROLES = {Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer"}


def names_connector(flag: GivenFlag | None) -> bool:
    """Whether the flag asks for a connector."""
    return flag is not None and bool(_named(_words(flag)))


def instead_of_flag(deployment: ServingDeployment, component: str, flag: GivenFlag) -> Fix:
    """What to write instead of the flag."""
    return _fix(deployment, component, FLAG, _named(_words(flag)))


def instead_of_variable(deployment: ServingDeployment, component: str, text: str) -> Fix:
    """What to write instead of the variable."""
    fix = _fix(deployment, component, VARIABLE, _named(text.split()))
    return replace(fix, env={VARIABLE: None}, replaces=None)


def _fix(deployment: ServingDeployment, component: str, name: str, names: Sequence[str]) -> Fix:
    worker = next((w for w in deployment.workers if w.name == component), None)
    if not names:
        return Fix(text=f"Remove {name}; without it there is no connector.")
    if worker is not None and worker.get("kv-transfer-config") is not None:
        return Fix(text=f"Remove {name}; --kv-transfer-config names the connector.")
    if worker is None or any(word not in CONNECTORS for word in names):
        return Fix(text=f"Use --kv-transfer-config instead of {name}.")
    config = {"kv-transfer-config": _transfer_config(names, worker.role)}
    text = f"Replace {name} with --kv-transfer-config."
    return Fix(text=text, config=config, replaces=name)


def _words(flag: GivenFlag) -> tuple[str, ...]:
    return ((flag.text or ""), *flag.more)


def _named(words: Sequence[str]) -> list[str]:
    return [word.lower() for word in words if word and word.lower() not in NONE]


def _transfer_config(names: Sequence[str], role: Role) -> dict[str, Any]:
    """Several connectors become one PdConnector."""
    roles = {"nixl": NIXL_ROLES.get(role, "kv_both")}
    parts = [{**CONNECTORS[name], "kv_role": roles.get(name, "kv_both")} for name in names]
    if len(parts) == 1:
        return parts[0]
    return {
        "kv_connector": "PdConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": parts},
        "kv_connector_module_path": KVBM,
    }
