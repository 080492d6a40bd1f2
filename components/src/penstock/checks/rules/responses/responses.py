"""Rules about responses: output parsers, model names and chat processing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from packaging.version import Version

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.responses.parsers import REASONING, TOOL_CALL
from penstock.checks.version_range import AGREEMENT, DYNAMO, Versions
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Role
from penstock.nearest import nearest
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import software
from penstock.serving.worker import Worker

REASONING_FLAG, TOOL_FLAG = "--dyn-reasoning-parser", "--dyn-tool-call-parser"
HARMONY_VOCABULARY = 201088
HARMONY = {REASONING_FLAG: "gpt_oss", TOOL_FLAG: "harmony"}


def parser(worker: Worker, flag: str) -> str | None:
    variable = "DYN_" + flag.removeprefix("--dyn-").replace("-", "_").upper()
    given = worker.flag(flag)
    return given.text if given is not None else worker.env(variable)


def writes_harmony(deployment: ServingDeployment) -> bool:
    """Whether it is gpt-oss with its own vocabulary; test models have other vocabularies."""
    model = deployment.model
    return model is not None and model.is_gpt_oss and model.vocabulary == HARMONY_VOCABULARY


@rule(
    id="PS601",
    title="stream_interval above 1 with the harmony parsers",
    level=Level.ERROR,
    cause="With stream_interval above 1, the harmony parsers get several tokens at once.",
    effect="`to=functions…` appears in the text and tool calls are lost.",
    example="NVIDIA's recipe sets 20.",
    remedy="Set stream_interval to 1.",
    source="dynamo#6664 (seen with 0.9, still open); dynamo#10054 and dynamo#10366 changed the "
    "parser in 1.3, without a report whether that solves it",
    versions=DYNAMO,
    other_levels=(Level.WARNING,),
)
def batched_stream(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        key = "stream_interval" if worker.is_trtllm else "stream-interval"
        interval = positive_int(worker.get(key)) or 1
        harmony = [name for flag, name in HARMONY.items() if parser(worker, flag) == name]
        if interval > 1 and harmony and worker.role is not Role.PREFILL:  # writes one token
            yield RuleResult(
                location=worker.config_location(key),
                message=f"stream_interval is {interval}, which breaks the parsers "
                f"{', '.join(harmony)}",
                fix=Fix(text=f"Set {key} to 1.", config={key: 1}),
                versions=Versions(dynamo="<1.3"),
            )
            yield RuleResult(
                location=worker.config_location(key),
                message=f"stream_interval is {interval}, which broke the parsers "
                f"{', '.join(harmony)} before Dynamo 1.3",
                fix=Fix(text=f"Set {key} to 1, or test tool calls.", config={key: 1}),
                level=Level.WARNING,
                versions=Versions(dynamo=">=1.3"),
            )


@rule(
    id="PS603",
    title="unknown parser",
    level=Level.ERROR,
    cause="The release has no parser of this name.",
    effect="The worker exits at startup, or when it registers. Before 1.5, a worker whose "
    "parser a variable names loses tool calls without a message.",
    remedy="Use one of Dynamo's parser names.",
    source="dynamo#13818; get_reasoning_parser_names and get_tool_parser_names of "
    "ai-dynamo-runtime 0.5.1 to 1.7.0, which are the choices of the flags",
    versions=DYNAMO,
    other_levels=(Level.WARNING, Level.NOTE),
    exceptions="A name that only later releases have is reported for older images. It is a note "
    "for builds shortly before the release that adds it.",
)
def unknown_parser(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        for flag, names in ((REASONING_FLAG, REASONING), (TOOL_FLAG, TOOL_CALL)):
            name = parser(worker, flag)
            if not name or "$" in name:
                continue
            first = names.get(name)
            since = f" before Dynamo {first}" if first else ""
            yield RuleResult(
                location=worker.location("args", flag),
                message=f"{flag} has no parser {name}{since}",
                fix=Fix(text=f"Use an image with Dynamo {first}.")
                if first
                else _use_nearest(flag, name, names),
                versions=Versions(dynamo=f"<{first}") if first else None,
                level=Level.WARNING if first and _precedes(worker, first) else None,
            )


def _precedes(worker: Worker, release: str) -> bool:
    """Whether the image is a build before the release, and may already have what it adds."""
    later = software(worker.pod).later
    return later is not None and Version(later.dynamo) >= Version(release)


def _use_nearest(flag: str, name: str, names: Iterable[str]) -> Fix:
    close = nearest(name, sorted(names))
    if not close:
        return Fix(text=f"Use one of {', '.join(sorted(names))}.")
    return Fix(text=f"Use {flag} {close}.", args=(flag, close))


@rule(
    id="PS604",
    title="the pools use different parsers",
    level=Level.WARNING,
    cause="The parsers are part of the model card, and the frontend accepts one card per model.",
    effect="The frontend may reject the workers of the second pool (MDC checksum differs).",
    remedy="Set the same flags on both pools.",
    source="model deployment cards in Dynamo's runtime (MDC checksum); cf. dynamo#12796",
    versions=AGREEMENT,
)
def different_parsers(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        for flag in HARMONY:
            first, second = parser(prefill, flag), parser(decode, flag)
            if first != second:
                lacking = decode if first else prefill
                yield RuleResult(
                    location=lacking.location("args", flag),
                    message=f"{flag} is {second or 'unset'} on {decode.name}, but "
                    f"{first or 'unset'} on {prefill.name}",
                    fix=Fix(
                        text=f"Set the same {flag} on both pools.",
                        args=(flag, first or second or ""),
                    ),
                )


@rule(
    id="PS605",
    title="gpt-oss with a chat processor other than Dynamo's",
    level=Level.ERROR,
    cause="--dyn-chat-processor vllm or sglang does not render harmony.",
    effect="Harmony tokens appear in the response, or requests fail.",
    remedy="Remove --dyn-chat-processor.",
    source="dynamo#14936, TensorRT-LLM#9256",
    versions=DYNAMO,
    engines=(Engine.VLLM, Engine.SGLANG),
)
def other_processor(deployment: ServingDeployment) -> Iterable[RuleResult]:
    processor = deployment.router_setting("--dyn-chat-processor", "DYN_CHAT_PROCESSOR")
    if processor is not None and str(processor.value) != "dynamo" and writes_harmony(deployment):
        yield RuleResult(
            location=processor.location,
            message=f"the chat processor {processor.value} does not support gpt-oss",
            fix=Fix(
                text="Use Dynamo's chat processor, which is the default.",
                args=("--dyn-chat-processor", "dynamo"),
            ),
        )


@rule(
    id="PS606",
    title="the harmony vocabulary is downloaded at the first request",
    level=Level.NOTE,
    cause="The harmony parsers need o200k_base.tiktoken and download it at the first use.",
    effect="Without a network, responses have status 200 but no reasoning, and a tool call "
    "becomes an "
    "empty response.",
    remedy="Put the file on a volume and set TIKTOKEN_ENCODINGS_BASE (model.harmony_vocabulary).",
    source="docs/verify.md; recipes/gpt-oss-120b/README.md@0e72f06c; the variable in the runtime "
    "of 0.5.1 and later",
    versions=DYNAMO,
    other_levels=(Level.WARNING,),
)
def no_vocabulary(deployment: ServingDeployment) -> Iterable[RuleResult]:
    uses_harmony = any(
        parser(w, flag) == name
        for w in deployment.one_worker_per_component
        for flag, name in HARMONY.items()
    )
    for component, launch, _ in deployment.frontends if uses_harmony else ():
        if not launch.env.get("TIKTOKEN_ENCODINGS_BASE"):
            value = launch.env.get("HF_HUB_OFFLINE", "").lower()
            is_offline = value in ("1", "true", "yes", "on")
            yield RuleResult(
                location=Location(component.name, "env", ("TIKTOKEN_ENCODINGS_BASE",)),
                message="the harmony parsers download o200k_base.tiktoken at the first request"
                + (", but HF_HUB_OFFLINE is set" if is_offline else ""),
                fix=Fix(
                    text="Put the file on a volume and set TIKTOKEN_ENCODINGS_BASE to its folder.",
                    env={"TIKTOKEN_ENCODINGS_BASE": "/opt/model-cache/encodings"},
                    graph={"model.harmony_vocabulary": "/opt/model-cache/encodings"},
                ),
                level=Level.WARNING if is_offline else None,
            )
            return


@rule(
    id="PS607",
    title="the pools serve different model names",
    level=Level.ERROR,
    cause="Prefill and decode register different model names.",
    effect="The frontend sees two models, each with only one pool, and responds with 503.",
    remedy="Set the same --served-model-name on both pools.",
    source="dynamo/frontend (model discovery) of 1.6.1",
    versions=AGREEMENT,
)
def different_model_names(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        first, second = served_name(prefill), served_name(decode)
        if first and second and first != second:
            yield RuleResult(
                location=decode.location("args", "--served-model-name"),
                message=f"{decode.name} serves {second}, but {prefill.name} serves {first}",
                fix=Fix(
                    text=f"Set --served-model-name {first} on both.",
                    args=("--served-model-name", first),
                ),
            )


def served_name(worker: Worker) -> str | None:
    given = worker.flag("--served-model-name", "--model-name")
    name = given.text if given is not None else _first(worker.get("served-model-name"))
    model = worker.settings.common("model")
    return name or (str(model.value) if model else None)


def _first(value: Any) -> str | None:
    """vLLM accepts several names; responses contain the first."""
    name = value[0] if isinstance(value, list) and value else value
    return name if isinstance(name, str) else None


@rule(
    id="PS608",
    title="colon in SGLang's model name",
    level=Level.ERROR,
    cause="SGLang uses the colon to separate LoRA names.",
    effect="SGLang fails an assertion at startup.",
    remedy="Use another character.",
    source="sglang#12745",
    versions=Versions(sglang=">=0.5.6"),
)
def colon_in_name(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        name = served_name(worker) or ""
        if worker.engine is Engine.SGLANG and ":" in name:
            yield RuleResult(
                location=worker.location("args", "--served-model-name"),
                message=f"the served model name {name} contains a colon",
                fix=Fix(
                    text="Replace the colon in the model name.",
                    args=("--served-model-name", name.replace(":", "-")),
                    graph={"model.served_name": name.replace(":", "-")},
                ),
            )


@rule(
    id="PS609",
    title="two tool-call parsers",
    level=Level.ERROR,
    cause="SGLang's and Dynamo's tool-call parsers are both set. (Reasoning parsers may be "
    "combined.)",
    effect="The worker exits with an error.",
    remedy="Keep only Dynamo's parser.",
    source="dynamo#5849; dynamo/sglang/args.py of 1.0.2 to 1.6.1 (0.9 only logs a warning)",
    versions=Versions(dynamo=">=1.0"),
    engines=(Engine.SGLANG,),
)
def two_tool_parsers(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        own = "tool-call-parser"
        if worker.engine is Engine.SGLANG and worker.get(own) and parser(worker, TOOL_FLAG):
            yield RuleResult(
                location=worker.config_location(own),
                message=f"both --{own} and {TOOL_FLAG} are set",
                fix=Fix(text=f"Remove --{own}."),
            )


@rule(
    id="PS610",
    title="multimodal input with disaggregated TensorRT-LLM",
    level=Level.WARNING,
    cause="Disaggregated TensorRT-LLM serves only text; multimodal requests across pods fail.",
    effect="Requests with images fail.",
    remedy="Serve them with an aggregated pool.",
    source="Dynamo 1.2 known issues",
    versions=Versions(dynamo=">=1.2,<1.3"),
    engines=(Engine.TRTLLM,),
)
def multimodal_disagg(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.pool(Role.PREFILL, Role.DECODE):
        modality = worker.flag("--modality")
        switch = worker.flag("--enable-multimodal")
        is_multimodal = (switch and switch.value) or (modality and modality.text == "multimodal")
        if worker.is_trtllm and is_multimodal and deployment.is_disaggregated:
            yield RuleResult(
                location=worker.location("args", "--modality"),
                message=f"{worker.name} accepts images in a disaggregated graph",
                fix=Fix(text="Serve only text, or use one aggregated pool."),
            )
