"""A claim: a published figure, its source, and the predictions that are compared with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self


class Rule(StrEnum):
    """How a case is compared with the published figure."""

    EQUAL = "equal"  # a speed or a factor: the figure must be in the interval
    FITS = "fits"  # memory: what is left must be at least the figure


@dataclass(frozen=True, kw_only=True)
class Case:
    """One prediction, with the assumptions that the source leaves open."""

    assumption: str
    predicted: float
    low: float | None = None  # of the interval; None: there is none
    high: float | None = None
    no_interval: str = ""  # the reason
    not_simulated: tuple[str, ...] = ()  # in the replay, one clause each
    assumed: tuple[str, ...] = ()  # by the replay, one clause each

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        clauses = {name: tuple(row[name]) for name in ("not_simulated", "assumed")}
        return cls(**{**row, **clauses})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What was published, and the text about it. The figures of the page come from the cases."""

    name: str  # of its cases in the result of the part
    part: str  # of the benchmark that predicts it
    title: str
    published: str
    source: str
    url: str
    date: str
    unit: str
    figure: float  # in the unit; with FITS: the least that must be left
    rule: Rule = Rule.EQUAL
    assumed: str  # by the cases
    change: str  # what would change the verdict
