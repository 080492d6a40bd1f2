"""Helm's own reading of values files and of --set, through the Helm SDK.

The one place in `graph` that knows the SDK; `manifests.render` is the other, for charts.
"""

from __future__ import annotations

from typing import Any


class HelmRefusalError(ValueError):
    """Helm does not take the text; the message is Helm's."""


def values_of(text: str) -> dict[str, Any]:
    """A values file as `helm install -f` reads it."""
    import helm_python  # 85 MB of Go: not for those who only import a model

    try:
        return dict(helm_python.values_from_yaml(text))
    except helm_python.HelmError as error:
        raise HelmRefusalError(
            str(error).removeprefix("error converting YAML to JSON: ")
        ) from error


def values_of_set(expression: str) -> dict[str, Any]:
    """The values that one `--set` expression gives on its own."""
    import helm_python

    try:
        return dict(helm_python.parse_set_string(expression))
    except helm_python.HelmError as error:
        raise HelmRefusalError(str(error)) from error
