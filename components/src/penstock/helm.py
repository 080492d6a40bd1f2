"""Helm itself, through the Helm SDK: the one module that knows it.

The SDK is 85 MB of Go that takes 0.1 s to load, so it is imported by the call that needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any


class About(StrEnum):
    """What Helm refuses."""

    NAME = "name"  # of the release
    VALUES = "values"  # a values file, --set, or the chart's schema
    TEMPLATE = "template"
    CHART = "chart"
    CLUSTER = "cluster"  # the API server, or what it holds of a release


class HelmRefusalError(ValueError):
    """Helm does not take it; the message is Helm's."""

    def __init__(self, about: About, detail: str) -> None:
        super().__init__(detail)
        self.about = about


def values_of(text: str) -> dict[str, Any]:
    """A values file as `helm install -f` reads it."""
    import helm_python

    try:
        return dict(helm_python.values_from_yaml(text))
    except helm_python.HelmError as error:
        detail = str(error).removeprefix("error converting YAML to JSON: ")
        raise HelmRefusalError(About.VALUES, detail) from error


def values_of_set(expression: str) -> dict[str, Any]:
    """The values that one `--set` expression gives on its own."""
    import helm_python

    try:
        return dict(helm_python.parse_set_string(expression))
    except helm_python.HelmError as error:
        raise HelmRefusalError(About.VALUES, str(error)) from error


def templates(
    chart: Path, values: Mapping[str, object], *, name: str, namespace: str
) -> dict[str, str]:
    """Every template of the chart rendered, by its path; NOTES.txt among them."""
    import helm_python

    try:
        helm_python.validate_release_name(name)
        with helm_python.Chart.load(chart) as loaded:
            return dict(loaded.render(dict(values), name=name, namespace=namespace))
    except helm_python.HelmInvalidArgError as error:
        raise HelmRefusalError(About.NAME, str(error)) from error
    except helm_python.HelmValuesError as error:
        raise HelmRefusalError(About.VALUES, error.detail) from error
    except helm_python.HelmRenderError as error:
        raise HelmRefusalError(About.TEMPLATE, error.detail) from error
    except helm_python.HelmError as error:
        raise HelmRefusalError(About.CHART, str(error)) from error


def release(
    name: str, *, namespace: str, kubeconfig: Path | None, context: str | None
) -> dict[str, Any] | None:
    """Helm's record of the newest revision (revision, status, manifest, …), if there is one."""
    import helm_python

    try:
        with helm_python.Config(
            kubeconfig_path=kubeconfig, kube_context=context, namespace=namespace
        ) as config:
            return dict(config.status(name))
    except helm_python.HelmError as error:
        if "not found" in str(error):
            return None
        raise HelmRefusalError(About.CLUSTER, str(error)) from error
