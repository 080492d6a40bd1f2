"""Every model of the graph is listed, and every listed model completes a request."""

from __future__ import annotations

from penstock.manifests.deployment import Role
from penstock.verify.result import ProbeResult, failed, passed
from penstock.verify.target import ProbeTarget


def probe(target: ProbeTarget) -> ProbeResult:
    if not target.models:
        return failed("/v1/models lists nothing", _missing_pool(target))
    missing = [
        m for m in (target.expected.models if target.expected else ()) if m not in target.models
    ]
    if missing:
        return failed(
            f"/v1/models lists {', '.join(target.models) or 'nothing'}, without {missing[0]}",
            _missing_pool(target),
        )
    for model in target.models:
        body = {"model": model, "prompt": target.prompt(8), "max_tokens": 2}
        response = target.post("/v1/completions", body)
        if response.status == 503:
            return failed(f"{model}: HTTP 503: {response.text}", _missing_pool(target))
        if response.status != 200:
            return failed(
                f"{model}: HTTP {response.status}: {response.text}", "Read the frontend's log."
            )
        if not isinstance(response.choice.get("text"), str):
            return failed(f"{model}: a response without text: {response.text}")
    return passed(", ".join(target.models))


def _missing_pool(target: ProbeTarget) -> str:
    """Which pool is missing: Dynamo 1.6.1 returns 503 and does not name it."""
    roles = {i.role for i in target.instances()}
    expects_prefill = target.expected is None or target.expected.disaggregated
    if expects_prefill and Role.PREFILL not in roles:
        return "The prefill pool is missing: no prefill worker is registered."
    if Role.DECODE not in roles:
        return "The decode pool is missing: no decode worker is registered."
    return "Workers of each pool are registered; read the frontend's log."
