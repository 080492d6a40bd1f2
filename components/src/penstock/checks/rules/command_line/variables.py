"""Rules about environment variables and their expansion in arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from packaging.version import Version

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.command_line.connector_flag import instead_of_variable
from penstock.checks.rules.versions.placeholders import is_template
from penstock.checks.version_range import UNCHANGED, Versions
from penstock.engines.flags import Removed
from penstock.engines.releases import NEWEST, RELEASES
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Launch, Role
from penstock.manifests.pods import Pod
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import software


@dataclass(frozen=True, kw_only=True)
class Ignored:
    """A variable that nothing reads any more."""

    # None: of any component.
    engine: Engine | None
    # Where no file of the wheel names it.
    versions: Versions
    instead: Removed
    # Values that the flag which replaced it no longer has, and the first version without each.
    gone: Mapping[str, str] = field(default_factory=dict)


def _vllm(
    since: str, replacement: str = "", reason: str = "", gone: Mapping[str, str] | None = None
) -> Ignored:
    return Ignored(
        engine=Engine.VLLM,
        versions=Versions(vllm=f">={since}"),
        instead=Removed(replacement, reason),
        gone=gone or {},
    )


_NO_ATTENTION_BACKEND = {
    "CUTLASS_MLA_VLLM_V1": "0.11",
    "FLASHINFER_VLLM_V1": "0.11",
    "FLASHMLA_VLLM_V1": "0.11",
    "FLASH_ATTN_VLLM_V1": "0.11",
    "TRITON_ATTN_VLLM_V1": "0.11",
    "TRITON_MLA_VLLM_V1": "0.11",
    "DIFFERENTIAL_FLASH_ATTN": "0.12",
    "DUAL_CHUNK_FLASH_ATTN": "0.12",
    "XFORMERS": "0.12",
    "TREE_ATTN": "0.21",
}
# The parser accepts them, and vLLM logs that it uses allgather_reducescatter instead.
_NO_ALL2ALL_BACKEND = {"pplx": "0.17", "naive": "0.19"}
VARIABLES_WITHOUT_EFFECT: Mapping[str, Ignored] = {
    "VLLM_ATTENTION_BACKEND": _vllm("0.15", "--attention-backend", gone=_NO_ATTENTION_BACKEND),
    "VLLM_USE_V1": _vllm("0.12", reason="vLLM has no other engine version"),
    "VLLM_ALL2ALL_BACKEND": _vllm("0.16", "--all2all-backend", gone=_NO_ALL2ALL_BACKEND),
    "VLLM_FLASHINFER_MOE_BACKEND": _vllm("0.24", "--moe-backend"),
    "VLLM_USE_FLASHINFER_MOE_FP16": _vllm("0.24", "--moe-backend"),
    "VLLM_USE_FLASHINFER_MOE_FP8": _vllm("0.24", "--moe-backend"),
    "VLLM_USE_FLASHINFER_MOE_FP4": _vllm("0.24", "--moe-backend"),
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8": _vllm(
        "0.24", '--quantization-config \'{"moe":{"activation":"mxfp8"}}\''
    ),
    "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16": _vllm("0.24", "--moe-backend"),
    "VLLM_MXFP4_USE_MARLIN": _vllm("0.24", "--moe-backend marlin"),
    "DYN_VLLM_IS_PREFILL_WORKER": Ignored(
        engine=Engine.VLLM,
        versions=Versions(dynamo=">=1.4"),
        instead=Removed("--disaggregation-mode prefill"),
    ),
    "DYN_VLLM_IS_DECODE_WORKER": Ignored(
        engine=Engine.VLLM,
        versions=Versions(dynamo=">=1.4"),
        instead=Removed("--disaggregation-mode decode"),
    ),
    "DYN_VLLM_KV_EVENT_PORT": Ignored(
        engine=Engine.VLLM,
        versions=Versions(dynamo=">=1.1"),
        instead=Removed("the endpoint in --kv-events-config"),
    ),
    "SGLANG_ENABLE_SPEC_V2": Ignored(
        engine=Engine.SGLANG,
        versions=Versions(sglang=">=0.5.21"),
        instead=Removed(reason="it is the default"),
    ),
    "NIXL_BACKEND": Ignored(
        engine=Engine.VLLM,
        versions=Versions(every="vLLM has never read it"),
        instead=Removed("kv_connector_extra_config.backends in --kv-transfer-config"),
    ),
    "DYN_STORE_KV": Ignored(
        engine=None,
        versions=Versions(dynamo=">=1.6"),
        instead=Removed("DYN_DISCOVERY_BACKEND"),
    ),
    "DYN_USE_KV_EVENTS": Ignored(
        engine=None,
        versions=Versions(dynamo=">=1.0"),
        instead=Removed("DYN_ROUTER_USE_KV_EVENTS"),
    ),
}
REJECTED_VARIABLES = {
    "DYN_VLLM_MULTIMODAL_WORKER": (Engine.VLLM, "--enable-multimodal"),
    "DYN_VLLM_MULTIMODAL_ENCODE_WORKER": (Engine.VLLM, "--disaggregation-mode encode"),
    "DYN_VLLM_MULTIMODAL_DECODE_WORKER": (Engine.VLLM, "--disaggregation-mode decode"),
    "DYN_SGL_MULTIMODAL_WORKER": (Engine.SGLANG, "--enable-multimodal --dedicated-mm-encoder"),
    "DYN_SGL_MULTIMODAL_ENCODE_WORKER": (
        Engine.SGLANG,
        "--enable-multimodal --disaggregation-mode encode",
    ),
}
# The first vLLM whose `validate_environ` warns of variables that it does not know.
LOGS_UNKNOWN = Version("0.17.0")
NEWEST_VLLM = Version(RELEASES[NEWEST].vllm)
IGNORED = (
    "The setting is ignored. vLLM logs since 0.17.0 that it does not know the variable; other "
    "programs log nothing."
)
BARE_REFERENCE = re.compile(r"(?:^|=)(\$[A-Z_][A-Z0-9_]*)$")
# Operator 0.4.1 sets the first two variables, and operator 1.0 sets all of them.
SET_BY_OPERATOR: Mapping[str, Versions] = {
    "DYN_PARENT_DGD_K8S_NAME": UNCHANGED,
    "DYN_PARENT_DGD_K8S_NAMESPACE": UNCHANGED,
    "DYN_NAMESPACE_WORKER_SUFFIX": Versions(dynamo=">=1.0"),
    "DYN_NAMESPACE_PREFIX": Versions(dynamo=">=1.0"),
    "DYN_COMPONENT": Versions(dynamo=">=1.0"),
}


def variable_without_effect(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        if component.role is Role.EPP:
            continue  # the endpoint picker reads DYN_USE_KV_EVENTS
        for launch in component.launches:
            for variable, ignored in VARIABLES_WITHOUT_EFFECT.items():
                if variable in launch.env and ignored.engine in (None, component.engine):
                    pod, value = deployment.pods[component.name], launch.env[variable]
                    instead = _instead(ignored, value, pod)
                    yield RuleResult(
                        location=Location(component.name, "env", (variable,)),
                        message=f"{variable} has no effect",
                        fix=Fix(text=instead.fix(variable), env={variable: None}),
                        why=why_ignored(variable, pod),
                        versions=ignored.versions,
                    )


def why_ignored(variable: str, pod: Pod) -> str:
    """What the version in the image does with a variable that it does not read; empty if the image
    states none, or if it may have one of several that differ."""
    found = {version >= LOGS_UNKNOWN for version in vllm_versions(pod)}
    if not variable.startswith("VLLM_") or found == {False}:
        return "The setting is silently ignored."
    if found == {True}:
        return "The setting is ignored. vLLM logs that it does not know the variable."
    return ""


def _instead(ignored: Ignored, value: str, pod: Pod) -> Removed:
    """What replaces the variable, unless the version in the image lacks its value."""
    end = ignored.gone.get(value)
    versions = vllm_versions(pod) or (NEWEST_VLLM,)  # as rules assume it
    if end is None or any(version < Version(end) for version in versions):
        return ignored.instead
    return Removed(reason=f"vLLM has no {value} since {end}")


def vllm_versions(pod: Pod) -> tuple[Version, ...]:
    """The versions that the image may have; empty if it states none."""
    return software(pod).engines.get(Engine.VLLM, ())


def rejected_variable(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        for launch in component.launches:
            for variable, (engine, replacement) in REJECTED_VARIABLES.items():
                is_on = launch.env.get(variable, "").strip().lower() in ("true", "1", "yes", "on")
                if is_on and engine is component.engine:
                    yield RuleResult(
                        location=Location(component.name, "env", (variable,)),
                        message=f"{variable} is rejected because its flag was removed",
                        fix=Fix(
                            text=f"Use {replacement} instead of {variable}.", env={variable: None}
                        ),
                    )
            if "DYN_CONNECTOR" in launch.env and launch.module == "dynamo.vllm":
                yield RuleResult(
                    location=Location(component.name, "env", ("DYN_CONNECTOR",)),
                    message="dynamo.vllm rejects DYN_CONNECTOR",
                    fix=instead_of_variable(
                        deployment, component.name, launch.env["DYN_CONNECTOR"]
                    ),
                    versions=Versions(dynamo=">=1.0"),
                )


def operator_variable(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        pod = deployment.pods[component.name]
        for entries in pod.containers[0].env.env:
            values = entries.value if isinstance(entries.value, list) else []
            for entry in values:
                variable = entry.get("name") if isinstance(entry, dict) else None
                if isinstance(variable, str) and variable in SET_BY_OPERATOR:
                    yield RuleResult(
                        location=Location(component.name, "env", (variable,)),
                        message=f"{variable} must be set only by the operator",
                        fix=Fix(text=f"Remove {variable}.", env={variable: None}),
                        versions=SET_BY_OPERATOR[variable],
                    )


def unexpanded(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if is_template(deployment):
        return  # what renders the images also fills the arguments
    for component in deployment.components:
        for launch in component.launches:
            for reference in launch.unexpanded:
                if not _may_be_defined_elsewhere(deployment, launch, reference):
                    yield RuleResult(
                        location=Location(component.name, "args", (reference,)),
                        message=f"{reference} is passed to the process unexpanded",
                        fix=Fix(text=_expansion_fix(reference)),
                    )
            for argument in () if launch.shell else launch.arguments:
                if found := BARE_REFERENCE.search(argument):
                    yield RuleResult(
                        location=Location(component.name, "args", (argument,)),
                        message=f"{found[1]} is passed to the process unexpanded",
                        fix=Fix(text=f"Write $({found[1][1:]}), or use a shell."),
                    )


def _expansion_fix(reference: str) -> str:
    name = reference.strip("${}()")
    if reference.startswith("$("):
        return f"Define {name} in the container's env before it is used."
    return f"Write $({name}), or use a shell."


def _may_be_defined_elsewhere(
    deployment: ServingDeployment, launch: Launch, reference: str
) -> bool:
    """Whether the operator, a Secret or a ConfigMap outside this file may define the variable of
    `$(X)`. A name that another component defines in plain text is no key of a Secret."""
    if not reference.startswith("$("):
        return False
    name = reference[2:-1]
    others = (other.env for component in deployment.components for other in component.launches)
    by_secret = bool(launch.secrets) and not any(name in env for env in others)
    return by_secret or launch.has_unread_variables or name.startswith(("POD_", "DYN_", "DYNAMO_"))
