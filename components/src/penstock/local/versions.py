"""Which version of Dynamo each component runs on this machine, and in which environment.

penstock's own environment has one version; `dynamo-1.7` and `vllm-cpu-1.7` have another. As on a
cluster, the tag of a component's image decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.environments.paths import installed_python
from penstock.errors import MissingToolError
from penstock.graph.versions import DEFAULT, VERSIONS, about_wheel, minor, wheel_of
from penstock.local import cpu_engine
from penstock.manifests.deployment import Component
from penstock.manifests.source import Source


@dataclass(frozen=True, kw_only=True)
class Interpreters:
    """The Pythons of one version."""

    version: str
    python: str
    """With Dynamo and its mocker."""
    cpu: str | None
    """With vLLM on a CPU; None: not installed."""


def environment_of(version: str, base: str = "dynamo") -> str:
    """The name of the environment with that version of Dynamo, such as dynamo-1.7."""
    return f"{base}-{minor(version)}"


def python_of(version: str, base: str = "dynamo") -> str | None:
    """Its Python; None if it is not installed."""
    python = installed_python(environment_of(version, base))
    return None if python is None else str(python)


def interpreters(source: Source) -> tuple[dict[str, Interpreters], tuple[str, ...]]:
    """Component → its interpreters, of those that run another version than penstock's environment;
    and notes.

    MissingToolError when the graph sets `dynamo` to a version that is not installed.
    """
    by_component: dict[str, Interpreters] = {}
    notes: list[str] = []
    for component, version in _other_versions(source):
        python = python_of(version)
        if wheel_of(version) == DEFAULT or python is not None:
            notes.extend(filter(None, [about_wheel(version)]))
        if wheel_of(version) == DEFAULT:
            continue  # penstock's own environment
        if python is not None:
            cpu = python_of(version, cpu_engine.ENVIRONMENT)
            by_component[component.name] = Interpreters(version=version, python=python, cpu=cpu)
        elif source.loaded is not None and source.loaded.graph.dynamo == version:
            raise _missing(source, version)
        else:
            notes.append(
                f"{component.name}: using Dynamo {DEFAULT} instead of {version} (environment "
                f"{environment_of(version)} is not installed)"
            )
    return by_component, tuple(dict.fromkeys(notes))


def _other_versions(source: Source) -> Iterator[tuple[Component, str]]:
    """The components of a graph whose image has a known version of Dynamo that is not the default.
    The images of a DGD manifest are not considered: it runs with the default version."""
    if source.loaded is None:
        return
    graph = source.loaded.graph
    for component in source.deployment.components:
        tag = component.image.rsplit("/", 1)[-1].partition(":")[2]
        tagged = next((v for v in VERSIONS if tag == v or tag.startswith(f"{v}-")), None)
        version = graph.dynamo or tagged or DEFAULT
        if version != DEFAULT:
            yield component, version


def _missing(source: Source, version: str) -> MissingToolError:
    loaded = source.loaded
    name = environment_of(version)
    return MissingToolError(
        f"Dynamo {version} needs environment {name}, which is not installed",
        file=source.deployment.source,
        line=loaded.places.line_of("dynamo") if loaded else None,
        place="dynamo",
        fix=f"Run `penstock tools env install {name}`.",
    )
