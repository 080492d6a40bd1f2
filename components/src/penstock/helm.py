"""Helm through its SDK (helm-python-sdk): rendering, and releases on a cluster.

No other module imports the SDK. It is 85 MB of Go and takes 0.1 s to load, so each function
imports it when called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import helm_python

# Helm's history limit: `penstock rollback` can return to any of these revisions.
MAX_HISTORY = 20

# The SDK reports a failed API request by its text alone, without a status code. These are the
# texts of Go's HTTP client and of the API server for failures that pass without intervention.
_TRANSIENT_MESSAGE = re.compile(
    "unreachable|refused|reset by peer|timeout|timed out|deadline exceeded|EOF|TLS handshake|"
    "too many requests|unable to handle|shutting down|unavailable|broken pipe",
    re.IGNORECASE,
)
# Helm's text for a 401, which also contains "unreachable".
_UNAUTHORIZED = "asked for the client to provide credentials"
# Helm's lock is the record of the new revision, which only one client can create.
_LOCKED_MESSAGE = re.compile(
    r"^(release: already exists|another operation \(install/upgrade/rollback\) is in progress)$"
)


_FORBIDDEN_MESSAGE = re.compile(
    r'is forbidden: User "[^"]*" cannot (?P<verb>\w+) resource "(?P<resource>[^"]*)"'
)


class HelmErrorKind(StrEnum):
    """What Helm rejected."""

    NAME = "name"  # the release name
    VALUES = "values"  # a values file, --set, or a violation of the chart's schema
    TEMPLATE = "template"
    CHART = "chart"
    NOT_FOUND = "not found"  # the release or the revision
    LOCKED = "locked"  # another client is writing the release; nothing was written
    FORBIDDEN = "forbidden"  # the user lacks a right: ``HelmError.right``
    CLUSTER = "cluster"  # the API server or the release's record


class HelmError(ValueError):
    """Helm failed; the message is Helm's."""

    def __init__(self, kind: HelmErrorKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind

    @property
    def right(self) -> str:
        """The missing right, such as "list secrets"; "" if the message names none."""
        match = _FORBIDDEN_MESSAGE.search(str(self))
        return f"{match['verb']} {match['resource']}" if match else ""

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed later."""
        text = str(self)
        is_transient = _UNAUTHORIZED not in text and _TRANSIENT_MESSAGE.search(text)
        return self.kind is HelmErrorKind.CLUSTER and bool(is_transient)


def parse_values(text: str) -> dict[str, Any]:
    """A values file as `helm install -f` reads it. Raises HelmError."""
    import helm_python

    try:
        return dict(helm_python.values_from_yaml(text))
    except helm_python.HelmError as error:
        detail = str(error).removeprefix("error converting YAML to JSON: ")
        raise HelmError(HelmErrorKind.VALUES, detail) from error


def parse_set(expression: str) -> dict[str, Any]:
    """The values that a single `--set` expression sets. Raises HelmError."""
    import helm_python

    try:
        return dict(helm_python.parse_set_string(expression))
    except helm_python.HelmError as error:
        raise HelmError(HelmErrorKind.VALUES, str(error)) from error


def render_templates(
    chart: Path, values: Mapping[str, object], *, name: str, namespace: str
) -> dict[str, str]:
    """The text of every rendered template by its path, NOTES.txt included. Raises HelmError."""
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
    """A release's name, and the cluster and namespace it belongs to."""

    name: str
    namespace: str
    # Unset: the KUBECONFIG variable, ~/.kube/config, or a pod's service account.
    kubeconfig: Path | None = None
    # Unset: the kubeconfig's current context.
    context: str | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def release(target: ReleaseTarget, revision: int | None = None) -> dict[str, Any] | None:
    """Helm's record of the newest or the given revision (status, manifest, …); None if missing.

    Raises HelmError, as do the functions below.
    """
    try:
        with _configured(target) as config:
            return dict(config.status(target.name, revision=revision))
    except HelmError as error:
        if error.kind is HelmErrorKind.NOT_FOUND:
            return None
        raise


def release_values(target: ReleaseTarget) -> dict[str, Any]:
    """The user-supplied values of the newest revision."""
    with _configured(target) as config:
        return dict(config.get_values(target.name))


def history(target: ReleaseTarget) -> list[dict[str, Any]]:
    """The records of the stored revisions, oldest first."""
    with _configured(target) as config:
        return [dict(revision) for revision in config.history(target.name)]


# To be called through `cluster.helm_writer`: Helm uses the name of the process as field manager.
def install(target: ReleaseTarget, chart: Path, values: Mapping[str, object]) -> None:
    """Install without waiting: Helm considers a DynamoGraphDeployment without status ready."""
    with _configured(target) as config:
        config.install(chart, target.name, dict(values))


def upgrade(target: ReleaseTarget, chart: Path, values: Mapping[str, object]) -> None:
    """Replace all values; none of the previous revision's are kept."""
    with _configured(target) as config:
        config.upgrade(chart, target.name, dict(values), reset_values=True, max_history=MAX_HISTORY)


def rollback(target: ReleaseTarget, revision: int) -> None:
    with _configured(target) as config:
        config.rollback(target.name, version=revision)


def uninstall(target: ReleaseTarget) -> None:
    """Objects annotated `helm.sh/resource-policy: keep` are not deleted."""
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
    except helm_python.HelmNotFoundError as error:
        raise HelmError(HelmErrorKind.NOT_FOUND, str(error)) from error
    except helm_python.HelmError as error:
        raise HelmError(_kind(str(error)), str(error)) from error


def _kind(message: str) -> HelmErrorKind:
    if _LOCKED_MESSAGE.match(message):
        return HelmErrorKind.LOCKED
    is_forbidden = _FORBIDDEN_MESSAGE.search(message)
    return HelmErrorKind.FORBIDDEN if is_forbidden else HelmErrorKind.CLUSTER
