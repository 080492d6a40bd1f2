"""The endpoint with the official client, and status and logs, on one running quickstart."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import pytest
from openai import OpenAI
from openai.types import CompletionUsage

from client_matrix import model_of
from clients.parameters import IGNORED, PARAMETERS, Endpoint, measure
from penstock.cli.bench_targets import is_mocked, running_target
from penstock.drill.graph_process import GraphProcess
from penstock.live.text import columns_for
from report import RESULTS
from tests.support.local_graphs import QUICKSTART, left, listening
from tests.support.terminal import Terminal
from tests.support.waiting import first_good

MODEL = "openai/gpt-oss-20b"
# The packaged tokenizer knows English: four words are about six tokens.
LONG_PREFIX = "The pressure at the gate rises with the level of the lake behind it. " * 160


@pytest.fixture
def client(mockers: GraphProcess) -> OpenAI:
    return OpenAI(base_url=str(mockers.state()["endpoint"]), api_key="none", max_retries=0)


def test_models_lists_the_served_name(client: OpenAI) -> None:
    assert [m.id for m in client.models.list()] == [MODEL]


def test_a_chat_completion_has_the_requested_tokens(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=12
    )
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12


def test_a_streamed_chat_completion_ends_with_its_usage(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Hello"}],
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert sum(c.choices[0].finish_reason is None for c in chunks if c.choices) == 12
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12


def test_a_text_completion_works(client: OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=7)
    assert answer.choices[0].text
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 7


def test_a_shared_prefix_is_cached_and_goes_to_the_same_prefill_worker(client: OpenAI) -> None:
    def ask(text: str) -> tuple[CompletionUsage, int]:
        answer = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": text}],
            max_tokens=4,
            extra_body={"nvext": {"extra_fields": ["worker_id"]}},
        )
        assert answer.usage is not None
        nvext = answer.model_extra["nvext"]  # type: ignore[index]
        return answer.usage, nvext["worker_id"]["prefill_worker_id"]

    def cached(number: int) -> tuple[int, bool]:
        """The fewest cached tokens of later requests, and whether all go to the same worker."""
        prefix = f"Report {number}. {LONG_PREFIX}"
        first, worker = ask(f"{prefix}Why?")
        assert first.prompt_tokens >= 2000
        assert _cached(first) == 0
        later = [ask(f"{prefix}{question}?") for question in ("When", "Who", "Where", "How", "If")]
        return min(_cached(one) for one, _ in later), {one for _, one in later} == {worker}

    # On a busy machine, the router may receive the events of the KV cache after the next request.
    tokens, is_same = first_good(cached, lambda found: found[0] >= 1900 and found[1])
    assert tokens >= 1900
    assert is_same


def _cached(usage: CompletionUsage) -> int:
    assert usage.prompt_tokens_details is not None
    return usage.prompt_tokens_details.cached_tokens or 0


def test_every_listening_socket_of_every_process_is_on_loopback(mockers: GraphProcess) -> None:
    folder = mockers.log.parent
    assert len(left(folder)) >= 5  # broker, frontend, two prefill, one decode
    assert listening(folder) == {"127.0.0.1"}


def test_status_shows_every_process_and_the_registered_workers(mockers: GraphProcess) -> None:
    shown = mockers.penstock("status", str(mockers.graph))
    assert shown.returncode == 0, shown.stderr
    for name in ("frontend.0", "prefill.0", "prefill.1", "decode.0", "event-broker"):
        assert name in shown.stdout
    assert "registered workers: 3" in shown.stdout


@pytest.mark.parametrize("by_url", [True, False])
def test_a_benchmark_knows_that_mockers_serve(
    mockers: GraphProcess, monkeypatch: pytest.MonkeyPatch, by_url: bool
) -> None:
    """Also of a URL, if a graph of this machine has it."""
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(mockers.log.parent / "state"))
    args = argparse.Namespace(sets=[])
    url = str(mockers.state()["endpoint"]).removesuffix("/v1")
    target = url if by_url else str(mockers.graph)
    assert is_mocked(running_target(args, target)) is True
    assert is_mocked(running_target(args, "http://127.0.0.1:9")) is None


def test_top_shows_the_processes_and_their_events(mockers: GraphProcess, client: OpenAI) -> None:
    test_a_text_completion_works(client)
    shown = mockers.penstock("top", str(mockers.graph), "--once")
    assert shown.returncode == 0, shown.stderr
    for text in ("frontend 1/1", "prefill 2/2", "decode 1/1", "graph: ready"):
        assert text in shown.stdout
    # A process of a busy machine may return its metrics later than `top` waits.
    document = first_good(
        lambda _: json.loads(mockers.penstock("top", str(mockers.graph), "--json").stdout),
        lambda found: all(worker["responds"] for worker in found["workers"]),
    )
    workers = {worker["name"]: worker for worker in document["workers"]}
    assert all(worker["responds"] for worker in workers.values())
    assert workers["decode.0"]["kv_usage"] is not None
    assert workers["decode.0"]["itl_s"] > 0
    assert workers["prefill.0"]["kv_usage"] is None  # a mocker exports it only for decode
    assert document["totals"]["request_rate"] is not None
    assert {event["kind"] for event in document["events"]} == {"start", "ready"}


@pytest.mark.parametrize("width", [80, 160])
def test_top_in_a_terminal_shows_the_graph_and_follows_keys(
    mockers: GraphProcess, width: int
) -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "top", str(mockers.graph)]
    env = {"PENSTOCK_STATE_HOME": str(mockers.log.parent / "state")}
    with Terminal(command, width, env=env) as terminal:
        columns = [column.title for column in columns_for(width)]
        title = f" {mockers.graph.name}: ready, http://127.0.0.1:"
        terminal.wait_for(
            lambda found: (
                columns in [re.split(r"\s{2,}", line.strip()) for line in found]
                and found[0].startswith(title)
                and any("→ decode 1/1" in line for line in found)
                and "decode.0" in processes(found)
                and "q Quit" in found[-1]
            )
        )
        terminal.press("s")
        ascending = ["decode.0", "frontend.0"]
        terminal.wait_for(
            lambda found: (
                processes(found)[:2] == ascending and any("process ▲" in one for one in found)
            )
        )
        terminal.press("r")
        terminal.wait_for(
            lambda found: (
                processes(found)[:1] == ["prefill.1"] and any("process ▼" in one for one in found)
            )
        )
        terminal.press("?")
        terminal.wait_for(lambda found: any("close this help" in one for one in found))
        terminal.press("\x1b")
        terminal.wait_for(lambda found: not any("close this help" in one for one in found))
        terminal.press("q")
        assert terminal.wait_ended() == 0
    assert mockers.state()["phase"] == "ready"  # the graph runs on


def processes(lines: list[str]) -> list[str]:
    """The processes in the order of the table."""
    words = [(line.split() or [""])[0] for line in lines]
    return [word for word in words if re.fullmatch(r"(frontend|prefill|decode)\.\d+", word)]


def test_logs_of_a_component_are_prefixed_with_its_processes(mockers: GraphProcess) -> None:
    shown = mockers.penstock("logs", str(mockers.graph), "prefill", "--lines", "3")
    assert shown.returncode == 0, shown.stderr
    names = {line.split(" | ")[0].strip() for line in shown.stdout.splitlines()}
    assert names == {"prefill.0", "prefill.1"}


def test_logs_of_an_unknown_name_list_the_known_ones(mockers: GraphProcess) -> None:
    shown = mockers.penstock("logs", str(mockers.graph), "decod")
    assert shown.returncode == 2
    assert "decode.0" in shown.stderr


def test_a_second_up_of_the_same_graph_is_an_error_and_changes_nothing(
    mockers: GraphProcess, client: OpenAI
) -> None:
    before = mockers.state()
    second = mockers.penstock("up", str(mockers.graph), "--port", "0")
    assert second.returncode == 10
    assert "already up" in second.stderr
    assert {r["pid"] for r in mockers.state()["replicas"]} == {r["pid"] for r in before["replicas"]}
    assert client.models.list().data


def test_a_port_in_use_is_reported_before_anything_starts(
    mockers: GraphProcess, tmp_path: Path
) -> None:
    graph = tmp_path / "other.yaml"
    graph.write_text(QUICKSTART.read_text())
    port = str(mockers.state()["endpoint"]).removesuffix("/v1").rsplit(":", 1)[1]
    refused = mockers.penstock("up", str(graph), "--port", port)
    assert refused.returncode == 9
    assert f"127.0.0.1:{port}" in refused.stderr
    assert "--port" in refused.stderr


DOCUMENTED = json.loads((RESULTS / "client_matrix.json").read_text())["engines"]["mocker"]


@pytest.fixture(scope="module")
def endpoint(mockers: GraphProcess) -> Endpoint:
    base_url = str(mockers.state()["endpoint"])
    return Endpoint(base_url, *model_of(base_url))


def test_the_table_of_local_engines_has_every_measured_request() -> None:
    assert list(DOCUMENTED["parameters"]) == list(PARAMETERS)


@pytest.mark.parametrize("request_of", PARAMETERS)
def test_the_mocker_does_with_a_parameter_what_the_table_says(
    endpoint: Endpoint, request_of: str
) -> None:
    assert measure(endpoint, request_of) == DOCUMENTED["parameters"][request_of]


def test_nothing_is_ignored_silently() -> None:
    assert IGNORED not in DOCUMENTED["parameters"].values()


def test_a_prompt_that_leaves_less_than_the_default_limit_is_answered(endpoint: Endpoint) -> None:
    answer = endpoint.completion([5] * (endpoint.context_length - 20))
    assert answer.usage.completion_tokens == 20
