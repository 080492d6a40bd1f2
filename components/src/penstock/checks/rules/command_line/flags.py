"""Rules about command-line flags, which vLLM and SGLang also read from their engine files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.common import as_of_newest
from penstock.engines.flag_file import arguments_of
from penstock.engines.flags import KINDS, REMOVED, FlagTable, GivenFlag, flag_table, given_flags
from penstock.engines.settings import Location, read_settings
from penstock.manifests.deployment import Engine, KnownConfig, Launch
from penstock.manifests.flags import flag_value
from penstock.nearest import nearest
from penstock.serving.deployment import ServingDeployment

SIMILARITY = 0.8  # minimum similarity of a suggestion; below it are unrelated flags
TLS = {"tls-cert-path": "DYN_TLS_CERT_PATH", "tls-key-path": "DYN_TLS_KEY_PATH"}


def launches(deployment: ServingDeployment) -> Iterator[tuple[str, Launch, FlagTable]]:
    for component in deployment.components:
        for launch in component.launches:
            table = flag_table(launch.module or "")
            if table is not None:
                yield component.name, launch, table


def arguments(deployment: ServingDeployment) -> Iterator[tuple[str, Launch, FlagTable, GivenFlag]]:
    for name, launch, table in launches(deployment):
        for one in given_flags(launch.module or "", launch.arguments):
            yield name, launch, table, one


@rule(
    id="PS141",
    title="flag that does not exist",
    level=Level.ERROR,
    cause="The module's parser does not know the flag.",
    effect="The process exits with “unrecognized arguments” and restarts in a crash loop.",
    remedy="Use the suggested flag.",
    source="parsers of ai-dynamo 1.6.1, vLLM 0.31.0 and SGLang 0.5.21, dumped to tables",
)
@as_of_newest
def unknown_flag(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, launch, table, one in arguments(deployment):
        if one.flag is not None or one.spelling in REMOVED or one.spelling.startswith("--trtllm."):
            continue
        if "$" in one.spelling or not one.spelling.startswith("--"):
            continue
        if launch.module == "dynamo.frontend" and _has_engine_chat_processor(launch):
            continue
        near = nearest(one.spelling, table.by_spelling, SIMILARITY)
        fix = Fix(text=f"Remove {one.spelling}.")
        if near:
            takes = table.by_spelling[near].takes
            value = (one.text,) if takes != "none" and one.text is not None else ()
            text = f"Replace {one.spelling} with {near}."
            is_complete = takes in ("none", "maybe") or bool(value)
            args = (near, *value) if is_complete else ()
            fix = Fix(text=text, args=args, replaces=one.spelling)
        yield RuleResult(
            location=Location(name, "args", (one.spelling,)),
            message=f"{launch.module} has no flag {one.spelling}",
            fix=fix,
        )


def _has_engine_chat_processor(launch: Launch) -> bool:
    """Whether the frontend uses an engine's chat processor, and so accepts the engine's flags."""
    processor = flag_value(launch.arguments, "--dyn-chat-processor")
    return (processor or launch.env.get("DYN_CHAT_PROCESSOR", "dynamo")) != "dynamo"


@dataclass(frozen=True, kw_only=True)
class FileFlag:
    """A key of vLLM's or SGLang's engine file, which the engine converts to a flag."""

    location: Location
    module: str
    key: str
    value: Any
    table: FlagTable
    # The arguments that the key is converted to.
    arguments: list[str]


def file_flags(deployment: ServingDeployment) -> Iterator[FileFlag]:
    for component in deployment.components:
        config, engine = component.engine_config, component.engine
        if engine not in (Engine.VLLM, Engine.SGLANG) or not isinstance(config, KnownConfig):
            continue
        module = f"dynamo.{engine}"
        if (table := flag_table(module)) is None:
            continue
        for name, setting in config.values.items():
            key = str(name)
            location = Location(component.name, "config", (key,))
            arguments = arguments_of(engine, table, key, setting)
            yield FileFlag(
                location=location,
                module=module,
                key=key,
                value=setting,
                table=table,
                arguments=arguments,
            )


@rule(
    id="PS142",
    title="key in vLLM's or SGLang's engine file that is not a flag",
    level=Level.ERROR,
    cause="Each key of the --config file is converted to a flag, and no flag has this name.",
    effect="The process exits with “unrecognized arguments”.",
    remedy="Use the name of a flag, without leading dashes.",
    source="vllm/utils/argparse_utils.py 0.31.0; sglang/srt/utils 0.5.21",
)
@as_of_newest
def unknown_file_key(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for line in file_flags(deployment):
        flag = line.arguments[0] if line.arguments else f"--{line.key.replace('_', '-')}"
        known = next((one.flag for one in line.table.read(line.arguments)), line.table.find(flag))
        if known is None and flag not in REMOVED:
            near = nearest(flag, line.table.by_spelling, SIMILARITY)
            yield RuleResult(
                location=line.location,
                message=f"{line.module} has no flag {flag}, and each key of its engine file "
                "must be a flag",
                fix=Fix(
                    text=f"Rename {line.key} to {near[2:]}." if near else f"Remove {line.key}.",
                    config={near[2:]: line.value} if near else {},
                    replaces=line.key if near else None,
                ),
            )


def _invalid_arguments(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, launch, _, one in arguments(deployment):
        if problem := _problem(one, launch.module or ""):
            message, text, near = problem
            yield RuleResult(
                location=Location(name, "args", (one.spelling,)),
                message=f"{one.spelling} {message}",
                fix=Fix(text=text, args=(one.spelling, near) if near else ()),
            )


def _invalid_file_values(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for line in file_flags(deployment):
        one = next(line.table.read(line.arguments), None)
        if one is None or one.flag is None:
            continue
        if line.value is None:
            if one.flag.is_optional:
                continue
            message, text, near = (
                "is null, which becomes the string None",
                f"Remove {line.key}.",
                "",
            )
        elif one.flag.takes == "none" and len(line.arguments) > 1:
            message, text, near = (
                f"is {line.value}, but takes only true or false",
                f"Set {line.key} to true or false.",
                "",
            )
        elif problem := _problem(one, line.module):
            message, text, near = problem
        else:
            continue
        yield RuleResult(
            location=line.location,
            message=f"{line.key} {message}",
            fix=Fix(text=text, config={line.key: near} if near else {}),
        )


def _problem(one: GivenFlag, module: str) -> tuple[str, str, str] | None:
    """(message, fix, suggested value or "") for a value that the parser rejects, else None."""
    flag, text = one.flag, one.text
    if flag is None or one.inner:
        return None
    if text is None:
        lacks_value = flag.takes == "one" and not one.spelling.startswith("--no-")
        return ("has no value", f"Set a value for {one.spelling}.", "") if lacks_value else None
    if "$" in text or "`" in text:
        return None
    if one.spelling in ("--dyn-tool-call-parser", "--dyn-reasoning-parser"):
        return None  # PS603 reports these
    is_none = flag.is_optional and text in ("", "None")
    if flag.choices and one.choice not in flag.choices and flag.takes == "one" and not is_none:
        near = nearest(text, flag.choices)
        fix = f"Use {near}." if near else "Use one of these values."
        return f"is {text}, but {module} accepts only {', '.join(flag.choices)}", fix, near
    if not one.reads:
        kind = KINDS.get(flag.kind, f"a value of type {flag.kind.strip('_')}")
        return f"is {text!r}, but must be {kind}", f"Set {one.spelling} to {kind}.", ""
    return None


@rule(
    id="PS153",
    title="all-to-all backend that vLLM no longer has",
    level=Level.WARNING,
    cause="pplx and naive are still accepted by vLLM, which falls back to another backend.",
    effect="Only a warning is logged; experts communicate through another backend than configured.",
    remedy="Set a backend that vLLM has.",
    source="llm-d#855; vllm/config/parallel.py 0.31.0",
)
def removed_all2all_backend(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        for launch in component.launches:
            if launch.module != "dynamo.vllm":
                continue
            setting = read_settings(component, launch).get("all2all-backend")
            if setting is not None and setting.value in ("pplx", "naive"):
                yield RuleResult(
                    location=setting.location,
                    message=f"vLLM 0.31 accepts all2all-backend {setting.value} but uses "
                    "another one",
                    fix=Fix(
                        text="Set all2all-backend to allgather_reducescatter.",
                        config={"all2all-backend": "allgather_reducescatter"},
                    ),
                )


@rule(
    id="PS144",
    title="flag that was removed",
    level=Level.ERROR,
    cause="The flag was removed in an earlier release; published recipes still use it.",
    effect="The process exits with “unrecognized arguments” and restarts in a crash loop.",
    remedy="Use the replacement.",
    source="dynamo#12089, dynamo#6477, dynamo#6513, dynamo#11831, dynamo#11887, dynamo#8693; "
    "sglang#8658; SGLang 0.5.21's parser",
)
@as_of_newest
def removed_flag(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, launch, _, one in arguments(deployment):
        if one.spelling in REMOVED and one.flag is None:
            yield RuleResult(
                location=Location(name, "args", (one.spelling,)),
                message=f"{launch.module} no longer has {one.spelling}",
                fix=Fix(text=REMOVED[one.spelling].fix(one.spelling)),
            )
        elif one.spelling == "--connector" and launch.module == "dynamo.vllm":
            yield RuleResult(
                location=Location(name, "args", (one.spelling,)),
                message="dynamo.vllm no longer accepts --connector, not even with none",
                fix=Fix(text="Use --kv-transfer-config instead of --connector."),
            )
    for line in file_flags(deployment):
        flag = f"--{line.key.replace('_', '-')}"
        if flag in REMOVED and line.table.find(flag) is None:
            yield RuleResult(
                location=line.location,
                message=f"{line.module} no longer has {flag}, to which this key is converted",
                fix=Fix(text=REMOVED[flag].fix(line.key)),
            )


@rule(
    id="PS145",
    title="deprecated flag",
    level=Level.WARNING,
    cause="The parser still accepts the flag but reports that it will be removed.",
    effect="A later release will reject the command line.",
    remedy="Use the flag that the parser's help names.",
    source="help texts of the parsers of ai-dynamo 1.6.1 and SGLang 0.5.21",
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


@rule(
    id="PS150",
    title="flag with two values",
    level=Level.WARNING,
    cause="The same flag is given twice with different values.",
    effect="The last value is used.",
    remedy="Give the flag once.",
    source="Python's argparse",
)
def same_flag_twice(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, launch, table in launches(deployment):
        seen: dict[str, str | None] = {}
        for one in table.read(launch.arguments):
            flag = one.flag
            if flag is None or flag.takes != "one" or one.inner:
                continue
            if flag.name in seen and seen[flag.name] != one.text:
                yield RuleResult(
                    location=Location(name, "args", (one.spelling,)),
                    message=f"{one.spelling} is given twice: {seen[flag.name]} and {one.text}",
                    fix=Fix(text=f"Give {one.spelling} once."),
                )
            seen[flag.name] = one.text


@rule(
    id="PS151",
    title="incomplete TLS configuration",
    level=Level.ERROR,
    cause="The frontend has a certificate without a key, or a key without a certificate.",
    effect="The frontend exits at startup.",
    remedy="Set both.",
    source="dynamo/frontend/frontend_args.py of 1.6.1",
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


@rule(
    id="PS143",
    title="value that the flag does not accept",
    level=Level.ERROR,
    cause="The value is not one of the flag's choices, has the wrong type, or is missing.",
    effect="The process exits with an error message of its parser.",
    remedy="Use one of the accepted values.",
    source="parsers of ai-dynamo 1.6.1, vLLM 0.31.0 and SGLang 0.5.21, dumped to tables",
)
@as_of_newest
def invalid_flag_value(deployment: ServingDeployment) -> Iterable[RuleResult]:
    yield from _invalid_arguments(deployment)
    yield from _invalid_file_values(deployment)
