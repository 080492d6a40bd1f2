"""Every model that is listed answers, and every model of the graph is listed."""

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
        answer = target.post("/v1/completions", body)
        if answer.status == 503:
            return failed(f"{model}: HTTP 503: {answer.text}", _missing_pool(target))
        if answer.status != 200:
            return failed(f"{model}: HTTP {answer.status}: {answer.text}", "see the frontend's log")
        if not isinstance(answer.choice.get("text"), str):
            return failed(f"{model}: an answer without text: {answer.text}")
    return passed(", ".join(target.models))


def _missing_pool(target: ProbeTarget) -> str:
    """Dynamo 1.6.1 answers 503 and does not say which pool it waits for."""
    roles = {i.role for i in target.instances()}
    expects_prefill = target.expected is None or target.expected.disaggregated
    if expects_prefill and Role.PREFILL not in roles:
        return "the prefill pool is absent: no prefill worker is registered"
    if Role.DECODE not in roles:
        return "the decode pool is absent: no decode worker is registered"
    return "workers of each pool are registered; see the frontend's log"
