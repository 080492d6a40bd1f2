"""Writes the result file of a benchmark: command, machine, versions and figures."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("ai-dynamo", "helm-python-sdk", "pydantic", "penstock")


def write_result(
    name: str,
    command: str,
    figures: dict[str, Any],
    *,
    show: bool = True,
    folder: Path = RESULTS,
) -> None:
    """Write ``<name>.json`` into the folder; with ``show``, also print it."""
    result = {
        "benchmark": name,
        "command": command,
        "versions": {p: version(p) for p in PACKAGES} | {"python": platform.python_version()},
        "machine": {"cpus": os.cpu_count(), "gpus": 0, "system": platform.system()},
        **figures,
    }
    folder.mkdir(exist_ok=True)
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    (folder / f"{name}.json").write_text(text)
    if show:
        print(text)


def update_page(page: Path, text: str, *, check: bool) -> int:
    """Write the generated ``text`` of a page; with ``check``, only return 1 if it differs."""
    if check:
        return 0 if text == page.read_text() else 1
    page.write_text(text)
    return 0
