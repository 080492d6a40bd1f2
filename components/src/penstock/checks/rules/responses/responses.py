"""Rules about responses: output parsers, model names and chat processing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from packaging.version import Version

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.responses.parsers import REASONING, TOOL_CALL
from penstock.checks.version_range import Versions
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


def two_tool_parsers(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        own = "tool-call-parser"
        if worker.engine is Engine.SGLANG and worker.get(own) and parser(worker, TOOL_FLAG):
            yield RuleResult(
                location=worker.config_location(own),
                message=f"both --{own} and {TOOL_FLAG} are set",
                fix=Fix(text=f"Remove --{own}."),
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
