"""The rule about values that the parser of a flag or of a file's key rejects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.command_line.given_flags import (
    FileFlag,
    arguments,
    file_flags,
    level_for_image,
    repeated_flags,
)
from penstock.checks.version_range import Versions
from penstock.engines.flags import KINDS, Flag, GivenFlag, is_below_range
from penstock.engines.releases import DEPLOYED
from penstock.engines.settings import Location
from penstock.engines.trtllm_arguments import BOOLEANS
from penstock.engines.value_history import choices_in, is_known
from penstock.engines.versions import releases_with_choices
from penstock.manifests.deployment import Engine
from penstock.manifests.pods import Pod
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import dynamo_version, shown, software
from penstock.text.names import nearest

ENGINES = {"dynamo.vllm": Engine.VLLM, "dynamo.sglang": Engine.SGLANG}
# PS603 reports these.
PARSERS = ("--dyn-tool-call-parser", "--dyn-reasoning-parser")


@dataclass(frozen=True)
class _Problem:
    """A value that the module rejects. Types and ranges do not depend on the version; choices do,
    unless the value resembles one."""

    message: str
    fix: str
    near: str | bool = ""
    # The releases whose choices were read and lack the value; None: every release rejects it.
    versions: Versions | None = None


def invalid_flag_value(deployment: ServingDeployment) -> Iterable[RuleResult]:
    """Results for command lines and then for engine files."""
    repeated = {
        (name, repeat.flag.name) for name, repeat, _ in repeated_flags(deployment) if repeat.flag
    }
    for name, launch, argument in arguments(deployment):
        module, flag = launch.module or "", argument.spelling
        if argument.text is None and argument.flag and (name, argument.flag.name) in repeated:
            continue  # PS150 reports the flag without a value
        if problem := _problem(argument, module, deployment.pods[name]):
            fix = Fix(text=problem.fix, args=(flag, str(problem.near)) if problem.near else ())
            place = Location(name, "args", (flag,))
            yield from _results(deployment, module, place, flag, problem, fix)
    for line in file_flags(deployment):
        if problem := _problem_of_key(line, deployment.pods[line.location.component]):
            config = {line.key: problem.near} if problem.near != "" else {}
            fix = Fix(text=problem.fix, config=config)
            yield from _results(deployment, line.module, line.location, line.key, problem, fix)


def _results(
    deployment: ServingDeployment,
    module: str,
    location: Location,
    name: str,
    problem: _Problem,
    fix: Fix,
) -> Iterator[RuleResult]:
    """For the releases whose choices were read, and for those before, which may have had it."""
    level = level_for_image(deployment, location.component, module)
    message, versions = f"{name} {problem.message}", problem.versions
    result = RuleResult(location=location, message=message, fix=fix, level=level, versions=versions)
    yield result
    if versions is not None and versions.dynamo.startswith(">="):
        before = Versions(dynamo=f"<{versions.dynamo.removeprefix('>=')}")
        yield replace(result, level=level or Level.WARNING, versions=before)


def _problem_of_key(line: FileFlag, pod: Pod) -> _Problem | None:
    argument, key = line.given, line.key
    if argument is None or argument.flag is None:
        return None
    if line.value is None:
        is_optional, fix = argument.flag.is_optional, f"Remove {key}."
        return None if is_optional else _Problem("is null, which becomes the string None", fix)
    if argument.flag.takes == "none" and len(line.arguments) > 1:
        return _not_boolean(key, line.value)
    return _problem(argument, line.module, pod)


def _not_boolean(key: str, setting: Any) -> _Problem:
    """The problem of a value of a switch. The text 'yes' would become a second argument."""
    meant = BOOLEANS.get(str(setting).lower())
    if not isinstance(setting, str) or meant is None:
        message = f"is {setting}, but takes only true or false"
        return _Problem(message, f"Set {key} to true or false.")
    message = f"is the text {setting!r}, but takes only true or false"
    return _Problem(message, f"Set {key} to {str(meant).lower()}, without quotes.", near=meant)


def _problem(argument: GivenFlag, module: str, pod: Pod) -> _Problem | None:
    """What is wrong with a value that the module rejects, else None."""
    flag, text, name = argument.flag, argument.text, argument.spelling
    if flag is None or argument.inner:
        return None
    if text is None:
        lacks_value = flag.takes == "one" and not name.startswith("--no-")
        return _Problem("has no value", f"Set a value for {name}.") if lacks_value else None
    if "$" in text or "`" in text or name in PARSERS:
        return None
    is_none = flag.is_optional and text in ("", "None")
    if flag.choices and argument.choice not in flag.choices and flag.takes == "one" and not is_none:
        return _choice_problem(argument, module, pod)
    if not argument.reads:
        kind = KINDS[flag.kind]
        return _Problem(f"is {text!r}, but must be {kind}", f"Set {name} to {kind}.")
    if is_below_range(module, argument):
        return _Problem(f"is {text}, but must be at least 1", f"Set {name} to at least 1.")
    return None


def _choice_problem(argument: GivenFlag, module: str, pod: Pod) -> _Problem | None:
    """The problem of a value that is not one of the flag's choices. None if only some versions
    reject it, which PS163 reports."""
    flag, text, engine = argument.flag, argument.text or "", ENGINES.get(module)
    if flag is None or (engine and is_known(engine, "choices", flag.name, text)):
        return None
    choices = _choices_in(pod, flag, argument.spelling, module)
    near = nearest(text, choices)
    message = f"is {text}, but {module} accepts only {', '.join(choices)}"
    fix = f"Use {near}." if near else "Use one of these values."
    known = releases_with_choices(module, argument.spelling)
    accepting = [release for release, choices in known.items() if text in choices]
    if accepting:
        first = accepting[0]
        limit = f"<{first}" if first > DEPLOYED else f">={DEPLOYED}"
        return _Problem(message, fix, near, Versions(dynamo=limit))
    first = next(iter(known), DEPLOYED)
    return _Problem(message, fix, near, None if near else Versions(dynamo=f">={first}"))


def _choices_in(pod: Pod, flag: Flag, spelling: str, module: str) -> Sequence[str]:
    """The choices in the version of the image; those of the deployed release if it states none,
    or if its choices were not read."""
    release, engine = dynamo_version(pod), ENGINES.get(module)
    if release is not None and shown(release) != DEPLOYED:
        if of_dynamo := releases_with_choices(module, spelling).get(shown(release)):
            return of_dynamo
        versions = software(pod).engines.get(engine, ()) if engine else ()
        if engine and versions and (listed := choices_in(engine, flag.name, versions[-1])):
            return listed
    return flag.choices
