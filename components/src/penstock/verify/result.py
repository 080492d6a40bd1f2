"""What a probe answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """``detail`` says what was seen, with its figures; ``hint`` what to do about it."""

    verdict: Verdict
    detail: str
    hint: str = ""


def passed(detail: str) -> ProbeResult:
    return ProbeResult(verdict=Verdict.PASS, detail=detail)


def failed(detail: str, hint: str = "") -> ProbeResult:
    return ProbeResult(verdict=Verdict.FAIL, detail=detail, hint=hint)


def cannot_tell(because: str, hint: str = "") -> ProbeResult:
    return ProbeResult(verdict=Verdict.CANNOT_TELL, detail=because, hint=hint)
