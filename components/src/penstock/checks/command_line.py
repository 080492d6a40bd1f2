"""Rules of command lines and variables: flags that are unknown, gone, or without effect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from penstock.checks.finding import Fix, Found, Level
from penstock.checks.rule import Rule
from penstock.checks.subject import Subject
from penstock.engines.flags import GONE, KINDS, FlagTable, Given, flag_table
from penstock.engines.settings import At, read_settings
from penstock.manifests.deployment import Engine, KnownConfig, Launch, Role
from penstock.manifests.flags import value

# Variables that nothing reads any more (or that only look as if): engine, and what to use.
DEAD_VARIABLES: Mapping[str, tuple[Engine | None, str]] = {
    "VLLM_ATTENTION_BACKEND": (Engine.VLLM, "--attention-backend"),
    "VLLM_USE_V1": (Engine.VLLM, "nothing: there is no other engine"),
    "VLLM_ALL2ALL_BACKEND": (Engine.VLLM, "--all2all-backend"),
    "VLLM_FLASHINFER_MOE_BACKEND": (Engine.VLLM, "--moe-backend"),
    "VLLM_USE_FLASHINFER_MOE_FP16": (Engine.VLLM, "--moe-backend"),
    "VLLM_USE_FLASHINFER_MOE_FP8": (Engine.VLLM, "--moe-backend"),
    "VLLM_USE_FLASHINFER_MOE_FP4": (Engine.VLLM, "--moe-backend"),
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8": (
        Engine.VLLM,
        '--quantization-config \'{"moe":{"activation":"mxfp8"}}\'',
    ),
    "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16": (Engine.VLLM, "--moe-backend"),
    "VLLM_MXFP4_USE_MARLIN": (Engine.VLLM, "--moe-backend marlin"),
    "DYN_VLLM_IS_PREFILL_WORKER": (Engine.VLLM, "--disaggregation-mode prefill"),
    "DYN_VLLM_IS_DECODE_WORKER": (Engine.VLLM, "--disaggregation-mode decode"),
    "DYN_VLLM_KV_EVENT_PORT": (Engine.VLLM, "the endpoint in --kv-events-config"),
    "SGLANG_ENABLE_SPEC_V2": (Engine.SGLANG, "nothing: it is the default"),
    "DYN_USE_KV_EVENTS": (None, "DYN_ROUTER_USE_KV_EVENTS"),
}
# `_REMOVED_MULTIMODAL_ENV_VARS` of dynamo/{vllm,sglang}/backend_args.py.
REFUSED_VARIABLES = {
    "DYN_VLLM_MULTIMODAL_WORKER": (Engine.VLLM, "--enable-multimodal"),
    "DYN_VLLM_MULTIMODAL_ENCODE_WORKER": (Engine.VLLM, "--disaggregation-mode encode"),
    "DYN_VLLM_MULTIMODAL_DECODE_WORKER": (Engine.VLLM, "--disaggregation-mode decode"),
    "DYN_SGL_MULTIMODAL_WORKER": (Engine.SGLANG, "--enable-multimodal --dedicated-mm-encoder"),
    "DYN_SGL_MULTIMODAL_ENCODE_WORKER": (
        Engine.SGLANG,
        "--enable-multimodal --disaggregation-mode encode",
    ),
}
REMOVAL = ("nothing", "remove it", 1)
# An argument that is, or ends in, nothing but $NAME; `$ref` inside of JSON is text.
BARE_REFERENCE = re.compile(r"(?:^|=)(\$[A-Z_][A-Z0-9_]*)$")
TLS = {"tls-cert-path": "DYN_TLS_CERT_PATH", "tls-key-path": "DYN_TLS_KEY_PATH"}
OPERATORS = (
    "DYN_NAMESPACE_WORKER_SUFFIX",
    "DYN_PARENT_DGD_K8S_NAME",
    "DYN_PARENT_DGD_K8S_NAMESPACE",
    "DYN_NAMESPACE_PREFIX",
    "DYN_COMPONENT",
)


def launches(subject: Subject) -> Iterator[tuple[str, Launch, FlagTable]]:
    for component in subject.deployment.components:
        for launch in component.launches:
            table = flag_table(launch.module or "")
            if table is not None:
                yield component.name, launch, table


def given(subject: Subject) -> Iterator[tuple[str, Launch, FlagTable, Given]]:
    for name, launch, table in launches(subject):
        for one in table.read(launch.arguments):
            yield name, launch, table, one


def unknown_flag(subject: Subject) -> Iterable[Found]:
    for name, launch, table, one in given(subject):
        if one.flag is not None or one.spelling in GONE or one.spelling.startswith("--trtllm."):
            continue
        if "$" in one.spelling or not one.spelling.startswith("--"):
            continue
        if launch.module == "dynamo.frontend" and _processes_otherwise(launch):
            continue
        near = get_close_matches(one.spelling, list(table.by_spelling), n=1, cutoff=0.7)
        yield Found(
            at=At(name, "args", (one.spelling,)),
            message=f"{launch.module} has no flag {one.spelling}",
            fix=Fix(words=f"perhaps you meant {near[0]}" if near else "remove it"),
        )


def _processes_otherwise(launch: Launch) -> bool:
    """With an engine's chat processor the frontend takes that engine's flags too."""
    said = value(launch.arguments, "--dyn-chat-processor")
    return (said or launch.env.get("DYN_CHAT_PROCESSOR", "dynamo")) != "dynamo"


def unknown_file_key(subject: Subject) -> Iterable[Found]:
    """vLLM's and SGLang's file holds flags too."""
    for component in subject.deployment.components:
        config, engine = component.engine_config, component.engine
        if engine not in (Engine.VLLM, Engine.SGLANG) or not isinstance(config, KnownConfig):
            continue
        table = flag_table(f"dynamo.{engine}")
        for key in config.values if table else ():
            flag = f"--{str(key).replace('_', '-')}"
            if table is None or flag in table.by_spelling or flag in GONE:
                continue
            near = get_close_matches(flag, list(table.by_spelling), n=1, cutoff=0.7)
            yield Found(
                at=At(component.name, "config", (str(key),)),
                message=f"{engine} has no flag {flag}, and each key of its file is one",
                fix=Fix(words=f"perhaps you meant {near[0][2:]}" if near else "remove it"),
            )


def wrong_value(subject: Subject) -> Iterable[Found]:
    for name, launch, _, one in given(subject):
        flag, text = one.flag, one.text
        if flag is None or text is None or one.inner or "$" in text or "`" in text:
            continue
        if one.spelling in ("--dyn-tool-call-parser", "--dyn-reasoning-parser"):
            continue  # PS603 knows more about them
        if flag.choices and one.choice not in flag.choices and flag.takes == "one":
            near = get_close_matches(text, flag.choices, n=1)
            yield Found(
                at=At(name, "args", (one.spelling,)),
                message=f"{one.spelling} {text}: {launch.module} takes {', '.join(flag.choices)}",
                fix=Fix(words=f"perhaps you meant {near[0]}" if near else f"use {flag.choices[0]}"),
            )
        elif not one.reads:
            kind = KINDS.get(flag.kind, flag.kind.strip("_"))
            yield Found(
                at=At(name, "args", (one.spelling,)),
                message=f"{one.spelling} {text!r} is no {kind}",
                fix=Fix(words="write a value of that kind"),
            )


def wrong_file_value(subject: Subject) -> Iterable[Found]:
    """The same for the keys of vLLM's and SGLang's file."""
    for component in subject.deployment.components:
        config, engine = component.engine_config, component.engine
        if engine not in (Engine.VLLM, Engine.SGLANG) or not isinstance(config, KnownConfig):
            continue
        table = flag_table(f"dynamo.{engine}")
        for key, said in config.values.items() if table else ():
            flag = table.by_spelling.get(f"--{str(key).replace('_', '-')}") if table else None
            if flag is None or not flag.choices or flag.takes != "one" or said is None:
                continue
            if (
                Given(spelling=flag.spellings[0], flag=flag, text=str(said)).choice
                not in flag.choices
            ):
                near = get_close_matches(str(said), flag.choices, n=1)
                yield Found(
                    at=At(component.name, "config", (str(key),)),
                    message=f"{key}: {said}; {engine} takes {', '.join(flag.choices)}",
                    fix=Fix(words=f"perhaps you meant {near[0]}" if near else "use one of them"),
                )


def fallen_back(subject: Subject) -> Iterable[Found]:
    for component in subject.deployment.components:
        for launch in component.launches:
            if launch.module != "dynamo.vllm":
                continue
            said = read_settings(component, launch).get("all2all-backend")
            if said is not None and said.value in ("pplx", "naive"):
                yield Found(
                    at=said.at,
                    message=f"all2all-backend {said.value}: vLLM 0.31 takes it and uses another",
                    fix=Fix(
                        words="name one that it has",
                        config={"all2all-backend": "allgather_reducescatter"},
                    ),
                )


def gone_flag(subject: Subject) -> Iterable[Found]:
    for name, launch, _, one in given(subject):
        if one.spelling in GONE and one.flag is None:
            yield Found(
                at=At(name, "args", (one.spelling,)),
                message=f"{launch.module} no longer has {one.spelling}",
                fix=Fix(words=_instead(GONE[one.spelling])),
            )
        elif one.spelling == "--connector" and launch.module == "dynamo.vllm":
            yield Found(
                at=At(name, "args", (one.spelling,)),
                message="dynamo.vllm no longer takes --connector, even with none",
                fix=Fix(words="use --kv-transfer-config"),
            )


def deprecated_flag(subject: Subject) -> Iterable[Found]:
    for name, launch, _, one in given(subject):
        said = one.flag.deprecated.get(one.spelling) if one.flag else None
        if said:
            yield Found(
                at=At(name, "args", (one.spelling,)),
                message=f"{one.spelling} of {launch.module} is deprecated: {said}",
                fix=Fix(words="change it before the release that removes it"),
                level=Level.NOTE if said.startswith("the name is now") else None,
            )


def dead_variable(subject: Subject) -> Iterable[Found]:
    for component in subject.deployment.components:
        if component.role is Role.EPP:
            continue  # it reads DYN_USE_KV_EVENTS
        for launch in component.launches:
            for variable, (engine, instead) in DEAD_VARIABLES.items():
                if variable in launch.env and engine in (None, component.engine):
                    yield Found(
                        at=At(component.name, "env", (variable,)),
                        message=f"nothing reads {variable}",
                        fix=Fix(words=_instead(instead), env={variable: None}),
                    )


def _instead(what: str) -> str:
    """ "use --x", or "remove it: why" where nothing took its place."""
    return f"use {what}" if what.startswith(("-", "the", "DYN")) else what.replace(*REMOVAL)


def refused_variable(subject: Subject) -> Iterable[Found]:
    for component in subject.deployment.components:
        for launch in component.launches:
            for variable, (engine, instead) in REFUSED_VARIABLES.items():
                is_on = launch.env.get(variable, "").strip().lower() in ("true", "1", "yes", "on")
                if is_on and engine is component.engine:
                    yield Found(
                        at=At(component.name, "env", (variable,)),
                        message=f"{variable} is refused: its flag is gone",
                        fix=Fix(words=f"use {instead}", env={variable: None}),
                    )
            if "DYN_CONNECTOR" in launch.env and launch.module == "dynamo.vllm":
                yield Found(
                    at=At(component.name, "env", ("DYN_CONNECTOR",)),
                    message="dynamo.vllm refuses DYN_CONNECTOR",
                    fix=Fix(words="use --kv-transfer-config", env={"DYN_CONNECTOR": None}),
                )


def operators_variable(subject: Subject) -> Iterable[Found]:
    for component in subject.deployment.components:
        pod = subject.pods[component.name]
        for entries in pod.containers[0].env.env:
            values = entries.value if isinstance(entries.value, list) else []
            for entry in values:
                variable = entry.get("name") if isinstance(entry, dict) else None
                if variable in OPERATORS:
                    yield Found(
                        at=At(component.name, "env", (str(variable),)),
                        message=f"{variable} is the operator's to set",
                        fix=Fix(words="remove it", env={str(variable): None}),
                    )


def unexpanded(subject: Subject) -> Iterable[Found]:
    for component in subject.deployment.components:
        for launch in component.launches:
            for note in launch.unresolved:
                reference, _, why = note.partition(": ")
                if why.startswith("nothing replaces it") and not _from_elsewhere(launch, reference):
                    yield Found(
                        at=At(component.name, "args", (reference,)),
                        message=f"{reference} reaches the program as it is written",
                        fix=Fix(words=f"write $({reference.strip('${}()')}), or start a shell"),
                    )
            for argument in () if launch.shell else launch.arguments:
                if found := BARE_REFERENCE.search(argument):
                    yield Found(
                        at=At(component.name, "args", (argument,)),
                        message=f"{found[1]} reaches the program as it is written",
                        fix=Fix(words=f"write $({found[1][1:]}), or start a shell"),
                    )


def _from_elsewhere(launch: Launch, reference: str) -> bool:
    """`$(X)` that the operator's variables or a ConfigMap outside this file may hold."""
    if not reference.startswith("$("):
        return False
    unread = launch.secrets or any(
        note.startswith("the variables of") for note in launch.unresolved
    )
    return bool(unread) or reference[2:-1].startswith(("POD_", "DYN_", "DYNAMO_"))


def same_flag_twice(subject: Subject) -> Iterable[Found]:
    for name, launch, table in launches(subject):
        seen: dict[str, str | None] = {}
        for one in table.read(launch.arguments):
            flag = one.flag
            if flag is None or flag.takes != "one" or one.inner:
                continue
            if flag.name in seen and seen[flag.name] != one.text:
                yield Found(
                    at=At(name, "args", (one.spelling,)),
                    message=f"{one.spelling} {seen[flag.name]} and then {one.text}: the last wins",
                    fix=Fix(words="say it once"),
                )
            seen[flag.name] = one.text


def broken_tls(subject: Subject) -> Iterable[Found]:
    for component, launch, flags in subject.frontends:
        names = {one.flag.name for one in flags if one.flag}
        hidden = {note.partition(":")[0] for note in launch.unresolved}
        given = [
            flag if flag in names else variable
            for flag, variable in TLS.items()
            if flag in names or launch.env.get(variable) or variable in hidden
        ]
        if len(given) == 1:
            what = "args" if given[0] in names else "env"
            name = f"--{given[0]}" if what == "args" else given[0]
            yield Found(
                at=At(component.name, what, (name,)),
                message=f"only {name}: TLS needs certificate and key",
                fix=Fix(
                    words="give both",
                    args=(
                        "--tls-cert-path",
                        "/etc/tls/tls.crt",
                        "--tls-key-path",
                        "/etc/tls/tls.key",
                    ),
                ),
            )


RULES = (
    Rule(
        id="PS141",
        title="a flag that does not exist",
        level=Level.ERROR,
        cause="The module's parser has no such flag.",
        effect="The process ends with “unrecognized arguments”, in a crash loop.",
        remedy="Use the nearest name.",
        source="parsers of ai-dynamo 1.6.1, vLLM 0.31.0 and SGLang 0.5.21, dumped to tables",
        judge=unknown_flag,
    ),
    Rule(
        id="PS142",
        title="a key in vLLM's or SGLang's file that is no flag",
        level=Level.ERROR,
        cause="Each key of --config becomes a flag, and there is none of that name.",
        effect="The process ends with “unrecognized arguments”.",
        remedy="Use the flag's name without dashes in front.",
        source="vllm/utils/argparse_utils.py 0.31.0; sglang/srt/utils 0.5.21",
        judge=unknown_file_key,
    ),
    Rule(
        id="PS143",
        title="a value that the flag does not take",
        level=Level.ERROR,
        cause="The value is not among the flag's choices, or of another kind.",
        effect="The process ends with a message of its parser.",
        remedy="Use one of the values.",
        source="parsers of ai-dynamo 1.6.1, vLLM 0.31.0 and SGLang 0.5.21, dumped to tables",
        judge=lambda subject: [*wrong_value(subject), *wrong_file_value(subject)],
    ),
    Rule(
        id="PS153",
        title="an all-to-all backend that is gone",
        level=Level.WARNING,
        cause="pplx and naive are still among vLLM's choices and fall back.",
        effect="Only a warning in the log; experts communicate in another way than meant.",
        remedy="Name one that is there.",
        source="llm-d#855; vllm/config/parallel.py 0.31.0",
        judge=fallen_back,
    ),
    Rule(
        id="PS144",
        title="a flag that is gone",
        level=Level.ERROR,
        cause="The flag was removed in an earlier release; published recipes still have it.",
        effect="The process ends with “unrecognized arguments”, in a crash loop.",
        remedy="Use what took its place.",
        source="dynamo#12089, dynamo#6513, dynamo#11831, dynamo#11887, dynamo#8693; sglang#8658; "
        "SGLang 0.5.21's parser",
        judge=gone_flag,
    ),
    Rule(
        id="PS145",
        title="a deprecated flag",
        level=Level.WARNING,
        cause="The parser accepts the flag and says that it will go.",
        effect="The next release but one refuses the command line.",
        remedy="Use what its help names.",
        source="help texts of the parsers of ai-dynamo 1.6.1 and SGLang 0.5.21",
        judge=deprecated_flag,
    ),
    Rule(
        id="PS146",
        title="a variable that nothing reads",
        level=Level.WARNING,
        cause="The variable was replaced by a flag or a default.",
        effect="The setting silently does not happen: on B200, vLLM 0.31 computes gpt-oss's "
        "experts "
        "in bf16 although the recipes ask for MXFP8.",
        remedy="Use the flag.",
        source="vllm#50292, vllm#27798, vllm#43148, vllm#33535, dynamo#7591, dynamo#12089, "
        "dynamo#13840; no "
        "occurrence in the wheels",
        judge=dead_variable,
    ),
    Rule(
        id="PS147",
        title="a variable that ends the process",
        level=Level.ERROR,
        cause="Dynamo refuses the variable that an older release read.",
        effect="A crash loop.",
        remedy="Use --enable-multimodal, --disaggregation-mode, --kv-transfer-config.",
        source="_REMOVED_MULTIMODAL_ENV_VARS in dynamo/vllm/backend_args.py and "
        "dynamo/sglang/backend_args.py of 1.6.1; dynamo#6513",
        judge=refused_variable,
    ),
    Rule(
        id="PS148",
        title="a variable of the operator's",
        level=Level.WARNING,
        cause="The operator sets these for each generation of workers.",
        effect="Generations mix, or workers register where no frontend looks.",
        remedy="Remove it.",
        source="component_worker.go, component_frontend.go@132ccbe3",
        judge=operators_variable,
    ),
    Rule(
        id="PS149",
        title="a variable that nothing expands",
        level=Level.ERROR,
        cause="$NAME stands in arguments that no shell reads; Kubernetes expands $(NAME) alone.",
        effect="The program gets the text itself, “$MODEL” as a model's id.",
        remedy="Write $(NAME).",
        source="dynamo#3772; Kubernetes, pods/inject-data-application",
        judge=unexpanded,
    ),
    Rule(
        id="PS150",
        title="a flag given twice",
        level=Level.WARNING,
        cause="The same flag stands twice with different values.",
        effect="The last one wins, whichever was meant.",
        remedy="Say it once.",
        source="Python's argparse",
        judge=same_flag_twice,
    ),
    Rule(
        id="PS151",
        title="TLS by half",
        level=Level.ERROR,
        cause="The frontend has a certificate without its key, or the other way round.",
        effect="The frontend ends at its start.",
        remedy="Give both.",
        source="dynamo/frontend/frontend_args.py of 1.6.1",
        judge=broken_tls,
    ),
)
