"""Measures what five OpenAI clients can do on each local engine.

python benchmarks/client_matrix.py [--engine E]… [--client C]… [--at E=URL]… [--write-docs]

Starts the engine's graph, or uses the endpoint given by `--at`. Results are written after each
client, to benchmarks/results/client_matrix.json; what is not measured again keeps its result.
`--write-docs` only writes the tables of docs/local-engines.md. Exit code 1: a cell FAILED.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

from clients import docs, openapi
from clients.cases import CASES, FAILED, Cell, Session
from clients.deviations import KNOWN
from clients.drivers import CLIENTS, Driver, Missing
from clients.parameters import PARAMETERS, Endpoint, measure
from penstock.drill.graph_process import GraphProcess
from penstock.environments import environments_root
from report import RESULTS, write_result

ROOT = Path(__file__).parents[1]
GRAPHS = ROOT / "dynamo_graphs"
OPENAPI_ENGINE = "mocker"  # the frontend and its schema are the same for all engines
EXAMPLES = 40  # generated requests for each operation
COMMAND = "python benchmarks/client_matrix.py"
NODE = "node_modules/openai/package.json"


@dataclass(frozen=True, kw_only=True)
class LocalEngine:
    """A row of the matrix: an engine and the graph that runs it."""

    graph: str
    arguments: tuple[str, ...] = ()
    output_is_random: bool = False
    needs_environments: bool = True
    """False: started without them, so that no Envoy answers in the frontend's place."""
    start_s: float = 300.0


ENGINES = {
    "mocker": LocalEngine(
        graph="quickstart-simulated.yaml", output_is_random=True, needs_environments=False
    ),
    "vllm": LocalEngine(graph="smollm2-cpu-disagg.yaml"),
    "llamacpp": LocalEngine(graph="quickstart.yaml"),
}


@contextmanager
def endpoint(engine: LocalEngine) -> Iterator[str]:
    """The base URL of the engine's graph, which stops at the end."""
    with tempfile.TemporaryDirectory() as folder:
        graph = GRAPHS / engine.graph
        arguments = ("--port", "0", *engine.arguments)
        none = {} if engine.needs_environments else {"PENSTOCK_ENVIRONMENTS": f"{folder}/none"}
        with GraphProcess(graph, Path(folder), arguments, none) as process:
            yield process.wait_ready(engine.start_s)


def model_of(base_url: str) -> tuple[str, int]:
    """The served model and its context length."""
    (model,) = httpx.get(f"{base_url}/models", timeout=10).json()["data"]
    return str(model["id"]), int(model["context_window"])


def measure_client(client: str, base_url: str, engine: LocalEngine) -> dict[str, Any]:
    model, context_length = model_of(base_url)
    cells = {}
    with Driver(client, base_url, model) as driver:
        session = Session(
            driver=driver,
            base_url=base_url,
            model=model,
            context_length=context_length,
            output_is_random=engine.output_is_random,
        )
        for name, case in CASES.items():
            begun = time.monotonic()
            cell = _attempt(case, session)
            print(f"  {client}: {name}: {cell.state} {cell.note[:100]}", flush=True)
            cells[name] = asdict(cell) | {"seconds": round(time.monotonic() - begun, 2)}
    return cells


def _attempt(case: Any, session: Session) -> Cell:
    try:
        cell: Cell = case(session)
    except (KeyError, IndexError, TypeError) as error:  # a result without what the case needs
        return Cell(FAILED, f"unexpected result: {error!r}")
    return cell


def measure_engine(name: str, base_url: str, clients: list[str]) -> None:
    engine = ENGINES[name]
    for client in clients:
        try:
            cells = measure_client(client, base_url, engine)
        except Missing as missing:
            print(f"  {client}: not measured: {missing.reason}", file=sys.stderr)
            continue
        save(name, {}, {client: cells})
    at = Endpoint(base_url, *model_of(base_url))
    measured = {request: measure(at, request) for request in PARAMETERS}
    save(name, {"parameters": measured})
    if name == OPENAPI_ENGINE:
        save(name, {"openapi": measure_openapi(base_url)})


def measure_openapi(base_url: str) -> dict[str, Any]:
    """The kinds of deviations that schemathesis finds; `unknown` must be empty."""
    found, requests = openapi.kinds(base_url, model_of(base_url)[0], examples=EXAMPLES)
    rows = [asdict(kind) | {"count": count} for kind, count in found.items()]
    rows.sort(key=lambda row: (row["code"], row["operation"]))
    unknown = [asdict(kind) for kind in found if kind not in KNOWN]
    return {"requests": requests, "kinds": rows, "unknown": unknown}


def save(
    name: str, fields: Mapping[str, Any], clients: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Change one engine's entry of the file, which a run of another engine may write too."""
    results = load()
    entry = {"graph": ENGINES[name].graph, "clients": {}, "parameters": {}}
    entry = results.setdefault(name, entry)
    entry["clients"].update(clients)
    entry.update(fields)
    ordered = {engine: results[engine] for engine in ENGINES if engine in results}
    figures = {"clients": versions(), "engines": ordered}
    write_result("client_matrix", COMMAND, figures, show=False)


def versions() -> dict[str, str]:
    """Those of the installed clients."""
    folder = environments_root() / "clients"
    listed = (folder / "installed.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in listed if "==" in line)
    found = {n: pins[n] for n in ("openai", "langchain-openai", "litellm", "llm", "schemathesis")}
    node = folder / "node" / NODE
    return found | (
        {"openai-node": json.loads(node.read_text())["version"]} if node.exists() else {}
    )


def failures(results: dict[str, Any]) -> list[str]:
    unknown = results.get(OPENAPI_ENGINE, {}).get("openapi", {}).get("unknown", ())
    return [f"unlisted deviation from /openapi.json: {kind}" for kind in unknown] + [
        f"{engine}, {client}, {case}: {cell['note']}"
        for engine, entry in results.items()
        for client, cells in entry["clients"].items()
        for case, cell in cells.items()
        if cell["state"] == FAILED
    ]


def load() -> dict[str, Any]:
    path = RESULTS / "client_matrix.json"
    return dict(json.loads(path.read_text())["engines"]) if path.exists() else {}


def main() -> int:
    parser = argparse.ArgumentParser(description="measure what clients can do on local engines")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="default: all")
    parser.add_argument("--client", action="append", choices=list(CLIENTS), help="default: all")
    parser.add_argument("--at", action="append", default=[], metavar="ENGINE=URL")
    parser.add_argument("--write-docs", action="store_true", help="only write the tables")
    options = parser.parse_args()
    if not options.write_docs:
        running = dict(text.split("=", 1) for text in options.at)
        for name in options.engine or ENGINES:
            if name not in running and not (GRAPHS / ENGINES[name].graph).exists():
                print(
                    f"{name}: not measured: {ENGINES[name].graph} does not exist", file=sys.stderr
                )
                continue
            print(f"{name}:", flush=True)
            clients = options.client or list(CLIENTS)
            if name in running:
                measure_engine(name, running[name], clients)
            else:
                with endpoint(ENGINES[name]) as base_url:
                    measure_engine(name, base_url, clients)
    results = load()
    docs.write(results)
    failed = failures(results)
    print("\n".join(failed) or "no cell failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
