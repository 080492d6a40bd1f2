"""Helm itself, through the Helm SDK: the one module that knows it.

The SDK is 85 MB of Go that takes 0.1 s to load, so it is imported by the call that needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import helm_python


class HelmErrorKind(StrEnum):
    """What Helm refuses."""

    NAME = "name"  # of the release
    VALUES = "values"  # a values file, --set, or the chart's schema
    TEMPLATE = "template"
    CHART = "chart"
    CLUSTER = "cluster"  # the API server, or what it holds of a release


class HelmError(ValueError):
    """Helm does not take it; the message is Helm's."""

    def __init__(self, kind: HelmErrorKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def values_of(text: str) -> dict[str, Any]:
    """A values file as `helm install -f` reads it."""
    import helm_python

    try:
        return dict(helm_python.values_from_yaml(text))
    except helm_python.HelmError as error:
        detail = str(error).removeprefix("error converting YAML to JSON: ")
        raise HelmError(HelmErrorKind.VALUES, detail) from error


def values_of_set(expression: str) -> dict[str, Any]:
    """The values that one `--set` expression gives on its own."""
    import helm_python

    try:
        return dict(helm_python.parse_set_string(expression))
    except helm_python.HelmError as error:
        raise HelmError(HelmErrorKind.VALUES, str(error)) from error


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
        raise HelmError(HelmErrorKind.NAME, str(error)) from error
    except helm_python.HelmValuesError as error:
        raise HelmError(HelmErrorKind.VALUES, error.detail) from error
    except helm_python.HelmRenderError as error:
        raise HelmError(HelmErrorKind.TEMPLATE, error.detail) from error
    except helm_python.HelmError as error:
        raise HelmError(HelmErrorKind.CHART, str(error)) from error


@dataclass(frozen=True, kw_only=True)
class ReleaseTarget:
    """One release, on one cluster; KUBECONFIG and the service account of a pod are heeded."""

    name: str
    namespace: str
    kubeconfig: Path | None = None
    context: str | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# How many revisions Helm keeps: `penstock rollback` can go back to any of them.
REVISIONS = 20


def field_manager() -> str:
    """In whose name the SDK writes fields: its process's, where the command line writes `helm`."""
    return Path(sys.orig_argv[0]).name


def release(target: ReleaseTarget, revision: int | None = None) -> dict[str, Any] | None:
    """Helm's record of a revision, or the newest (revision, status, manifest, …), if there is one.

    This and the following raise HelmError.
    """
    try:
        with _configured(target) as config:
            return dict(config.status(target.name, revision=revision))
    except HelmError as error:
        if "not found" in str(error):
            return None
        raise


def values_of_release(target: ReleaseTarget) -> dict[str, Any]:
    """The values that its newest revision was given."""
    with _configured(target) as config:
        return dict(config.get_values(target.name))


def history(target: ReleaseTarget) -> list[dict[str, Any]]:
    """The revisions that Helm keeps, oldest first."""
    with _configured(target) as config:
        return [dict(revision) for revision in config.history(target.name)]


def install(target: ReleaseTarget, chart: Path, values: Mapping[str, object]) -> None:
    """Nothing is waited for: Helm takes a graph without a status for ready."""
    with _configured(target) as config:
        config.install(chart, target.name, dict(values))


def upgrade(target: ReleaseTarget, chart: Path, values: Mapping[str, object]) -> None:
    """All values are replaced, none of the release's is kept."""
    with _configured(target) as config:
        config.upgrade(chart, target.name, dict(values), reset_values=True, max_history=REVISIONS)


def rollback(target: ReleaseTarget, revision: int) -> None:
    with _configured(target) as config:
        config.rollback(target.name, version=revision)


def uninstall(target: ReleaseTarget) -> None:
    """What is annotated `helm.sh/resource-policy: keep` stays."""
    with _configured(target) as config:
        config.uninstall(target.name)


@contextmanager
def _configured(target: ReleaseTarget) -> Iterator[helm_python.Config]:
    import helm_python

    try:
        with helm_python.Config(
            kubeconfig_path=target.kubeconfig,
            kube_context=target.context,
            namespace=target.namespace,
        ) as config:
            yield config
    except helm_python.HelmError as error:
        raise HelmError(HelmErrorKind.CLUSTER, str(error)) from error
