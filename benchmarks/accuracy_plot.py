"""Draws errors as SVG: a row for each engine, GPU and model, a dot for each steady point."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape

from measured import HELD_OUT
from point_errors import STEADY, PointError

PANELS = {"itl": "ITL", "rate": "tokens/s/GPU"}
COLORS = {True: "#d55e00", False: "#0072b2"}  # held out, fitting half
MARGIN, TOP, PANEL, GAP, ROW, FOOT = 230, 44, 300, 30, 18, 34
LIMIT = 0.6  # errors beyond it are drawn at it


def plot(errors: Sequence[PointError]) -> str:
    rows: dict[str, list[PointError]] = defaultdict(list)
    for error in errors:
        if error.kind == STEADY:
            where = error.conditions
            rows[f"{where.engine} {where.gpu} {where.model}"].append(error)
    names = sorted(rows)
    width = MARGIN + len(PANELS) * (PANEL + GAP)
    height = TOP + ROW * len(names) + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_legend(),
    ]
    for number, name in enumerate(names):
        parts.append(f'<text x="8" y="{_y(number) + 4}">{escape(name)}</text>')
    for panel, (metric, title) in enumerate(PANELS.items()):
        parts += _axes(panel, f"{title}: predicted / measured - 1", len(names))
        for number, name in enumerate(names):
            parts += [_dot(panel, number, e, metric) for e in rows[name] if metric in e.ratios]
    return "\n".join([*parts, "</svg>\n"])


def _legend() -> list[str]:
    texts = {False: "fitting half", True: "held-out half"}
    return [
        f'<circle cx="{12 + 90 * held}" cy="14" r="4" fill="{COLORS[held]}"/>'
        f'<text x="{20 + 90 * held}" y="18">{text}</text>'
        for held, text in texts.items()
    ]


def _axes(panel: int, title: str, rows: int) -> list[str]:
    bottom = TOP + ROW * rows
    parts = [f'<text x="{_x(panel, -LIMIT)}" y="{TOP - 10}" font-weight="bold">{title}</text>']
    for percent in (-60, -30, -10, 0, 10, 30, 60):
        x = _x(panel, percent / 100)
        color = "#888" if percent == 0 else "#ddd"
        parts.append(f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}" stroke="{color}"/>')
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{percent}%</text>')
    return parts


def _dot(panel: int, number: int, error: PointError, metric: str) -> str:
    x = _x(panel, max(-LIMIT, min(LIMIT, 1 / error.ratios[metric] - 1)))
    color = COLORS[error.point["split"] == HELD_OUT]
    return f'<circle cx="{x}" cy="{_y(number)}" r="3" fill="{color}" fill-opacity="0.5"/>'


def _x(panel: int, error: float) -> float:
    return round(MARGIN + panel * (PANEL + GAP) + (error + LIMIT) / (2 * LIMIT) * PANEL, 1)


def _y(number: int) -> int:
    return TOP + ROW * number + ROW // 2
