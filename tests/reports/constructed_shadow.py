"""Reports of `bench shadow` from constructed responses."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from penstock.bench.shadow.client import ShadowEndpoint
from penstock.bench.shadow.live import LiveCounts
from penstock.bench.shadow.report import ShadowResult, report_of
from penstock.bench.shadow.requests import CHAT, ShadowRequest
from penstock.bench.shadow.response import ShadowResponse
from penstock.bench.shadow.run import Pair, ShadowRun
from penstock.bench.shadow.verdict import verdict_of
from penstock.reports.model import Report

NASTY = "</script><b onclick=alert(1)>%{x} & " + "a-very-long-request-id/" * 8
FAILED = ShadowResponse(error="HTTP 400", is_rejected=True)


def pairs(count: int, *, changed: float) -> list[Pair]:
    """With another text in a share of the requests, and two failures of B."""
    random, sent = Random(1), []
    for number in range(count):
        response = ShadowResponse(
            text=f"answer {number}",
            finish_reason="stop",
            prompt_tokens=10,
            completion_tokens=8,
            ttft_ms=random.lognormvariate(4, 0.3),
            itl_ms=random.lognormvariate(2, 0.2),
            e2e_ms=500.0 + number,
        )
        other = replace(response, text=NASTY) if random.random() < changed else response
        request = ShadowRequest(id=f"{number} {NASTY}", path=CHAT, body={"messages": []})
        second = FAILED if changed and number < 2 else other
        sent.append(Pair(request=request, first=response, second=second, repeat=response))
    return sent


def result(sent: list[Pair], **more: object) -> ShadowResult:
    urls = ("http://127.0.0.1:8000", "http://127.0.0.1:8001")
    first, second = (
        ShadowEndpoint(name=name, url=url, model=NASTY)
        for name, url in zip("AB", urls, strict=True)
    )
    run = ShadowRun(
        endpoints=(first, second),
        repeats=len(sent),
        as_sent=False,
        concurrency=1,
        timeout_s=60.0,
        requests=[each.request for each in sent],
    )
    shadow_result = ShadowResult(
        run=run, total=len(sent), pairs=sent, verdict=verdict_of(sent), interrupted=""
    )
    return replace(shadow_result, **more)  # type: ignore[arg-type]


def shadow() -> Report:
    return report_of(result(pairs(60, changed=0.5)), show_text=True)


def shadow_without_finding() -> Report:
    return report_of(result(pairs(60, changed=0.0)), show_text=False)


def shadow_of_one_request() -> Report:
    counts = LiveCounts(skipped=3, disconnected=1, unreadable=2)
    shadow_result = result(pairs(1, changed=0.0), interrupted="B no longer responds", counts=counts)
    return report_of(shadow_result, show_text=True)


def shadow_of_nothing() -> Report:
    return report_of(result([], interrupted="interrupted"), show_text=True)
