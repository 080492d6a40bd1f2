"""Writes the result file of a benchmark: command, machine, versions and figures."""

from __future__ import annotations

import argparse
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


def read_cases(
    name: str, description: str, *, short: str, page: str
) -> tuple[argparse.Namespace, dict[str, Any]]:
    """The options of a benchmark that continues where its result file ends, and the file's cases.

    ``short``: help of `--short`; ``page``: that has the rows of `--table`.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="names (default: all)")
    parser.add_argument("--short", action="store_true", help=short)
    parser.add_argument("--table", action="store_true", help=f"print the rows of {page}")
    path = RESULTS / f"{name}.json"
    saved = json.loads(path.read_text())["cases"] if path.exists() else {}
    return parser.parse_args(), saved


def write_cases(name: str, cases: dict[str, Any]) -> None:
    """The result file of `read_cases`."""
    write_result(name, f"python benchmarks/{name}.py", {"cases": cases}, show=False)


def update_page(page: Path, text: str, *, check: bool) -> int:
    """Write the generated ``text`` of a page; with ``check``, only return 1 if it differs."""
    if check:
        return 0 if text == page.read_text() else 1
    page.write_text(text)
    return 0
