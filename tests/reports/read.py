"""Reads a report: its text, and the charts of its page."""

from __future__ import annotations

import json
import re
from typing import Any

from penstock.reports import text
from penstock.reports.model import Chart, Foldable, Report

CHARTS = re.compile(r'<script type="application/json" id="charts">(.*?)</script>', re.DOTALL)
CAPTION = re.compile(r"<figcaption>(.*?)</figcaption>")
PAGE = re.compile(r"<main>(.*?)</main>", re.DOTALL)


def charts_of(report: str) -> dict[str, dict[str, Any]]:
    """Title → figure; without the title of a second chart of the same title."""
    (charts,) = CHARTS.findall(report)
    return dict(zip(CAPTION.findall(report), json.loads(charts), strict=True))


def names_of(figure: dict[str, Any]) -> list[str]:
    return [trace["name"] for trace in figure["data"] if "name" in trace]


def page_of(report: str) -> str:
    """The page without scripts."""
    (page,) = PAGE.findall(report)
    return str(page)


def text_of(report: Report) -> str:
    """What a command prints to a pipe."""
    return "\n".join(text.lines(report))


def charts_in(report: Report) -> dict[str, Chart]:
    """By title; without the charts that a reader opens."""
    parts = [part for section in report.sections for part in section.parts]
    assert not any(isinstance(part, Foldable) for part in parts)
    return {part.title: part for part in parts if isinstance(part, Chart)}
