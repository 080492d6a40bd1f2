"""Rules of command lines and variables: flags that are unknown, gone, or without effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.versions.image_versions import as_of_newest
from penstock.engines.flag_file import words_of
from penstock.engines.flags import GONE, KINDS, FlagTable, GivenFlag, flag_table
from penstock.engines.settings import Location, read_settings
from penstock.manifests.deployment import Engine, KnownConfig, Launch
from penstock.manifests.flags import value
from penstock.serving.deployment import ServingDeployment

# "nothing: why" of a flag that is gone, as a fix: "remove it: why".
REMOVAL = ("nothing", "remove it", 1)
NEAR = 0.8  # how alike a name must be to be meant: below it are flags of other things
TLS = {"tls-cert-path": "DYN_TLS_CERT_PATH", "tls-key-path": "DYN_TLS_KEY_PATH"}


def launches(deployment: ServingDeployment) -> Iterator[tuple[str, Launch, FlagTable]]:
    for component in deployment.components:
        for launch in component.launches:
            table = flag_table(launch.module or "")
            if table is not None:
                yield component.name, launch, table


def given(deployment: ServingDeployment) -> Iterator[tuple[str, Launch, FlagTable, GivenFlag]]:
    for name, launch, table in launches(deployment):
        for one in table.read(launch.arguments):
            yield name, launch, table, one


@rule(
    id="PS141",
    title="a flag that does not exist",
    level=Level.ERROR,
    cause="The module's parser has no such flag.",
    effect="The process ends with “unrecognized arguments”, in a crash loop.",
    remedy="Use the nearest name.",
    source="parsers of ai-dynamo 1.6.1, vLLM 0.31.0 and SGLang 0.5.21, dumped to tables",
)
@as_of_newest
def unknown_flag(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, launch, table, one in given(deployment):
        if one.flag is not None or one.spelling in GONE or one.spelling.startswith("--trtllm."):
            continue
        if "$" in one.spelling or not one.spelling.startswith("--"):
            continue
        if launch.module == "dynamo.frontend" and _processes_otherwise(launch):
            continue
        near = get_close_matches(one.spelling, list(table.by_spelling), n=1, cutoff=NEAR)
        fix = Fix(text="remove it")
        if near:
            takes = table.by_spelling[near[0]].takes
            value = (one.text,) if takes != "none" and one.text is not None else ()
            words = f"perhaps you meant {near[0]}, in place of {one.spelling}"
            is_complete = takes in ("none", "maybe") or bool(value)
            args = (near[0], *value) if is_complete else ()
            fix = Fix(text=words, args=args, replaces=one.spelling)
        yield RuleResult(
            location=Location(name, "args", (one.spelling,)),
            message=f"{launch.module} has no flag {one.spelling}",
            fix=fix,
        )


def _processes_otherwise(launch: Launch) -> bool:
    """With an engine's chat processor the frontend takes that engine's flags too."""
    said = value(launch.arguments, "--dyn-chat-processor")
    return (said or launch.env.get("DYN_CHAT_PROCESSOR", "dynamo")) != "dynamo"


@dataclass(frozen=True, kw_only=True)
class Line:
    """A key of vLLM's or SGLang's file: its value, and the words of the command line that it
    becomes."""

    location: Location
    module: str
    key: str
    value: Any
    table: FlagTable
    words: list[str]


def lines(deployment: ServingDeployment) -> Iterator[Line]:
    for component in deployment.components:
        config, engine = component.engine_config, component.engine
        if engine not in (Engine.VLLM, Engine.SGLANG) or not isinstance(config, KnownConfig):
            continue
        module = f"dynamo.{engine}"
        if (table := flag_table(module)) is None:
            continue
        for name, said in config.values.items():
            key = str(name)
            location = Location(component.name, "config", (key,))
            words = words_of(engine, table, key, said)
            yield Line(
                location=location, module=module, key=key, value=said, table=table, words=words
            )


@rule(
    id="PS142",
    title="a key in vLLM's or SGLang's file that is no flag",
    level=Level.ERROR,
    cause="Each key of --config becomes a flag, and there is none of that name.",
    effect="The process ends with “unrecognized arguments”.",
    remedy="Use the flag's name without dashes in front.",
    source="vllm/utils/argparse_utils.py 0.31.0; sglang/srt/utils 0.5.21",
)
@as_of_newest
def unknown_file_key(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for line in lines(deployment):
        flag = line.words[0] if line.words else f"--{line.key.replace('_', '-')}"
        known = next((one.flag for one in line.table.read(line.words)), line.table.find(flag))
        if known is None and flag not in GONE:
            near = get_close_matches(flag, list(line.table.by_spelling), n=1, cutoff=NEAR)
            words = f"perhaps you meant {near[0][2:]}, in place of {line.key}" if near else ""
            yield RuleResult(
                location=line.location,
                message=f"{line.module} has no flag {flag}, and each key of its file is one",
                fix=Fix(
                    text=words or "remove it",
                    config={n[2:]: line.value for n in near},
                    replaces=line.key if near else None,
                ),
            )


def wrong_value(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, launch, _, one in given(deployment):
        if misread := _misread(one, launch.module or ""):
            message, words, near = misread
            yield RuleResult(
                location=Location(name, "args", (one.spelling,)),
                message=f"{one.spelling} {message}",
                fix=Fix(text=words, args=(one.spelling, near) if near else ()),
            )


def wrong_file_value(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for line in lines(deployment):
        one = next(line.table.read(line.words), None)
        if one is None or one.flag is None:
            continue
        if line.value is None:
            if one.flag.is_optional:
                continue
            message, words, near = "null becomes the word None", f"remove {line.key}", ""
        elif one.flag.takes == "none" and len(line.words) > 1:
            message, words, near = f"{line.value}: a switch", "write true or false", ""
        elif misread := _misread(one, line.module):
            message, words, near = misread
        else:
            continue
        yield RuleResult(
            location=line.location,
            message=f"{line.key}: {message}",
            fix=Fix(text=words, config={line.key: near} if near else {}),
        )


def _misread(one: GivenFlag, module: str) -> tuple[str, str, str] | None:
    """(what is wrong with the flag's value, what to do, the value that is meant or nothing); None
    where the parser takes it."""
    flag, text = one.flag, one.text
    if flag is None or one.inner:
        return None
    if text is None:
        is_short = flag.takes == "one" and not one.spelling.startswith("--no-")
        return ("has no value", "give it one", "") if is_short else None
    if "$" in text or "`" in text:
        return None
    if one.spelling in ("--dyn-tool-call-parser", "--dyn-reasoning-parser"):
        return None  # PS603 knows more about them
    is_none = flag.is_optional and text in ("", "None")
    if flag.choices and one.choice not in flag.choices and flag.takes == "one" and not is_none:
        near = (get_close_matches(text, flag.choices, n=1) or [""])[0]
        words = f"perhaps you meant {near}" if near else "use one of them"
        return f"{text}: {module} takes {', '.join(flag.choices)}", words, near
    if not one.reads:
        kind = KINDS.get(flag.kind, flag.kind.strip("_"))
        return f"{text!r} is no {kind}", "write a value of that kind", ""
    return None


@rule(
    id="PS153",
    title="an all-to-all backend that is gone",
    level=Level.WARNING,
    cause="pplx and naive are still among vLLM's choices and fall back.",
    effect="Only a warning in the log; experts communicate in another way than meant.",
    remedy="Name one that is there.",
    source="llm-d#855; vllm/config/parallel.py 0.31.0",
)
def fallen_back(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        for launch in component.launches:
            if launch.module != "dynamo.vllm":
                continue
            said = read_settings(component, launch).get("all2all-backend")
            if said is not None and said.value in ("pplx", "naive"):
                yield RuleResult(
                    location=said.location,
                    message=f"all2all-backend {said.value}: vLLM 0.31 takes it and uses another",
                    fix=Fix(
                        text="name one that it has",
                        config={"all2all-backend": "allgather_reducescatter"},
                    ),
                )


@rule(
    id="PS144",
    title="a flag that is gone",
    level=Level.ERROR,
    cause="The flag was removed in an earlier release; published recipes still have it.",
    effect="The process ends with “unrecognized arguments”, in a crash loop.",
    remedy="Use what took its place.",
    source="dynamo#12089, dynamo#6477, dynamo#6513, dynamo#11831, dynamo#11887, dynamo#8693; "
    "sglang#8658; SGLang 0.5.21's parser",
)
@as_of_newest
def gone_flag(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, launch, _, one in given(deployment):
        if one.spelling in GONE and one.flag is None:
            yield RuleResult(
                location=Location(name, "args", (one.spelling,)),
                message=f"{launch.module} no longer has {one.spelling}",
                fix=Fix(text=instead_of(GONE[one.spelling])),
            )
        elif one.spelling == "--connector" and launch.module == "dynamo.vllm":
            yield RuleResult(
                location=Location(name, "args", (one.spelling,)),
                message="dynamo.vllm no longer takes --connector, even with none",
                fix=Fix(text="use --kv-transfer-config"),
            )
    for line in lines(deployment):
        flag = f"--{line.key.replace('_', '-')}"
        if flag in GONE and line.table.find(flag) is None:
            yield RuleResult(
                location=line.location,
                message=f"{line.module} no longer has {flag}, which this key becomes",
                fix=Fix(text=instead_of(GONE[flag])),
            )


@rule(
    id="PS145",
    title="a deprecated flag",
    level=Level.WARNING,
    cause="The parser accepts the flag and says that it will go.",
    effect="The next release but one refuses the command line.",
    remedy="Use what its help names.",
    source="help texts of the parsers of ai-dynamo 1.6.1 and SGLang 0.5.21",
)
def deprecated_flag(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, launch, _, one in given(deployment):
        said = one.flag.deprecated.get(one.spelling) if one.flag else None
        if said:
            yield RuleResult(
                location=Location(name, "args", (one.spelling,)),
                message=f"{one.spelling} of {launch.module} is deprecated: {said}",
                fix=Fix(text="change it before the release that removes it"),
                level=Level.NOTE if said.startswith("the name is now") else None,
            )


def instead_of(what: str) -> str:
    """ "use --x", or "remove it: why" where nothing took its place."""
    return f"use {what}" if what.startswith(("-", "the", "DYN")) else what.replace(*REMOVAL)


@rule(
    id="PS150",
    title="a flag given twice",
    level=Level.WARNING,
    cause="The same flag stands twice with different values.",
    effect="The last one wins, whichever was meant.",
    remedy="Say it once.",
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
                    message=f"{one.spelling} {seen[flag.name]} and then {one.text}: the last wins",
                    fix=Fix(text="say it once"),
                )
            seen[flag.name] = one.text


@rule(
    id="PS151",
    title="TLS by half",
    level=Level.ERROR,
    cause="The frontend has a certificate without its key, or the other way round.",
    effect="The frontend ends at its start.",
    remedy="Give both.",
    source="dynamo/frontend/frontend_args.py of 1.6.1",
)
def broken_tls(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component, launch, flags in deployment.frontends:
        names = {one.flag.name for one in flags if one.flag}
        given = [
            flag if flag in names else variable
            for flag, variable in TLS.items()
            if flag in names or launch.env.get(variable) or variable in launch.unknown_variables
        ]
        if len(given) == 1:
            what = "args" if given[0] in names else "env"
            name = f"--{given[0]}" if what == "args" else given[0]
            yield RuleResult(
                location=Location(component.name, what, (name,)),
                message=f"only {name}: TLS needs certificate and key",
                fix=Fix(
                    text="give both",
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
    title="a value that the flag does not take",
    level=Level.ERROR,
    cause="The value is not among the flag's choices, of another kind, or missing.",
    effect="The process ends with a message of its parser.",
    remedy="Use one of the values.",
    source="parsers of ai-dynamo 1.6.1, vLLM 0.31.0 and SGLang 0.5.21, dumped to tables",
)
@as_of_newest
def invalid_flag_value(deployment: ServingDeployment) -> Iterable[RuleResult]:
    yield from wrong_value(deployment)
    yield from wrong_file_value(deployment)
