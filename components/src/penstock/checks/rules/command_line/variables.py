"""Rules of environment variables, and of what expands them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.command_line.flags import instead_of
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Launch, Role
from penstock.serving.deployment import ServingDeployment

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
BARE_REFERENCE = re.compile(r"(?:^|=)(\$[A-Z_][A-Z0-9_]*)$")
OPERATORS = (
    "DYN_NAMESPACE_WORKER_SUFFIX",
    "DYN_PARENT_DGD_K8S_NAME",
    "DYN_PARENT_DGD_K8S_NAMESPACE",
    "DYN_NAMESPACE_PREFIX",
    "DYN_COMPONENT",
)


@rule(
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
)
def dead_variable(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        if component.role is Role.EPP:
            continue  # it reads DYN_USE_KV_EVENTS
        for launch in component.launches:
            for variable, (engine, instead) in DEAD_VARIABLES.items():
                if variable in launch.env and engine in (None, component.engine):
                    yield RuleResult(
                        location=Location(component.name, "env", (variable,)),
                        message=f"nothing reads {variable}",
                        fix=Fix(text=instead_of(instead), env={variable: None}),
                    )


@rule(
    id="PS147",
    title="a variable that ends the process",
    level=Level.ERROR,
    cause="Dynamo refuses the variable that an older release read.",
    effect="A crash loop.",
    remedy="Use --enable-multimodal, --disaggregation-mode, --kv-transfer-config.",
    source="_REMOVED_MULTIMODAL_ENV_VARS in dynamo/vllm/backend_args.py and "
    "dynamo/sglang/backend_args.py of 1.6.1; dynamo#6513",
)
def refused_variable(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        for launch in component.launches:
            for variable, (engine, instead) in REFUSED_VARIABLES.items():
                is_on = launch.env.get(variable, "").strip().lower() in ("true", "1", "yes", "on")
                if is_on and engine is component.engine:
                    yield RuleResult(
                        location=Location(component.name, "env", (variable,)),
                        message=f"{variable} is refused: its flag is gone",
                        fix=Fix(text=f"use {instead}", env={variable: None}),
                    )
            if "DYN_CONNECTOR" in launch.env and launch.module == "dynamo.vllm":
                yield RuleResult(
                    location=Location(component.name, "env", ("DYN_CONNECTOR",)),
                    message="dynamo.vllm refuses DYN_CONNECTOR",
                    fix=Fix(text="use --kv-transfer-config", env={"DYN_CONNECTOR": None}),
                )


@rule(
    id="PS148",
    title="a variable of the operator's",
    level=Level.WARNING,
    cause="The operator sets these for each generation of workers.",
    effect="Generations mix, or workers register where no frontend looks.",
    remedy="Remove it.",
    source="component_worker.go, component_frontend.go@132ccbe3",
)
def operators_variable(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        pod = deployment.pods[component.name]
        for entries in pod.containers[0].env.env:
            values = entries.value if isinstance(entries.value, list) else []
            for entry in values:
                variable = entry.get("name") if isinstance(entry, dict) else None
                if variable in OPERATORS:
                    yield RuleResult(
                        location=Location(component.name, "env", (str(variable),)),
                        message=f"{variable} is the operator's to set",
                        fix=Fix(text="remove it", env={str(variable): None}),
                    )


@rule(
    id="PS149",
    title="a variable that nothing expands",
    level=Level.ERROR,
    cause="$NAME stands in arguments that no shell reads; Kubernetes expands $(NAME) alone.",
    effect="The program gets the text itself, “$MODEL” as a model's id.",
    remedy="Write $(NAME).",
    source="dynamo#3772; Kubernetes, pods/inject-data-application",
)
def unexpanded(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        for launch in component.launches:
            for reference in launch.unexpanded:
                if not _from_elsewhere(launch, reference):
                    yield RuleResult(
                        location=Location(component.name, "args", (reference,)),
                        message=f"{reference} reaches the program as it is written",
                        fix=Fix(text=_expanding(reference)),
                    )
            for argument in () if launch.shell else launch.arguments:
                if found := BARE_REFERENCE.search(argument):
                    yield RuleResult(
                        location=Location(component.name, "args", (argument,)),
                        message=f"{found[1]} reaches the program as it is written",
                        fix=Fix(text=f"write $({found[1][1:]}), or start a shell"),
                    )


def _expanding(reference: str) -> str:
    name = reference.strip("${}()")
    if reference.startswith("$("):
        return f"define {name} in the container's env, above what uses it"
    return f"write $({name}), or start a shell"


def _from_elsewhere(launch: Launch, reference: str) -> bool:
    """`$(X)` that the operator's variables or a ConfigMap outside this file may hold."""
    if not reference.startswith("$("):
        return False
    unread = bool(launch.secrets) or launch.has_unread_variables
    return unread or reference[2:-1].startswith(("POD_", "DYN_", "DYNAMO_"))
