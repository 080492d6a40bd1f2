"""Environment variables: what vLLM says about unknown ones, and what nothing expands."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from penstock.checks.rules.versions.placeholders import is_template
from penstock.engines.releases import NEWEST, RELEASES
from penstock.manifests.deployment import Component, Engine, Launch
from penstock.manifests.pods import Pod
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import software

# The first vLLM whose `validate_environ` warns of variables that it does not know.
LOGS_UNKNOWN = Version("0.17.0")
NEWEST_VLLM = Version(RELEASES[NEWEST].vllm)
BARE_REFERENCE = re.compile(r"(?:^|=)(\$[A-Z_][A-Z0-9_]*)$")
# Diagnostics, and hardware that no Dynamo image for NVIDIA GPUs runs on.
WITHOUT_CONSEQUENCE = re.compile(
    r"_(ROCM|AITER|TPU|XPU|XLA|NPU|HIP|CPU|LOG|LOGGING|DEBUG|PROFIL\w*|NVTX|BUILD|CI|USAGE)(_|$)"
)


def vllm_versions(pod: Pod) -> tuple[Version, ...]:
    """The versions that the image may have; empty if it states none."""
    return software(pod).engines.get(Engine.VLLM, ())


def is_vllm_since(pod: Pod, version: str) -> bool:
    """Whether the image has this version or a later one; the newest one if it states none."""
    return all(v >= Version(version) for v in vllm_versions(pod) or (NEWEST_VLLM,))


def why_ignored(variable: str, pod: Pod) -> str:
    """What the version in the image does with a variable that it does not read; empty if the image
    states none, or if it may have one of several that differ."""
    logs = {version >= LOGS_UNKNOWN for version in vllm_versions(pod)}
    if not variable.startswith("VLLM_") or logs == {False}:
        return "The setting is silently ignored."
    if logs == {True}:
        return "The setting is ignored. vLLM logs that it does not know the variable."
    return ""


def is_diagnostic(variable: str) -> bool:
    """Whether the variable concerns only diagnostics or hardware without Dynamo images."""
    return WITHOUT_CONSEQUENCE.search(variable) is not None


def variable_names(component: Component) -> tuple[str, ...]:
    """The names of the variables of all its processes."""
    return tuple(dict.fromkeys(name for launch in component.launches for name in launch.env))


def unexpanded_references(deployment: ServingDeployment) -> Iterator[tuple[str, str, str]]:
    """The component, an argument, and the reference in it that nothing expands."""
    if is_template(deployment):
        return  # what renders the images also fills the arguments
    for component in deployment.components:
        for launch in component.launches:
            for reference in launch.unexpanded:
                if not _may_be_defined_elsewhere(deployment, launch, reference):
                    yield component.name, reference, reference
            for argument in () if launch.shell else launch.arguments:
                if match := BARE_REFERENCE.search(argument):
                    yield component.name, argument, match[1]


def _may_be_defined_elsewhere(
    deployment: ServingDeployment, launch: Launch, reference: str
) -> bool:
    """Whether the operator, a Secret or a ConfigMap outside this file may define the variable of
    `$(X)`. A name that another component defines in plain text is no key of a Secret."""
    if not reference.startswith("$("):
        return False
    name = reference[2:-1]
    launches = (launch for component in deployment.components for launch in component.launches)
    by_secret = bool(launch.secrets) and not any(name in other.env for other in launches)
    return by_secret or launch.has_unread_variables or name.startswith(("POD_", "DYN_", "DYNAMO_"))
