"""A component in words: exact argv, environment, files and GPUs of each of its launches."""

from __future__ import annotations

import difflib
import shlex

from penstock.errors import ManifestError, Problem
from penstock.manifests.deployment import (
    Component,
    Deployment,
    KnownConfig,
    Launch,
    NoConfig,
    UnknownConfig,
)


def choose(deployment: Deployment, name: str | None) -> tuple[Component, ...]:
    """All components, or the one called ``name``; ManifestError names the ones there are."""
    if name is None:
        return deployment.components
    names = [c.name for c in deployment.components]
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        raise ManifestError(
            Problem(
                file=deployment.source,
                place=name,
                message="no such component",
                fix=f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}",
            )
        )
    return (deployment.component(name),)


def explain(component: Component) -> str:
    """Several lines of text, without a newline at the end."""
    pods = "pod" if component.nodes == 1 else f"group of {component.nodes} pods"
    lines = [
        f"{component.name} ({component.role}): {component.replicas} × {pods}, "
        f"{component.gpus} GPUs each",
        f"  image: {component.image}",
        f"  grace: {component.grace_s} s",
    ]
    for launch in component.launches:
        lines += _launch(launch)
    return "\n".join(lines + _config(component))


def _launch(launch: Launch) -> list[str]:
    lines = ["  argv:" + (" (through a shell)" if launch.shell else "")]
    lines += [f"    {shlex.quote(part)}" for part in launch.argv]
    if launch.cwd:
        lines.append(f"  cwd: {launch.cwd}")
    lines += ["  env:"] if launch.env else []
    lines += [f"    {name}={shlex.quote(value)}" for name, value in sorted(launch.env.items())]
    lines += [f"  env from secret: {name}" for name in launch.secrets]
    lines += [f"  only the cluster knows: {what}" for what in launch.unresolved]
    for path, text in sorted(launch.files.items()):
        lines.append(f"  file {path}:")
        lines += [f"    {line}" for line in text.rstrip("\n").split("\n")]
    return lines


def _config(component: Component) -> list[str]:
    match component.engine_config:
        case KnownConfig(path=path, place=place):
            return [f"  engine config: {path} (from {place})"]
        case UnknownConfig(path=path, reason=reason):
            return [f"  engine config: {path}: unknown, {reason}"]
        case NoConfig():
            return []
