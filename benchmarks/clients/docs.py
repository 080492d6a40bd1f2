"""Writes the tables of docs/local-engines.md from the results of client_matrix.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

from clients.cases import CASES, NOT_APPLICABLE, REJECTED, SUPPORTED
from clients.deviations import DEVIATIONS
from clients.drivers import CLIENTS
from clients.parameters import PARAMETERS

FILE = Path(__file__).parents[2] / "docs" / "local-engines.md"
WIDTH = 118
WRAP: dict[str, Any] = {
    "subsequent_indent": "  ",
    "break_long_words": False,
    "break_on_hyphens": False,
}
MARKS = {SUPPORTED: "yes", REJECTED: "400", NOT_APPLICABLE: "–"}
NAMES = {"mocker": "mocker", "vllm": "vLLM on a CPU", "llamacpp": "llama.cpp"}


def write(results: Mapping[str, Any]) -> None:
    FILE.write_text(with_tables(FILE.read_text(), results))


def with_tables(text: str, results: Mapping[str, Any]) -> str:
    """``text`` with the content between its markers replaced."""
    text = _replace(text, "parameters", parameter_table(results))
    text = _replace(text, "clients", client_table(results))
    return _replace(text, "deviations", deviation_list())


def _replace(text: str, name: str, table: str) -> str:
    begin, end = f"<!-- {name}: benchmarks/client_matrix.py -->", f"<!-- end of {name} -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"


def parameter_table(results: Mapping[str, Any]) -> str:
    rows = [
        [request, *(entry["parameters"].get(request, "") for entry in results.values())]
        for request in PARAMETERS
    ]
    return _table(["request", *(NAMES[engine] for engine in results)], rows)


def client_table(results: Mapping[str, Any]) -> str:
    """For each engine a table: a row for each case, a column for each client."""
    tables = []
    for engine, entry in results.items():
        cells = [entry["clients"].get(client, {}) for client in CLIENTS]
        rows = [[case, *(_mark(found.get(case)) for found in cells)] for case in CASES]
        tables.append(_table([NAMES[engine], *CLIENTS], rows))
    return "\n\n".join(tables)


def deviation_list() -> str:
    texts = [f"- {deviation.text}" for deviation in DEVIATIONS]
    return "\n".join(fill(text, WIDTH, **WRAP) for text in texts)


def _mark(cell: Mapping[str, Any] | None) -> str:
    return "" if cell is None else MARKS.get(cell["state"], cell["state"])


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
