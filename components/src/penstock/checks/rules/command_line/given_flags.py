"""The flags of command lines and engine files, with the tables of the modules that read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.checks.absence import EVERY_PUBLISHED, EVERY_RELEASE
from penstock.checks.finding import Level
from penstock.checks.rules.containers import NVIDIA_IMAGE
from penstock.checks.version_range import Versions
from penstock.engines.entry_points import flag_names
from penstock.engines.flag_file import arguments_of
from penstock.engines.flag_history import has_history
from penstock.engines.flags import FlagTable, GivenFlag, flag_table, given_flags
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, KnownConfig, Launch
from penstock.manifests.placeholders import placeholder
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import software

# Repositories of the images that Dynamo publishes, also in a mirror.
_REPOSITORY = re.compile(
    r"(^|/)((vllm|sglang|tensorrtllm)-runtime|dynamo-frontend|frontend|dynamo-planner)([:@]|$)"
)


def launches(deployment: ServingDeployment) -> Iterator[tuple[str, Launch, FlagTable]]:
    for component in deployment.components:
        for launch in component.launches:
            table = flag_table(launch.module or "")
            if table is not None:
                yield component.name, launch, table


def all_launches(deployment: ServingDeployment) -> Iterator[tuple[str, Launch, FlagTable]]:
    """The launches of engines and frontends, and then those of other modules."""
    yield from launches(deployment)
    for component in deployment.components:
        for launch in component.launches:
            if (table := flag_names(launch.module or "")) is not None:
                yield component.name, launch, table


def arguments(deployment: ServingDeployment) -> Iterator[tuple[str, Launch, FlagTable, GivenFlag]]:
    for name, launch, table in launches(deployment):
        for one in given_flags(launch.module or "", launch.arguments):
            yield name, launch, table, one


def has_published_image(deployment: ServingDeployment, component: str) -> bool:
    """Whether the image has the name of one of Dynamo's, or no name yet."""
    image = deployment.pods[component].image
    return bool(_REPOSITORY.search(image) or placeholder(image) or not image)


def absent_in(deployment: ServingDeployment, component: str, versions: Versions) -> Versions:
    """``versions`` of an absence. What no release has, no image in NVIDIA's registry has, whatever
    its tag; one's own build without a version may have it."""
    is_of_nvidia = NVIDIA_IMAGE.match(deployment.pods[component].image) is not None
    return EVERY_PUBLISHED if versions is EVERY_RELEASE and is_of_nvidia else versions


def may_be_any_build(deployment: ServingDeployment, component: str) -> bool:
    """Whether the image may have flags that no release has: it is not in NVIDIA's registry, and
    states no version or has another name than Dynamo's."""
    pod = deployment.pods[component]
    stated = software(pod)
    is_stated = bool(stated.dynamo or stated.engines)
    is_released = is_stated and has_published_image(deployment, component)
    return not (is_released or NVIDIA_IMAGE.match(pod.image))


def level_for_image(deployment: ServingDeployment, component: str, module: str) -> Level | None:
    """A note for an image of another repository than Dynamo's: its build may have other flags.

    penstock's own modules are the same in every image."""
    is_known = has_published_image(deployment, component)
    return None if is_known or not has_history(module) else Level.NOTE


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
