"""The verdict on a claim, by one rule for all claims."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import sqrt

from published.model import Case, Claim, Rule

WIDEST = 0.25  # half-width of an interval, from which on it supports almost any figure
TOO_WIDE = f"the figure is in the interval, which is wider than ±{WIDEST:.0%}"
MANY = "the verdict depends on what the source does not state"


class Verdict(StrEnum):
    SUPPORTED = "supported"
    ABOVE = "published figure above the interval"
    BELOW = "published figure below the interval"
    DOES_NOT_FIT = "does not fit"
    UNKNOWN = "cannot be judged"


def of_case(claim: Claim, case: Case) -> tuple[Verdict, str]:
    """The verdict, and the reason if the case cannot be judged."""
    if case.low is None or case.high is None:
        return Verdict.UNKNOWN, case.no_interval
    if claim.rule is Rule.FITS:
        if case.low >= claim.figure:
            return Verdict.SUPPORTED, ""
        if case.high < claim.figure:
            return Verdict.DOES_NOT_FIT, ""
        return Verdict.UNKNOWN, "the difference is within the error of the memory check"
    if case.low <= claim.figure <= case.high:
        is_narrow = sqrt(case.high / case.low) <= 1 + WIDEST
        return (Verdict.SUPPORTED, "") if is_narrow else (Verdict.UNKNOWN, TOO_WIDE)
    return (Verdict.ABOVE if claim.figure > case.high else Verdict.BELOW), ""


def of_claim(claim: Claim, cases: Sequence[Case]) -> tuple[Verdict, str]:
    """All cases must agree. To fit, one case is enough, because the claim is that it can."""
    found = [of_case(claim, case) for case in cases]
    verdicts = {verdict for verdict, _ in found}
    if claim.rule is Rule.FITS and Verdict.SUPPORTED in verdicts:
        return Verdict.SUPPORTED, ""
    unknown = next((reason for verdict, reason in found if verdict is Verdict.UNKNOWN), "")
    if len(verdicts) == 1:
        return found[0][0], unknown
    return Verdict.UNKNOWN, unknown or MANY
