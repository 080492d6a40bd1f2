"""Rules about code that a manifest brings along."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from penstock.checks.finding import Fix, RuleResult
from penstock.engines.settings import Location
from penstock.manifests.deployment import Component
from penstock.manifests.pods import Container, Pod
from penstock.serving.deployment import ServingDeployment

# Python, the dynamic linker and bash run code from the paths in these variables.
CODE_VARIABLES = (
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"),
    *("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "BASH_ENV"),
)
# Python runs these at every start, wherever they are on its path.
STARTUP_FILES = ("sitecustomize.py", "usercustomize.py")
PACKAGES = ("site-packages", "dist-packages")


def code_from_configmap(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        pod = deployment.pods[component.name]
        main = pod.containers[:1]  # it runs the launches
        mounts = tuple(path for container in main for path in _mount_paths(pod, container))
        yield from _variables(component, mounts)
        yield from _startup_files(component)


def _mount_paths(pod: Pod, container: Container) -> tuple[str, ...]:
    """Where ConfigMaps and Secrets are mounted."""
    sources = {
        volume["name"].text()
        for volume in pod.volumes.items()
        if any(not volume[kind].is_absent for kind in ("configMap", "secret", "projected"))
    }
    mounts = container.cursor["volumeMounts"].items()
    paths = (m["mountPath"].text() for m in mounts if m["name"].text() in sources)
    return tuple(posixpath.normpath(path) for path in paths if path)


def _variables(component: Component, mounts: tuple[str, ...]) -> Iterator[RuleResult]:
    for launch in component.launches:
        for variable in CODE_VARIABLES:
            for path in re.split("[: ]", launch.env.get(variable, "")):
                if path and any(f"{posixpath.normpath(path)}/".startswith(f"{m}/") for m in mounts):
                    yield RuleResult(
                        location=Location(component.name, "env", (variable,)),
                        message=f"{variable} names {path}, which comes from a ConfigMap or Secret",
                        fix=Fix(
                            text=f"Build the code into the image instead of setting {variable}."
                        ),
                    )


def _startup_files(component: Component) -> Iterator[RuleResult]:
    for launch in component.launches:
        for path in launch.files:
            folders, name = path.split("/")[:-1], posixpath.basename(path)
            if name in STARTUP_FILES or set(PACKAGES) & set(folders):
                yield RuleResult(
                    location=Location(component.name, "field", ("pod", "volumes")),
                    message=f"Python loads {path}, and a ConfigMap provides it",
                    fix=Fix(text=f"Build {name} into the image instead of mounting it."),
                )
