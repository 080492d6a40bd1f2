"""The endpoint with the official client, and status and logs, on one running quickstart."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from openai import APIStatusError, OpenAI
from openai.types import CompletionUsage

from penstock.drill.graph_process import GraphProcess
from tests.support.local_graphs import QUICKSTART, left, without_envoy

MODEL = "openai/gpt-oss-20b"
# The packaged tokenizer knows English: four words are about six tokens.
LONG_PREFIX = "The pressure at the gate rises with the level of the lake behind it. " * 160


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphProcess]:
    folder = tmp_path_factory.mktemp("openai")
    with GraphProcess(QUICKSTART, folder, ["--port", "0"], without_envoy(folder)) as graph:
        graph.wait_ready()
        yield graph


@pytest.fixture
def client(running: GraphProcess) -> OpenAI:
    return OpenAI(base_url=str(running.state()["endpoint"]), api_key="none", max_retries=0)


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
    def ask(question: str) -> tuple[CompletionUsage, int]:
        answer = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": LONG_PREFIX + question}],
            max_tokens=4,
            extra_body={"nvext": {"extra_fields": ["worker_id"]}},
        )
        assert answer.usage is not None
        nvext = answer.model_extra["nvext"]  # type: ignore[index]
        return answer.usage, nvext["worker_id"]["prefill_worker_id"]

    first, first_worker = ask("Why?")
    second, second_worker = ask("Since when?")
    assert first.prompt_tokens >= 2000
    assert _cached(first) == 0
    assert _cached(second) >= 1900
    assert second_worker == first_worker


def _cached(usage: CompletionUsage) -> int:
    assert usage.prompt_tokens_details is not None
    return usage.prompt_tokens_details.cached_tokens or 0


def test_every_listening_socket_of_every_process_is_on_loopback(running: GraphProcess) -> None:
    state = Path(running.log.parent)
    processes = left(state)
    assert len(processes) >= 5  # broker, frontend, two prefill, one decode
    listening = [
        c.laddr
        for process in processes
        for c in process.net_connections(kind="tcp")
        if c.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= len(processes)
    assert {address.ip for address in listening} == {"127.0.0.1"}


def test_status_shows_every_process_and_the_registered_workers(running: GraphProcess) -> None:
    shown = running.penstock("status", str(running.graph))
    assert shown.returncode == 0, shown.stderr
    for name in ("frontend.0", "prefill.0", "prefill.1", "decode.0", "event-broker"):
        assert name in shown.stdout
    assert "registered workers: 3" in shown.stdout


def test_logs_of_a_component_are_prefixed_with_its_processes(running: GraphProcess) -> None:
    shown = running.penstock("logs", str(running.graph), "prefill", "-n", "3")
    assert shown.returncode == 0, shown.stderr
    names = {line.split(" | ")[0].strip() for line in shown.stdout.splitlines()}
    assert names == {"prefill.0", "prefill.1"}


def test_logs_of_an_unknown_name_list_the_known_ones(running: GraphProcess) -> None:
    shown = running.penstock("logs", str(running.graph), "decod")
    assert shown.returncode == 11
    assert "decode.0" in shown.stderr


def test_a_second_up_of_the_same_graph_is_an_error_and_changes_nothing(
    running: GraphProcess, client: OpenAI
) -> None:
    before = running.state()
    second = running.penstock("up", str(running.graph), "--port", "0")
    assert second.returncode == 10
    assert "already up" in second.stderr
    assert {r["pid"] for r in running.state()["replicas"]} == {r["pid"] for r in before["replicas"]}
    assert client.models.list().data


def test_a_port_in_use_is_reported_before_anything_starts(
    running: GraphProcess, tmp_path: Path
) -> None:
    graph = tmp_path / "other.yaml"
    graph.write_text(QUICKSTART.read_text())
    port = str(running.state()["endpoint"]).removesuffix("/v1").rsplit(":", 1)[1]
    refused = running.penstock("up", str(graph), "--port", port)
    assert refused.returncode == 9
    assert f"127.0.0.1:{port}" in refused.stderr
    assert "--port" in refused.stderr


TABLE = (Path(__file__).parents[2] / "components/mocker-api.md").read_text()
ROWS = dict(re.findall(r"^\| ((?:chat|comp|resp|embed).*?) \| (.*) \|$", TABLE, re.MULTILINE))
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
NAMED = {"type": "function", "function": {"name": "f"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
CONTEXT = 8192


class Endpoint:
    """The requests of the table, as short calls."""

    def __init__(self, client: OpenAI) -> None:
        self.client = client

    def chat(self, text: str = "Hello", **options: Any) -> Any:
        messages = [{"role": "user", "content": text}]
        return self.client.chat.completions.create(model=MODEL, messages=messages, **options)

    def completion(self, **options: Any) -> Any:
        return self.client.completions.create(model=MODEL, prompt="Hello", **options)

    def response(self, **options: Any) -> Any:
        return self.client.responses.create(model=MODEL, input="Hello", **options)

    def is_repeatable(self, **options: Any) -> bool:
        texts = {self.chat(max_tokens=16, **options).choices[0].message.content for _ in range(2)}
        return len(texts) == 1

    def is_stopped(self) -> bool:
        (choice,) = self.chat(max_tokens=400, stop=["e"]).choices
        return choice.finish_reason == "stop" and "e" not in choice.message.content

    def calls(self, choice: Any) -> bool:
        message = self.chat(max_tokens=16, tools=[TOOL], tool_choice=choice).choices[0].message
        return bool(message.tool_calls)

    def is_json(self, response_format: Any) -> bool:
        text = self.chat(max_tokens=16, response_format=response_format).choices[0].message.content
        try:
            return isinstance(json.loads(text), dict)
        except ValueError:
            return False

    def streams(self) -> bool:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        return bool(list(self.chat(max_tokens=5, **options))[-1].usage.completion_tokens == 5)

    def is_shortened(self) -> str:
        prompt = [5] * (CONTEXT - 32)
        usage = self.client.completions.create(model=MODEL, prompt=prompt, max_tokens=99).usage
        return (
            "shortened to the context length"
            if usage and usage.total_tokens == CONTEXT
            else "ignored"
        )


# Row → whether the parameter is honored, or another result.
MEASURES: dict[str, Callable[[Endpoint], bool | str]] = {
    "chat, `max_tokens`": lambda e: e.chat(max_tokens=5).usage.completion_tokens == 5,
    "chat, `max_completion_tokens`": (
        lambda e: e.chat(max_completion_tokens=5).usage.completion_tokens == 5
    ),
    "chat, no limit of the output": lambda e: bool(e.chat()),
    "chat, `stream` with `include_usage`": Endpoint.streams,
    "chat, prompt above the context length": (
        lambda e: bool(e.chat("Hello " * 20_000, max_tokens=5))
    ),
    "chat, `stop`": Endpoint.is_stopped,
    "chat, `n`": lambda e: len(e.chat(max_tokens=5, n=2).choices) == 2,
    "chat, `logprobs`": lambda e: bool(e.chat(max_tokens=5, logprobs=True).choices[0].logprobs),
    "chat, `seed`": lambda e: e.is_repeatable(seed=1),
    "chat, `temperature` of 0": lambda e: e.is_repeatable(temperature=0),
    "chat, `tools` with `tool_choice` of `required`": lambda e: e.calls("required"),
    "chat, `tools` with a named `tool_choice`": lambda e: e.calls(NAMED),
    "chat, `response_format` of `json_object`": lambda e: e.is_json({"type": "json_object"}),
    "chat, `response_format` of `json_schema`": lambda e: e.is_json(JSON_SCHEMA),
    "completions, `max_tokens`": lambda e: e.completion(max_tokens=5).usage.completion_tokens == 5,
    "completions, `max_tokens` above the rest of the context": Endpoint.is_shortened,
    "completions, no limit of the output": lambda e: bool(e.completion()),
    "completions, `n`": lambda e: len(e.completion(max_tokens=5, n=2).choices) == 2,
    "completions, `logprobs`": (
        lambda e: bool(e.completion(max_tokens=5, logprobs=2).choices[0].logprobs)
    ),
    "completions, `echo`": (
        lambda e: e.completion(max_tokens=5, echo=True).choices[0].text.startswith("Hello")
    ),
    "responses, `max_output_tokens`": (
        lambda e: e.response(max_output_tokens=5).usage.output_tokens == 5
    ),
    "responses, no limit of the output": lambda e: bool(e.response()),
    "embeddings": lambda e: bool(e.client.embeddings.create(model=MODEL, input="Hello")),
}


def test_the_table_of_the_mocker_has_every_measured_request() -> None:
    assert list(ROWS) == list(MEASURES)


@pytest.mark.parametrize("request_of", MEASURES)
def test_the_mocker_does_with_a_parameter_what_the_table_says(
    client: OpenAI, request_of: str
) -> None:
    try:
        measured = MEASURES[request_of](Endpoint(client))
    except APIStatusError as error:
        is_described = isinstance(error.body, dict) and {"message", "type"} <= set(error.body)
        measured = str(error.status_code) if is_described else "an error without a body"
    if isinstance(measured, bool):
        measured = "honored" if measured else "ignored"
    assert measured == ROWS[request_of]
