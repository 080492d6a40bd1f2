"""The flags of command lines and engine files, with the tables of the modules that read them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.checks.finding import Level
from penstock.checks.rules.containers import NVIDIA_IMAGE
from penstock.checks.version_range import EVERY_PUBLISHED, EVERY_RELEASE, Versions
from penstock.engines.flag_history import flag_names, has_history
from penstock.engines.flags import FlagTable, GivenFlag, arguments_of, flag_table, given_flags
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, KnownConfig, Launch
from penstock.manifests.placeholders import placeholder
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import software
from penstock.serving.worker import Worker

# Repositories of the images that Dynamo publishes, also in a mirror.
_REPOSITORY = re.compile(
    r"(^|/)((vllm|sglang|tensorrtllm)-runtime|dynamo-frontend|frontend|dynamo-planner)([:@]|$)"
)
# A flag, then spaces or an equal sign with spaces, then the rest; or a space before a flag.
_JOINED = re.compile(
    r"\s*(--[A-Za-z][\w.-]*)(?:\s*=\s+|\s+=\s*|\s+)(.*)|\s+(--[A-Za-z]\S*)", re.DOTALL
)


def launches(deployment: ServingDeployment) -> Iterator[tuple[str, Launch, FlagTable]]:
    """The component, the launch and the flags of each engine and frontend."""
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


def arguments(deployment: ServingDeployment) -> Iterator[tuple[str, Launch, GivenFlag]]:
    """Each flag on the command line of an engine or a frontend."""
    for name, launch, _ in launches(deployment):
        for argument in given_flags(launch.module or "", launch.arguments):
            yield name, launch, argument


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

    @property
    def flag(self) -> str:
        return self.arguments[0] if self.arguments else f"--{self.key.replace('_', '-')}"

    @property
    def given(self) -> GivenFlag | None:
        return next(self.table.read(self.arguments), None)


def file_flags(deployment: ServingDeployment) -> Iterator[FileFlag]:
    """Each key of an engine file."""
    for component in deployment.components:
        config, engine = component.engine_config, component.engine
        if engine not in (Engine.VLLM, Engine.SGLANG) or not isinstance(config, KnownConfig):
            continue
        module = f"dynamo.{engine}"
        if (table := flag_table(module)) is None:
            continue
        for name, setting in config.values.items():
            key = str(name)
            yield FileFlag(
                location=Location(component.name, "config", (key,)),
                module=module,
                key=key,
                value=setting,
                table=table,
                arguments=arguments_of(engine, table, key, setting),
            )


def is_on(worker: Worker, flag: str) -> bool:
    """Whether a flag is given, and is not a switch that is off."""
    argument = worker.flag(flag)
    return argument is not None and argument.value is not False


def repeated_flags(
    deployment: ServingDeployment,
) -> Iterator[tuple[str, GivenFlag, str | None]]:
    """Each flag that has another value than before on the same command line, and that value."""
    for name, launch, table in launches(deployment):
        texts: dict[str, str | None] = {}
        for argument in table.read(launch.arguments):
            flag = argument.flag
            if flag is None or flag.takes != "one" or argument.inner:
                continue
            if texts.get(flag.name, argument.text) != argument.text:
                yield name, argument, texts[flag.name]
            texts[flag.name] = argument.text


def joined_arguments(
    deployment: ServingDeployment,
) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """The component, an argument that is a flag with a space, and its flag; or all arguments that
    begin with a space, in a script whose lines `>-` joined so that a backslash escapes a space."""
    for name, launch, table in all_launches(deployment):
        words = [*_joined(table, launch.arguments)]
        indented = tuple(word for word, _ in words if word[0].isspace())
        if launch.shell and len(indented) > 1:
            yield name, indented, ""
        else:
            yield from ((name, (word,), flag) for word, flag in words)


def _joined(table: FlagTable, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each argument that is a flag with a space, and its flag; not the value of another flag."""
    for before, word in zip(("", *words), words, strict=False):
        match = _JOINED.fullmatch(word)
        flag = table.find(before) if before.startswith("-") else None
        if match is not None and (flag is None or flag.takes == "none"):
            yield word, match[1] or match[3].partition("=")[0]


def split_argument(word: str) -> tuple[str, ...]:
    """The arguments into which a shell splits the text, without a `=` between flag and value."""
    text = re.sub(r"^(\s*--[\w.-]+)\s*=\s*", r"\1 ", word)
    try:
        return tuple(shlex.split(text))
    except ValueError:  # an unclosed quote
        return tuple(text.split(maxsplit=1))


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
