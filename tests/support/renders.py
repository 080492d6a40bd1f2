"""Renders of the repository's chart, made once per test process.

A render takes 60 ms, and a quarter of those in the tests repeats an earlier one. `Chart.render` is
pure; tests/manifests/test_render.py verifies it without this cache.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from penstock.helm import render_templates
from penstock.manifests import render

_CHART = render.chart_path()
_rendered: dict[tuple[str, str, str], dict[str, str]] = {}


def once(chart: Path, values: Mapping[str, object], *, name: str, namespace: str) -> dict[str, str]:
    """As `render_templates`; a chart in another place is always rendered."""
    if chart != _CHART:
        return render_templates(chart, values, name=name, namespace=namespace)
    key = (json.dumps(values, default=repr), name, namespace)
    if key not in _rendered:
        _rendered[key] = render_templates(chart, values, name=name, namespace=namespace)
    return dict(_rendered[key])


def install() -> None:
    render.render_templates = once  # type: ignore[attr-defined]
