"""Rules about the files themselves, which the reader or the run reports."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
from penstock.engines.settings import Location
from penstock.serving.deployment import ServingDeployment


def unexpected_type(deployment: ServingDeployment) -> Iterable[RuleResult]:
    value = deployment.spec.get("backendFramework")
    if value is not None and not isinstance(value, str):
        yield RuleResult(
            location=Location("", "manifest", ("spec", "backendFramework")),
            message=f"spec.backendFramework must be a string, got {value!r}",
            fix=Fix(text="Set it to a string, such as `vllm`."),
        )
