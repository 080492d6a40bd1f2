"""Describe a component: command, environment, files and GPUs of each of its launches."""

from __future__ import annotations

import shlex

from penstock.errors import ManifestError
from penstock.manifests.deployment import (
    Component,
    Deployment,
    KnownConfig,
    Launch,
    NoConfig,
    UnknownConfig,
)
from penstock.text.names import did_you_mean


def choose(deployment: Deployment, name: str | None) -> tuple[Component, ...]:
    """All components, or the one called ``name``; ManifestError if it does not exist."""
    if name is None:
        return deployment.components
    names = [c.name for c in deployment.components]
    if name not in names:
        raise ManifestError(
            "no such component",
            file=deployment.source,
            place=name,
            fix=did_you_mean(name, names) or f"Use one of {', '.join(names)}.",
        )
    return (deployment.component(name),)


def explain(component: Component) -> str:
    """Several lines of text, without a newline at the end."""
    pods = "" if component.nodes == 1 else f", each a group of {component.nodes} pods"
    lines = [
        f"Name:          {component.name}",
        f"Role:          {component.role}",
        f"Replicas:      {component.replicas}{pods}",
        f"GPUs:          {component.gpus} per replica",
        f"Image:         {component.image}",
        f"Grace period:  {component.grace_s} s",
        *_config(component),
    ]
    for launch in component.launches:
        lines += _launch(launch)
    return "\n".join(lines)


def _launch(launch: Launch) -> list[str]:
    lines = ["Command:" + ("  (through a shell)" if launch.shell else "")]
    lines += [f"  {shlex.quote(part)}" for part in launch.argv]
    if launch.cwd:
        lines.append(f"Directory:     {launch.cwd}")
    if launch.env:
        lines.append("Environment:")
        lines += [f"  {name}={shlex.quote(value)}" for name, value in sorted(launch.env.items())]
    if launch.secrets:
        lines.append("Environment from Secrets:")
        lines += [f"  {name}" for name in launch.secrets]
    if launch.unresolved:
        lines.append("Known only on the cluster:")
        lines += [f"  {what}" for what in launch.unresolved]
    for path, text in sorted(launch.files.items()):
        lines.append(f"File {path}:")
        lines += [f"  {line}" for line in text.rstrip("\n").split("\n")]
    return lines


def _config(component: Component) -> list[str]:
    match component.engine_config:
        case KnownConfig(path=path, place=place):
            return [f"Engine config: {path} (from {place})"]
        case UnknownConfig(path=path, reason=reason):
            return [f"Engine config: {path} (not readable: {reason})"]
        case NoConfig():
            return []
