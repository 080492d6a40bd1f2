"""Rules of what clients get: parsers, names, chat processing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.responses.parsers import REASONING, TOOL_CALL
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Role
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

REASONING_FLAG, TOOL_FLAG = "--dyn-reasoning-parser", "--dyn-tool-call-parser"
HARMONY_VOCABULARY = 201088
HARMONY = {REASONING_FLAG: "gpt_oss", TOOL_FLAG: "harmony"}


def serving(deployment: ServingDeployment) -> Iterator[Worker]:
    """One worker of each component, as its model card reaches the frontend."""
    seen = set()
    for worker in deployment.workers:
        if worker.name not in seen and worker.engine is not Engine.MOCKER:
            seen.add(worker.name)
            yield worker


def parser(worker: Worker, flag: str) -> str | None:
    variable = "DYN_" + flag.removeprefix("--dyn-").replace("-", "_").upper()
    given = worker.flag(flag)
    return given.text if given is not None else worker.env(variable)


def _writes_harmony(deployment: ServingDeployment) -> bool:
    """gpt-oss with its own vocabulary; test models of its architecture have others."""
    model = deployment.model
    return model is not None and model.is_gpt_oss and model.vocabulary == HARMONY_VOCABULARY


@rule(
    id="PS601",
    title="several tokens a message with harmony",
    level=Level.ERROR,
    cause="stream_interval above 1 hands the harmony parsers several tokens at once.",
    effect="`to=functions…` appears in the text and tool calls are lost. NVIDIA's recipe has 20.",
    remedy="stream_interval: 1.",
    source="dynamo#6664, dynamo#10054, dynamo#10366",
)
def batched_stream(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in serving(deployment):
        key = "stream_interval" if worker.is_trtllm else "stream-interval"
        interval = positive_int(worker.get(key)) or 1
        harmony = [name for flag, name in HARMONY.items() if parser(worker, flag) == name]
        if interval > 1 and harmony and worker.role is not Role.PREFILL:  # it writes one token
            yield RuleResult(
                location=worker.config(key),
                message=f"stream_interval {interval} with the parsers {', '.join(harmony)}",
                fix=Fix(text="one token a message", config={key: 1}),
            )


@rule(
    id="PS602",
    title="gpt-oss without its parsers",
    level=Level.ERROR,
    cause="gpt-oss answers in the harmony format; without the parsers gpt_oss and harmony "
    "nothing takes it apart.",
    effect="Reasoning stands in the answer, tool calls are text.",
    remedy="--dyn-reasoning-parser gpt_oss --dyn-tool-call-parser harmony on the workers.",
    source="docs/backends/trtllm/gpt-oss.md@03e49489; TensorRT-LLM#9256",
)
def no_parsers(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in serving(deployment):
        if not _writes_harmony(deployment) or worker.role is Role.DECODE:
            continue
        kinds = worker.flag("--endpoint-types", "--dyn-endpoint-types")
        if kinds is not None and "chat" not in (kinds.text or ""):
            continue  # raw completions are wanted
        for flag, name in HARMONY.items():
            said = parser(worker, flag)
            field = "reasoning_parser" if flag == REASONING_FLAG else "tool_call_parser"
            if said != name:
                yield RuleResult(
                    location=worker.location("args", flag),
                    message=f"{flag} is {said or 'unset'}, and gpt-oss writes the harmony format",
                    fix=Fix(text=f"set {name}", args=(flag, name), graph={f"model.{field}": name}),
                    level=Level.WARNING if said is None else None,
                )


@rule(
    id="PS603",
    title="a parser that Dynamo does not have",
    level=Level.ERROR,
    cause="The name is not among the release's parsers.",
    effect="The worker ends when it registers; before 1.5, tool calls silently vanished.",
    remedy="Use one of the names.",
    source="dynamo#13818; get_tool_parser_names of ai-dynamo 1.6.1",
)
def unknown_parser(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in serving(deployment):
        for flag, names in ((REASONING_FLAG, REASONING), (TOOL_FLAG, TOOL_CALL)):
            said = parser(worker, flag)
            if said and "$" not in said and said not in names:
                yield RuleResult(
                    location=worker.location("args", flag),
                    message=f"{flag} {said} is not in Dynamo 1.6.1",
                    fix=_nearest(flag, said, names),
                )


def _nearest(flag: str, said: str, names: Iterable[str]) -> Fix:
    near = get_close_matches(said, sorted(names), n=1)
    if not near:
        return Fix(text=f"one of {', '.join(sorted(names))}")
    return Fix(text=f"did you mean {near[0]}?", args=(flag, near[0]))


@rule(
    id="PS604",
    title="parsers that differ between the pools",
    level=Level.ERROR,
    cause="Parsers are part of the model card, and the frontend takes one card for a model.",
    effect="The second pool's workers are rejected: MDC checksum differs.",
    remedy="The same flags on both pools.",
    source="model deployment cards in Dynamo's runtime (MDC checksum); cf. dynamo#12796",
)
def other_parsers(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        for flag in HARMONY:
            first, second = parser(prefill, flag), parser(decode, flag)
            if first != second:
                behind = decode if first else prefill
                yield RuleResult(
                    location=behind.location("args", flag),
                    message=f"{flag} is {second or 'unset'} on {decode.name}, "
                    f"{first or 'unset'} on "
                    f"{prefill.name}",
                    fix=Fix(text="the same on both", args=(flag, first or second or "")),
                )


@rule(
    id="PS605",
    title="gpt-oss with another chat processor",
    level=Level.ERROR,
    cause="--dyn-chat-processor vllm or sglang does not render harmony.",
    effect="Harmony tokens leak, or requests fail.",
    remedy="Leave the flag out.",
    source="dynamo#14936, TensorRT-LLM#9256",
)
def other_processor(deployment: ServingDeployment) -> Iterable[RuleResult]:
    said = deployment.router_setting("--dyn-chat-processor", "DYN_CHAT_PROCESSOR")
    if said is not None and str(said.value) != "dynamo" and _writes_harmony(deployment):
        yield RuleResult(
            location=said.location,
            message=f"chat processor {said.value} with gpt-oss",
            fix=Fix(text="use Dynamo's, the default", args=("--dyn-chat-processor", "dynamo")),
        )


@rule(
    id="PS606",
    title="a vocabulary fetched at the first request",
    level=Level.NOTE,
    cause="The harmony parsers need o200k_base.tiktoken and download it when first used.",
    effect="Without a network: status 200, no reasoning, and a tool call becomes an empty answer.",
    remedy="Stage the file and set TIKTOKEN_ENCODINGS_BASE (model.harmony_vocabulary).",
    source="components/verify.md; recipes/gpt-oss-120b/README.md@0e72f06c",
)
def no_vocabulary(deployment: ServingDeployment) -> Iterable[RuleResult]:
    uses = any(
        parser(w, flag) == name for w in serving(deployment) for flag, name in HARMONY.items()
    )
    for component, launch, _ in deployment.frontends if uses else ():
        if not launch.env.get("TIKTOKEN_ENCODINGS_BASE"):
            said = launch.env.get("HF_HUB_OFFLINE", "").lower()
            offline = said in ("1", "true", "yes", "on")
            yield RuleResult(
                location=Location(component.name, "env", ("TIKTOKEN_ENCODINGS_BASE",)),
                message="the harmony parsers download o200k_base.tiktoken at the first request"
                + (", and HF_HUB_OFFLINE says that there is no network" if offline else ""),
                fix=Fix(
                    text="stage the file and name its folder",
                    env={"TIKTOKEN_ENCODINGS_BASE": "/opt/model-cache/harmony"},
                    graph={"model.harmony_vocabulary": "/opt/model-cache/harmony"},
                ),
                level=Level.WARNING if offline else None,
            )
            return


@rule(
    id="PS607",
    title="two names for one model",
    level=Level.ERROR,
    cause="Prefill and decode register different model names.",
    effect="The frontend sees two models, each with half a pool: 503.",
    remedy="The same --served-model-name.",
    source="dynamo/frontend (model discovery) of 1.6.1",
)
def other_name(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        first, second = _served(prefill), _served(decode)
        if first and second and first != second:
            yield RuleResult(
                location=decode.location("args", "--served-model-name"),
                message=f"{decode.name} serves {second}, {prefill.name} {first}",
                fix=Fix(text="one name", args=("--served-model-name", first)),
            )


def _served(worker: Worker) -> str | None:
    given = worker.flag("--served-model-name", "--model-name")
    said = given.text if given is not None else _first(worker.get("served-model-name"))
    found = worker.settings.common("model")
    return said or (str(found.value) if found else None)


def _first(value: Any) -> str | None:
    """vLLM takes several names; the first is the one it answers with."""
    found = value[0] if isinstance(value, list) and value else value
    return found if isinstance(found, str) else None


@rule(
    id="PS608",
    title="a colon in SGLang's model name",
    level=Level.ERROR,
    cause="SGLang separates LoRA names with it.",
    effect="An assertion at the start.",
    remedy="Another character.",
    source="sglang#12745",
)
def colon_in_name(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in serving(deployment):
        name = _served(worker) or ""
        if worker.engine is Engine.SGLANG and ":" in name:
            yield RuleResult(
                location=worker.location("args", "--served-model-name"),
                message=f"served name {name}",
                fix=Fix(
                    text="write it without a colon",
                    args=("--served-model-name", name.replace(":", "-")),
                    graph={"model.served_name": name.replace(":", "-")},
                ),
            )


@rule(
    id="PS609",
    title="SGLang's tool parser beside Dynamo's",
    level=Level.ERROR,
    cause="Both construct tool calls; reasoning parsers may be paired.",
    effect="The worker ends with an error.",
    remedy="Keep Dynamo's.",
    source="dynamo#5849; dynamo/sglang/args.py 725 of 1.6.1",
)
def two_tool_parsers(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in serving(deployment):
        own = "tool-call-parser"
        if worker.engine is Engine.SGLANG and worker.get(own) and parser(worker, TOOL_FLAG):
            yield RuleResult(
                location=worker.config(own),
                message=f"both --{own} and {TOOL_FLAG}",
                fix=Fix(text=f"keep {TOOL_FLAG}"),
            )


@rule(
    id="PS610",
    title="images through a disaggregated TensorRT-LLM graph",
    level=Level.WARNING,
    cause="Multimodal requests across pods fail; the graph serves text alone.",
    effect="Requests with images fail.",
    remedy="An aggregated pool for them.",
    source="Dynamo 1.2 known issues",
)
def multimodal_disagg(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.pool(Role.PREFILL, Role.DECODE):
        modality = worker.flag("--modality")
        switch = worker.flag("--enable-multimodal")
        wants = (switch and switch.value) or (modality and modality.text == "multimodal")
        if worker.is_trtllm and wants and deployment.is_disaggregated:
            yield RuleResult(
                location=worker.location("args", "--modality"),
                message=f"{worker.name} takes images in a disaggregated graph",
                fix=Fix(text="serve text alone, or one aggregated pool"),
            )
