"""The result of a probe."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """What a probe found."""

    verdict: Verdict
    detail: str
    """What was observed, with figures."""
    hint: str = ""
    """The likely cause, or what to do."""


def passed(detail: str) -> ProbeResult:
    return ProbeResult(verdict=Verdict.PASS, detail=detail)


def failed(detail: str, hint: str = "") -> ProbeResult:
    return ProbeResult(verdict=Verdict.FAIL, detail=detail, hint=hint)


def cannot_tell(reason: str, hint: str = "") -> ProbeResult:
    return ProbeResult(verdict=Verdict.CANNOT_TELL, detail=reason, hint=hint)
