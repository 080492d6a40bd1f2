"""Reads the charts of a written report."""

from __future__ import annotations

import json
import re
from typing import Any

CHARTS = re.compile(r'<script type="application/json" id="charts">(.*?)</script>', re.DOTALL)
CAPTION = re.compile(r"<figcaption>(.*?)</figcaption>")
PAGE = re.compile(r"<main>(.*?)</main>", re.DOTALL)


def charts_of(report: str) -> dict[str, dict[str, Any]]:
    """Title → figure; without the title of a second chart of the same title."""
    (found,) = CHARTS.findall(report)
    return dict(zip(CAPTION.findall(report), json.loads(found), strict=True))


def names_of(figure: dict[str, Any]) -> list[str]:
    return [trace["name"] for trace in figure["data"] if "name" in trace]


def page_of(report: str) -> str:
    """The page without scripts."""
    (found,) = PAGE.findall(report)
    return str(found)
