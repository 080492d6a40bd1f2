"""The address a worker registers under, when its launch names one.

Unset, engine and mocker agree: `dyn://$DYN_NAMESPACE.prefill.generate` for prefill workers, else
`.backend.generate`. The mocker has no --namespace and does not read DYN_ENDPOINT.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.engines.engine import given
from penstock.manifests.deployment import Launch


def explicit_endpoint(launch: Launch, settings: Mapping[str, Any]) -> str | None:
    """The parsed endpoint if the launch sets it, or its namespace by a flag."""
    if given(launch, "--endpoint", "--namespace", "DYN_ENDPOINT") is None:
        return None
    return "dyn://{namespace}.{component}.{endpoint}".format_map(settings)
