"""Two clients of the matrix, and generated requests, on the quickstart of mockers.

`benchmarks/client_matrix.py` measures all clients on all engines.
"""

from __future__ import annotations

import json

import pytest

from client_matrix import ENGINES, model_of
from clients import docs, openapi
from clients.cases import CASES, FAILED, NOT_APPLICABLE, REJECTED, SUPPORTED, Session
from clients.deviations import KNOWN
from clients.drivers import CLIENTS, Driver
from clients.parameters import begins_object
from penstock.drill.graph_process import GraphProcess
from report import RESULTS

MEASURED = json.loads((RESULTS / "client_matrix.json").read_text())["engines"]
SHORT = ("openai-python", pytest.param("openai-node", marks=pytest.mark.needs("openai-node")))
MUST_SUPPORT = {"chat", "streaming", "cached tokens", "no max_tokens", "stop", "seed"}
MUST_SUPPORT |= {"json_schema", "tools", "over-long prompt"}


def test_the_tables_are_those_of_the_results() -> None:
    assert docs.with_tables(docs.FILE.read_text(), MEASURED) == docs.FILE.read_text()


def test_no_cell_of_the_matrix_failed_and_none_is_missing() -> None:
    assert set(MEASURED) == set(ENGINES)
    for engine, entry in MEASURED.items():
        assert set(entry["clients"]) == set(CLIENTS), engine
        for client, cells in entry["clients"].items():
            assert list(cells) == list(CASES), (engine, client)
            states = {cell["state"] for cell in cells.values()}
            assert states <= {SUPPORTED, REJECTED, NOT_APPLICABLE}, (engine, client)


def test_real_engines_support_what_every_client_needs() -> None:
    for engine in set(MEASURED) - {"mocker"}:
        for client, cells in MEASURED[engine]["clients"].items():
            missing = {case for case in MUST_SUPPORT if cells[case]["state"] != SUPPORTED}
            # The command `llm` offers tools, but cannot require a call.
            assert missing <= ({"tools"} if client == "llm" else set()), (engine, client)


@pytest.mark.parametrize(
    ("text", "is_cut"),
    [
        ('{"a": {"b": "c", "d', True),
        ('{"a": 1,', True),
        ('{"a"', True),
        ('{"a": 1}', False),  # complete
        ('{"a": b, "c": 1', False),
        ('```json\n{"a": 1,', False),
        ("[1, 2", False),
    ],
)
def test_the_beginning_of_a_json_object_is_recognized(text: str, is_cut: bool) -> None:
    assert begins_object(text) is is_cut


@pytest.fixture
def base_url(mockers: GraphProcess) -> str:
    return str(mockers.state()["endpoint"])


@pytest.mark.needs("clients")
@pytest.mark.parametrize("client", SHORT)
def test_a_client_gets_from_the_mocker_what_the_matrix_says(base_url: str, client: str) -> None:
    model, context_length = model_of(base_url)
    with Driver(client, base_url, model) as driver:
        session = Session(
            driver=driver,
            base_url=base_url,
            model=model,
            context_length=context_length,
            output_is_random=ENGINES["mocker"].output_is_random,
        )
        cells = {name: case(session) for name, case in CASES.items()}
    failed = {name: cell for name, cell in cells.items() if cell.state == FAILED}
    assert failed == {}
    expected = {n: cell["state"] for n, cell in MEASURED["mocker"]["clients"][client].items()}
    assert {name: cell.state for name, cell in cells.items()} == expected


@pytest.mark.needs("clients")
def test_generated_requests_find_no_unlisted_deviation(base_url: str) -> None:
    paths = ("/v1/chat/completions", "/v1/responses")
    _assert_known(base_url, 8, paths)


@pytest.mark.needs("clients")
@pytest.mark.nightly
def test_generated_requests_to_all_routes_find_no_unlisted_deviation(base_url: str) -> None:
    _assert_known(base_url, 100, ())


def _assert_known(base_url: str, examples: int, paths: tuple[str, ...]) -> None:
    found, requests = openapi.kinds(base_url, model_of(base_url)[0], examples=examples, paths=paths)
    assert requests >= examples
    assert set(found) & KNOWN  # the comparison finds what is listed
    assert set(found) - KNOWN == set()
