"""Rules about command-line flags, which vLLM and SGLang also read from their engine files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.command_line.given_flags import (
    arguments,
    file_flags,
    launches,
    level_for_image,
)
from penstock.checks.version_range import Versions
from penstock.engines.flag_ranges import is_below_range
from penstock.engines.flags import KINDS, GivenFlag
from penstock.engines.llm_args.surely_valid import BOOLEANS
from penstock.engines.releases import DEPLOYED
from penstock.engines.settings import Location, read_settings
from penstock.engines.value_history import is_known
from penstock.engines.versions import releases_with_choices
from penstock.manifests.deployment import Engine
from penstock.nearest import nearest
from penstock.serving.deployment import ServingDeployment

PARSERS = Versions(every="the parsers of all releases read numbers and JSON alike")
TLS = {"tls-cert-path": "DYN_TLS_CERT_PATH", "tls-key-path": "DYN_TLS_KEY_PATH"}


def _invalid_arguments(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, launch, _, one in arguments(deployment):
        if problem := _problem(one, launch.module or ""):
            yield from problem.results(
                deployment,
                launch.module or "",
                RuleResult(
                    location=Location(name, "args", (one.spelling,)),
                    message=f"{one.spelling} {problem.message}",
                    fix=Fix(
                        text=problem.fix,
                        args=(one.spelling, str(problem.near)) if problem.near else (),
                    ),
                ),
            )


def _invalid_file_values(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for line in file_flags(deployment):
        one = next(line.table.read(line.arguments), None)
        if one is None or one.flag is None:
            continue
        if line.value is None:
            if one.flag.is_optional:
                continue
            problem = _Problem("is null, which becomes the string None", f"Remove {line.key}.")
        elif one.flag.takes == "none" and len(line.arguments) > 1:
            problem = _not_boolean(line.key, line.value)
        elif found := _problem(one, line.module):
            problem = found
        else:
            continue
        near = problem.near
        yield from problem.results(
            deployment,
            line.module,
            RuleResult(
                location=line.location,
                message=f"{line.key} {problem.message}",
                fix=Fix(text=problem.fix, config={line.key: near} if near != "" else {}),
            ),
        )


def _not_boolean(key: str, value: Any) -> _Problem:
    """The problem of a value of a switch. The text 'yes' would become a second argument."""
    meant = BOOLEANS.get(str(value).lower())
    if not isinstance(value, str) or meant is None:
        message = f"is {value}, but takes only true or false"
        return _Problem(message, f"Set {key} to true or false.")
    message = f"is the text {value!r}, but takes only true or false"
    return _Problem(message, f"Set {key} to {str(meant).lower()}, without quotes.", near=meant)


@dataclass(frozen=True)
class _Problem:
    """A value that the module rejects. Types and ranges do not depend on the version; choices do,
    unless the value resembles one."""

    message: str
    fix: str
    near: str | bool = ""
    # The releases whose choices were read and lack the value; None: every release rejects it.
    versions: Versions | None = None

    def results(
        self, deployment: ServingDeployment, module: str, result: RuleResult
    ) -> Iterator[RuleResult]:
        """``result``, with the versions and the level for the component's image."""
        level = level_for_image(deployment, result.location.component, module)
        yield replace(result, level=level, versions=self.versions)
        if self.versions is not None and (before := _before(self.versions)):
            yield replace(result, level=level or Level.WARNING, versions=before)


def _before(versions: Versions) -> Versions | None:
    """The releases before those whose choices were read: they may have had the value."""
    first = versions.dynamo.removeprefix(">=")
    return Versions(dynamo=f"<{first}") if first != versions.dynamo else None


def _choice_problem(one: GivenFlag, module: str) -> _Problem | None:
    """The problem of a value that is not one of the flag's choices. None if only some versions
    reject it, which PS163 reports."""
    flag, text = one.flag, one.text or ""
    engine = {"dynamo.vllm": Engine.VLLM, "dynamo.sglang": Engine.SGLANG}.get(module)
    if flag is None or (engine and is_known(engine, "choices", flag.name, text)):
        return None
    near = nearest(text, flag.choices)
    message = f"is {text}, but {module} accepts only {', '.join(flag.choices)}"
    fix = f"Use {near}." if near else "Use one of these values."
    known = releases_with_choices(module, one.spelling)
    accepting = [release for release, choices in known.items() if text in choices]
    if accepting and accepting[0] > DEPLOYED:
        versions: Versions | None = Versions(dynamo=f"<{accepting[0]}")
    elif accepting:
        versions = Versions(dynamo=f">={DEPLOYED}")
    else:
        versions = None if near else Versions(dynamo=f">={next(iter(known), DEPLOYED)}")
    return _Problem(message, fix, near, versions)


def _problem(one: GivenFlag, module: str) -> _Problem | None:
    """What is wrong with a value that the module rejects, else None."""
    flag, text = one.flag, one.text
    if flag is None or one.inner:
        return None
    if text is None:
        lacks_value = flag.takes == "one" and not one.spelling.startswith("--no-")
        return _Problem("has no value", f"Set a value for {one.spelling}.") if lacks_value else None
    if "$" in text or "`" in text:
        return None
    if one.spelling in ("--dyn-tool-call-parser", "--dyn-reasoning-parser"):
        return None  # PS603 reports these
    is_none = flag.is_optional and text in ("", "None")
    if flag.choices and one.choice not in flag.choices and flag.takes == "one" and not is_none:
        return _choice_problem(one, module)
    if not one.reads:
        kind = KINDS[flag.kind]
        return _Problem(f"is {text!r}, but must be {kind}", f"Set {one.spelling} to {kind}.")
    if is_below_range(module, one):
        return _Problem(f"is {text}, but must be at least 1", f"Set {one.spelling} to at least 1.")
    return None


def removed_all2all_backend(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        for launch in component.launches:
            if launch.module != "dynamo.vllm":
                continue
            setting = read_settings(component, launch).get("all2all-backend")
            if setting is not None and setting.value in ("pplx", "naive"):
                yield RuleResult(
                    location=setting.location,
                    message=f"vLLM accepts all2all-backend {setting.value} but uses another one",
                    fix=Fix(
                        text="Set all2all-backend to allgather_reducescatter.",
                        config={"all2all-backend": "allgather_reducescatter"},
                    ),
                )


def deprecated_flag(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, launch, _, one in arguments(deployment):
        if one.flag is None:
            continue
        notice, new_name = (
            table.get(one.spelling) for table in (one.flag.deprecated, one.flag.renamed)
        )
        if notice or new_name:
            yield RuleResult(
                location=Location(name, "args", (one.spelling,)),
                message=f"{one.spelling} of {launch.module} is deprecated: "
                + (
                    (notice or "").removeprefix("Deprecated. ").rstrip(".")
                    or f"it was renamed to {new_name}"
                ),
                fix=Fix(
                    text=f"Use {new_name} instead of {one.spelling}."
                    if new_name
                    else f"Replace {one.spelling} as its deprecation notice says."
                ),
                level=Level.NOTE if new_name else None,
            )


def same_flag_twice(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, launch, table in launches(deployment):
        seen: dict[str, str | None] = {}
        for one in table.read(launch.arguments):
            flag = one.flag
            if flag is None or flag.takes != "one" or one.inner:
                continue
            if flag.name in seen and seen[flag.name] != one.text:
                yield _given_twice(name, one, seen[flag.name])
            seen[flag.name] = one.text


def _given_twice(name: str, one: GivenFlag, before: str | None) -> RuleResult:
    location = Location(name, "args", (one.spelling,))
    if before is None or one.text is None:
        return RuleResult(
            location=location,
            message=f"{one.spelling} is given twice, once without a value",
            why="argparse takes one value for each, so the process exits: expected one argument.",
            fix=Fix(text=f"Give {one.spelling} once, with its value."),
            level=Level.ERROR,
        )
    return RuleResult(
        location=location,
        message=f"{one.spelling} is given twice: {before} and {one.text}",
        fix=Fix(text=f"Give {one.spelling} once."),
    )


def incomplete_tls(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component, launch, flags in deployment.frontends:
        names = {one.flag.name for one in flags if one.flag}
        configured = [
            flag if flag in names else variable
            for flag, variable in TLS.items()
            if flag in names or launch.env.get(variable) or variable in launch.unknown_variables
        ]
        if len(configured) == 1:
            what = "args" if configured[0] in names else "env"
            name = f"--{configured[0]}" if what == "args" else configured[0]
            yield RuleResult(
                location=Location(component.name, what, (name,)),
                message=f"only {name} is set, but TLS requires a certificate and a key",
                fix=Fix(
                    text="Set --tls-cert-path and --tls-key-path.",
                    args=(
                        "--tls-cert-path",
                        "/etc/tls/tls.crt",
                        "--tls-key-path",
                        "/etc/tls/tls.key",
                    ),
                ),
            )


def invalid_flag_value(deployment: ServingDeployment) -> Iterable[RuleResult]:
    yield from _invalid_arguments(deployment)
    yield from _invalid_file_values(deployment)
