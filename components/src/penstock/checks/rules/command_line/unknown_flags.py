"""Rules about flags that a module does not have in the version of the image.

The tables of the newest release come from the parsers; `engines/flag_history.py` knows the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from penstock.checks.absence import EVERY_PUBLISHED, EVERY_RELEASE, Absence, outside
from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.command_line.connector_flag import FLAG as CONNECTOR
from penstock.checks.rules.command_line.connector_flag import REJECTED, instead_of_flag
from penstock.checks.rules.command_line.given_flags import (
    FileFlag,
    absent_in,
    all_launches,
    file_flags,
    level_for_image,
    may_be_any_build,
)
from penstock.checks.version_range import PENSTOCK, Versions
from penstock.engines.entry_points import flag_names, releases_of
from penstock.engines.equivalent_flags import ONLY_DOCUMENTED, SAME, SIMILAR, owner, same_meaning
from penstock.engines.flag_history import has_history, presence
from penstock.engines.flags import REMOVED, FlagTable, GivenFlag, Removed
from penstock.engines.releases import DEPLOYED, OLDEST, RELEASES, following
from penstock.engines.settings import Location
from penstock.manifests.deployment import Launch
from penstock.manifests.flags import flag_value
from penstock.nearest import nearest_name
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import dynamo_version

# Module, flag and value → the flag of earlier releases with the same effect.
BEFORE = {("dynamo.vllm", "--disaggregation-mode", "prefill"): "--is-prefill-worker"}
# Modules whose flags became fields of one configuration: the planner in 1.0, the other in 1.7.
CONFIGURED = ("dynamo.planner", "dynamo.global_planner")
# The frontend has an error message of its own since (main.py).
PARSES_ITSELF = (1, 0)
# vLLM, SGLang and argparse say `unrecognized arguments`, TensorRT-LLM's worker something similar.
REJECTED_FLAG = (
    "The process exits with an error about unrecognized arguments and restarts in a crash loop."
)
SIMILARITY = 0.8  # minimum similarity of a suggestion; below it are unrelated flags
SOURCE = (
    "parsers of ai-dynamo 1.6.1, vLLM 0.31.0 and SGLang 0.5.21, dumped to tables; sources of the "
    "wheels of all releases since Dynamo 0.4 (engines/data/flag_history.json and "
    "entry_points.json, which has the planner, the routers and the profiler)"
)


def absences(module: str, spelling: str, *, is_known: bool) -> Iterator[Absence]:
    """``is_known``: whether the newest release has the flag, according to its parser."""
    if not has_history(module):  # penstock's own
        if not is_known:
            yield Absence(versions=PENSTOCK)
        return
    seen = presence(module, spelling)
    if seen is None:
        if not is_known:
            yield Absence(versions=EVERY_RELEASE)
        return
    yield from outside(seen, is_parsed=is_known)


def _is_checked(one: GivenFlag) -> bool:
    is_name = one.spelling.startswith("--") and not re.search(r"[\s$]", one.spelling)
    return is_name and not one.spelling.startswith("--trtllm.")


def _has_engine_chat_processor(launch: Launch) -> bool:
    """Whether it is a frontend with an engine's chat processor, which accepts its flags."""
    if launch.module != "dynamo.frontend":
        return False
    processor = flag_value(launch.arguments, "--dyn-chat-processor")
    return (processor or launch.env.get("DYN_CHAT_PROCESSOR", "dynamo")) != "dynamo"


def unknown_flag(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, launch, table, one in _all_arguments(deployment):
        for absence in _absences(launch, one):
            if not absence.was_removed and one.spelling not in REMOVED:
                similar = _similar(table, one) if one.flag is None else _older(launch, one)
                result = RuleResult(
                    location=Location(name, "args", (one.spelling,)),
                    message=f"{launch.module} has no flag {one.spelling}{absence.since}",
                    fix=similar or Fix(text=f"Remove {one.spelling}."),
                    why=_rejection(deployment, name, launch),
                    versions=absent_in(deployment, name, absence.versions),
                    level=level_for_image(deployment, name, launch.module or ""),
                )
                is_in_none = absence.versions is EVERY_RELEASE and similar is None
                if is_in_none and may_be_any_build(deployment, name):
                    message = f"no release of Dynamo has the flag {one.spelling} of {launch.module}"
                    yield _in_own_build(result, message, one.spelling)
                else:
                    yield result


def _in_own_build(result: RuleResult, message: str, name: str) -> RuleResult:
    """The result for a build of one's own: it may have added a flag that resembles no other."""
    return replace(
        result,
        message=message,
        fix=Fix(text=f"Use an image whose build has the flag, or remove {name}."),
        why="A build that does not have the flag exits at startup.",
        level=Level.NOTE,
        versions=EVERY_PUBLISHED,
    )


def _absences(launch: Launch, one: GivenFlag) -> Iterator[Absence]:
    if _is_checked(one):
        spelling, module = one.spelling.partition(".")[0], launch.module or ""
        is_known = one.flag is not None or _is_in_sources(module, spelling)
        ended = _until_the_module_ends(module)
        for absence in absences(module, spelling, is_known=is_known):
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


def _is_in_sources(module: str, spelling: str) -> bool:
    """Whether the newest release has the flag, of a module without a table from its parser."""
    span = presence(module, spelling) if flag_names(module) else None
    known = list(RELEASES)
    return span is not None and known.index(span.last) >= known.index(DEPLOYED)


def _all_arguments(
    deployment: ServingDeployment,
) -> Iterator[tuple[str, Launch, FlagTable, GivenFlag]]:
    """Those that only the module's parser reads."""
    for name, launch, table in all_launches(deployment):
        if not _has_engine_chat_processor(launch):  # once a launch: it reads all arguments
            for one in table.read(launch.arguments):
                yield name, launch, table, one


def _rejection(deployment: ServingDeployment, component: str, launch: Launch) -> str:
    """What the module does with the flag; empty if the rule's effect says it."""
    version = dynamo_version(deployment.pods[component])
    if launch.module != "dynamo.frontend" or (version or PARSES_ITSELF) < PARSES_ITSELF:
        return ""
    return "The frontend exits with “Unknown arguments specified” and restarts in a crash loop."


def _similar(table: FlagTable, one: GivenFlag) -> Fix | None:
    """What to write instead; None if the flag resembles none of the module."""
    if instead := ONLY_DOCUMENTED.get(one.spelling):
        return Fix(text=f"Remove {one.spelling} and set {instead}.")
    if other := same_meaning(one.spelling, table.by_spelling, SIMILAR):
        text = f"Use {other} and adapt the value: the flags are similar, not the same."
        return Fix(text=text, replaces=one.spelling)
    near = _near(one.spelling, table)
    if not near:
        return _of_another(one.spelling, one.spelling)
    takes = table.by_spelling[near].takes
    value = (one.text,) if takes != "none" and one.text is not None else ()
    is_complete = takes in ("none", "maybe") or bool(value)
    args = (near, *value) if is_complete else ()
    text = f"Replace {one.spelling} with {near}."
    return Fix(text=text, args=args, replaces=one.spelling)


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


def _older(launch: Launch, one: GivenFlag) -> Fix:
    """What to do about a flag that the release does not have yet."""
    before = BEFORE.get((launch.module or "", one.spelling, str(one.text)))
    if before is None:
        return _newer(one.spelling)
    text = f"Use {before} instead, or an image of a release that has {one.spelling}."
    return Fix(text=text, replaces=one.spelling, args=(before,))


def _newer(spelling: str) -> Fix:
    return Fix(text=f"Remove {spelling}, or use an image of a release that has it.")


def unknown_file_key(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for line in file_flags(deployment):
        flag = _flag_of(line)
        is_known = _is_known(line, flag)
        for absence in absences(line.module, flag, is_known=is_known):
            if not absence.was_removed and flag not in REMOVED:
                component, similar = line.location.component, _rename(line, flag)
                result = RuleResult(
                    location=line.location,
                    message=f"{line.module} has no flag {flag}{absence.since}, and each key of its "
                    "engine file must be a flag",
                    fix=_newer(line.key)
                    if is_known
                    else similar or Fix(text=f"Remove {line.key}."),
                    versions=absent_in(deployment, component, absence.versions),
                )
                is_in_none = absence.versions is EVERY_RELEASE and similar is None
                if is_in_none and may_be_any_build(deployment, component):
                    message = (
                        f"no release of Dynamo has the flag {flag} of {line.module}, to which this "
                        "key is converted"
                    )
                    yield _in_own_build(result, message, line.key)
                else:
                    yield result


def _flag_of(line: FileFlag) -> str:
    return line.arguments[0] if line.arguments else f"--{line.key.replace('_', '-')}"


def _is_known(line: FileFlag, flag: str) -> bool:
    read = next((one.flag for one in line.table.read(line.arguments)), line.table.find(flag))
    return read is not None


def _rename(line: FileFlag, flag: str) -> Fix | None:
    """The fix for an unknown key; None if it resembles no flag of the module and no other engine
    has it."""
    known = line.table.by_spelling
    if other := same_meaning(flag, known, SIMILAR):
        text = f"Use {other[2:]} and adapt the value: the keys are similar, not the same."
        return Fix(text=text, replaces=line.key)
    near = _near(flag, line.table)
    if not near:
        return _of_another(flag, line.key)
    return Fix(
        text=f"Rename {line.key} to {near[2:]}.",
        config={near[2:]: line.value},
        replaces=line.key,
    )


def removed_flag(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, launch, _, one in _all_arguments(deployment):
        for absence in _absences(launch, one):
            if absence.was_removed or (one.spelling in REMOVED and not absence.since):
                yield RuleResult(
                    location=Location(name, "args", (one.spelling,)),
                    message=f"{launch.module} has no {one.spelling}{absence.since}",
                    fix=instead_of_flag(deployment, name, one)
                    if one.spelling == CONNECTOR
                    else _replacement(one.spelling, one.spelling, launch.module or ""),
                    why=REJECTED
                    if one.spelling == CONNECTOR
                    else _rejection(deployment, name, launch),
                    versions=absence.versions,
                )
    for line in file_flags(deployment):
        flag = _flag_of(line)
        for absence in absences(line.module, flag, is_known=_is_known(line, flag)):
            if absence.was_removed or (flag in REMOVED and not absence.since):
                yield RuleResult(
                    location=line.location,
                    message=f"{line.module} has no {flag}{absence.since}, to which this key is "
                    "converted",
                    fix=_replacement(flag, line.key),
                    versions=absence.versions,
                )


def _replacement(flag: str, name: str, module: str = "") -> Fix:
    if module in CONFIGURED:
        return Fix(text=f"Replace {name} with a field of the JSON or YAML of --config.")
    return Fix(text=REMOVED.get(flag, Removed()).fix(name))
