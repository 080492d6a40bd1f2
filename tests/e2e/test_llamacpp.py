"""quickstart.yaml: real text from llama.cpp, with KV that moves from prefill to decode workers.

The graph starts once. The last test kills workers.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphs import copy_graph
from penstock.drill.graph_process import GraphProcess
from penstock.environments.packaged_models import SMOLLM2
from penstock.metrics import parse
from tests.e2e.chats import chat, completed, events_of, post, text_of, verified
from tests.support.local_graphs import running_graph, scaled
from tests.support.waiting import wait_for

GREEDY = {"temperature": 0, "seed": 1}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 1, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
# Probes that take long or that another test of this file makes; `make nightly` runs all.
PROBES = ("workers", "disaggregation", "kv-transfer", "prefix-cache", "block-size")

pytestmark = [pytest.mark.needs("llamacpp"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphProcess]:
    folder = tmp_path_factory.mktemp("llamacpp")
    with running_graph(copy_graph("quickstart", folder), folder, "--port", "0", env={}) as process:
        yield process


def _gauge(graph: GraphProcess, program: str, name: str) -> float:
    """The sum over the workers of ``program``."""
    total = 0.0
    for row in graph.state()["replicas"]:
        if row["program"] == program:
            url = f"http://127.0.0.1:{row['system_port']}/metrics"
            samples = parse(httpx.get(url, timeout=10, trust_env=False).text)
            total += sum(sample.value for sample in samples if sample.name == name)
    return total


def test_it_answers_correctly_and_ends_its_answer(graph: GraphProcess) -> None:
    answer = completed(graph, "What is the capital of Germany?", **GREEDY)
    assert text_of(answer) == "The capital of Germany is Berlin."
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_stream_has_the_same_text_and_a_usage_with_cached_tokens(graph: GraphProcess) -> None:
    question = "What is the capital of Germany?"
    plain = completed(graph, question, **GREEDY)
    more: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    events = events_of(chat(graph, question, **more, **GREEDY))
    texts = [c["delta"].get("content") or "" for e in events for c in e["choices"]]
    assert "".join(texts) == text_of(plain)
    assert len([text for text in texts if text]) > 4, "it comes in pieces"
    usage = next(e["usage"] for e in events if e.get("usage"))
    assert usage["completion_tokens"] == plain["usage"]["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


def test_a_request_without_an_output_limit_gets_a_default_that_its_response_states(
    graph: GraphProcess,
) -> None:
    header, limit = "x-penstock-default-max-tokens", "512"
    endless: dict[str, Any] = {"ignore_eos": True}
    response = chat(graph, "Count.", **endless)
    assert response.headers[header] == limit
    assert response.json()["choices"][0]["finish_reason"] == "length"
    assert response.json()["usage"]["completion_tokens"] == int(limit)
    given = chat(graph, "Count.", **endless, max_tokens=int(limit) + 8)
    assert header not in given.headers
    assert given.json()["usage"]["completion_tokens"] == int(limit) + 8
    for stream in (False, True):
        body = {"input": "What is the capital of Germany?", "stream": stream, "temperature": 0}
        response = post(graph, "responses", **body)
        assert response.headers[header] == limit, response.text


def test_emoji_and_cjk_arrive_whole(graph: GraphProcess) -> None:
    answer = completed(graph, "Repeat: 😀 漢字", guided_choice=["😀 漢字かな", "né 👩‍👧"], **GREEDY)
    assert text_of(answer) in ("😀 漢字かな", "né 👩‍👧")


def test_a_seed_repeats_the_output_and_another_one_changes_it(graph: GraphProcess) -> None:
    one, two, other = (
        text_of(completed(graph, "Tell a story.", temperature=1.2, seed=seed, max_tokens=24))
        for seed in (5, 5, 6)
    )
    assert one == two
    assert one != other


def test_a_json_schema_is_kept(graph: GraphProcess) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA, "strict": True}}
    answer = completed(graph, "Make up a person.", response_format=form, max_tokens=80, **GREEDY)
    made = json.loads(text_of(answer))
    assert sorted(made) == ["age", "name"]
    assert 1 <= made["age"] <= 99
    assert answer["choices"][0]["finish_reason"] == "stop"


def _invalid(age: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Requests whose schema or grammar llama.cpp cannot apply: paths and parameters."""
    schema = {"type": "object", "properties": {"age": age}}
    function = {"name": "f", "parameters": schema}
    tools = {"tools": [{"type": "function", "function": function}]}
    form = {"type": "json_schema", "name": "p", "schema": schema}
    chat = {"messages": [{"role": "user", "content": "Make up a person."}], "max_tokens": 8}
    completion = {"prompt": "Hello", "max_tokens": 8}
    return [
        (
            "chat/completions",
            chat | {"response_format": {"type": form["type"], form["type"]: form}},
        ),
        ("chat/completions", chat | tools | {"tool_choice": "required"}),
        (
            "chat/completions",
            chat | tools | {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        ("responses", {"input": "Hi", "max_output_tokens": 8, "text": {"format": form}}),
        ("completions", completion | {"guided_json": schema}),
        ("completions", completion | {"guided_grammar": 'root ::= "b" "a"{5,2}'}),
    ]


def test_a_schema_that_llama_cpp_cannot_apply_is_a_400_with_the_reason(graph: GraphProcess) -> None:
    """Also one that llama.cpp would take all memory for before it refuses it."""
    endless = {"type": "array", "items": {"type": "integer"}, "maxItems": 1_000_000_000}
    pids, peak_mib = graph.pids("prefill") + graph.pids("decode"), _peak_mib(graph)
    for age, reason in (({"type": "intger"}, "Invalid type: intger"), (endless, "at most 10000")):
        for stream, (path, body) in product((False, True), _invalid(age)):
            response = post(graph, path, stream=stream, **body)
            assert response.status_code == 400, (path, body, response.text)
            error = response.json()["error"]
            assert error["type"] == "invalid_request_error"
            assert reason in error["message"] or "{5,2}" in error["message"]
    assert graph.pids("prefill") + graph.pids("decode") == pids
    assert _peak_mib(graph) < peak_mib + 200


def _peak_mib(graph: GraphProcess) -> float:
    """The largest memory that a worker ever used."""
    pids = graph.pids("prefill") + graph.pids("decode")
    lines = (Path(f"/proc/{pid}/status").read_text() for pid in pids)
    return max(int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) / 1024 for text in lines)  # type: ignore[index]


def test_a_required_tool_is_called(graph: GraphProcess) -> None:
    more: dict[str, Any] = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 80}
    answer = completed(graph, "How is the weather in Paris?", **more, **GREEDY)
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert not choice["message"]["content"], "nothing follows the call"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert list(json.loads(call["function"]["arguments"])) == ["city"]


@pytest.mark.parametrize("question", ["Hi!", "What is the capital of Japan?"])
def test_text_ends_although_a_tool_is_offered(graph: GraphProcess, question: str) -> None:
    """llama.cpp tells llguidance of `<|endoftext|>` only, with which the model ends no text."""
    (choice,) = completed(graph, question, tools=[TOOL], max_tokens=100, **GREEDY)["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"]


def test_a_tool_without_parameters_is_called_with_none(graph: GraphProcess) -> None:
    """With any white space between the braces, the model generates nothing else."""
    tool = {"type": "function", "function": {"name": "ping"}}
    answer = completed(
        graph, "Ping the server.", tools=[tool], tool_choice="required", max_tokens=60
    )
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "ping", "arguments": "{}"}


def test_the_tools_of_auto_are_in_the_prompt_and_a_call_in_the_output_is_parsed(
    graph: GraphProcess,
) -> None:
    """The grammar stands for a model that decides to call the tool."""
    question = "How is the weather in Paris?"
    without = completed(graph, question, max_tokens=1)
    offered: dict[str, Any] = {"tools": [TOOL], "max_tokens": 60, **GREEDY}
    response = chat(graph, question, **offered)
    assert "x-penstock-ignored" not in response.headers
    tokens = response.json()["usage"]["prompt_tokens"]
    assert tokens > without["usage"]["prompt_tokens"] + 50
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    forced = completed(graph, question, **offered, guided_grammar=f"root ::= {json.dumps(text)}")
    (choice,) = forced["choices"]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}
    unused = completed(graph, question, tools=[TOOL], tool_choice="none", max_tokens=1)
    assert unused["usage"]["prompt_tokens"] == without["usage"]["prompt_tokens"]


def test_the_result_of_a_tool_is_answered_though_the_template_has_no_tools(
    graph: GraphProcess,
) -> None:
    """SmolLM2's own template fails at a message without content, and renders no tools."""
    question = {"role": "user", "content": "How is the weather in Paris?"}
    call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "c", "content": "sunny"}
    prompts = set()
    for content in (None, ""):
        turn = {"role": "assistant", "content": content, "tool_calls": [call]}
        more = {"messages": [question, turn, result], "tools": [TOOL], "max_tokens": 5}
        response = chat(graph, "", **more)
        assert response.status_code == 200, response.text
        assert "x-penstock-ignored" not in response.headers
        prompts.add(response.json()["usage"]["prompt_tokens"])
    items = [
        question,
        {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "sunny"},
    ]
    tool = {"type": "function", **TOOL["function"]}
    response = post(graph, "responses", input=items, tools=[tool], max_output_tokens=5)
    assert response.status_code == 200, response.text
    prompts.add(response.json()["usage"]["input_tokens"])
    assert len(prompts) == 1, "all three are the same conversation"


def test_log_probabilities_are_those_of_the_tokens(graph: GraphProcess) -> None:
    answer = completed(graph, "Say hello.", logprobs=True, top_logprobs=2, max_tokens=6, **GREEDY)
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == answer["usage"]["completion_tokens"]
    for token in content:
        best = token["top_logprobs"][0]
        assert token["logprob"] == pytest.approx(best["logprob"], abs=1e-3), "greedy takes the best"
        assert -20 < token["logprob"] <= 0


def test_an_over_long_prompt_is_a_400_with_both_lengths(graph: GraphProcess) -> None:
    response = chat(graph, "word " * 3000)
    assert response.status_code == 400
    assert "maximum context length is 2048 tokens" in response.text


def test_a_client_that_leaves_frees_its_slot(graph: GraphProcess) -> None:
    url = f"{graph.state()['endpoint']}/chat/completions"
    messages = [{"role": "user", "content": "Count to a thousand."}]
    body = {"model": SMOLLM2, "messages": messages, "stream": True, "max_tokens": 1500}
    body |= {"ignore_eos": True, **GREEDY}
    before = _gauge(graph, "decode", "llamacpp_generated_tokens_total")
    with (
        httpx.Client(timeout=60, trust_env=False) as client,
        client.stream("POST", url, json=body) as response,
    ):
        events = (line for line in response.iter_lines() if line.startswith("data: {"))
        for _ in range(4):  # the first ones come from the prefill worker
            next(events)
        assert _gauge(graph, "decode", "llamacpp_requests_running") == 1
    wait_for(
        lambda: _gauge(graph, "decode", "llamacpp_requests_running") == 0,
        "no request that runs",
        look_s=0.1,
    )
    assert _gauge(graph, "decode", "llamacpp_generated_tokens_total") - before < 1500


def test_prompts_whose_clients_have_left_are_not_computed(tmp_path: Path) -> None:
    """An aggregated worker, which Dynamo tells that a client has left."""
    sets = ("prefill=null", "decode=null", "worker.replicas=1")
    arguments = ["--port", "0", *(word for text in sets for word in ("--set", text))]
    copy = copy_graph("quickstart", tmp_path)
    with running_graph(copy, tmp_path, *arguments, env={}) as process:
        found = verified(process, "cancel")["cancel"]
    assert found.startswith("pass"), found


def test_the_probes_of_verify_pass(graph: GraphProcess) -> None:
    assert [v for v in verified(graph, *PROBES).values() if not v.startswith("pass")] == []


@pytest.mark.nightly
def test_every_probe_of_verify_passes_or_has_nothing_to_test(graph: GraphProcess) -> None:
    unknown = [name for name, text in verified(graph).items() if not text.startswith("pass")]
    assert sorted(unknown) == ["reasoning-parser", "tool-call-parser", "transport"]


@pytest.mark.destroys_graph
def test_no_request_is_lost_when_a_decode_worker_is_killed(graph: GraphProcess) -> None:
    """The frontend migrates the streams to the other decode worker."""
    scaled(graph, prefill=2, decode=2)
    streams = 6
    began, victim = threading.Semaphore(0), graph.pids("decode")[0]
    with ThreadPoolExecutor(streams) as pool:
        running = [pool.submit(_stream, graph, f"Tell story {n}.", began) for n in range(streams)]
        for _ in range(streams // 2):
            assert began.acquire(timeout=60)
        os.kill(victim, signal.SIGKILL)
        ends = [future.result(120) for future in running]
    assert ends == [("length", 40)] * streams
    graph.wait_for(lambda s: victim not in {r["pid"] for r in s["replicas"]})
    graph.wait_counts(60, prefill=2, decode=2)


def _stream(graph: GraphProcess, text: str, began: threading.Semaphore) -> tuple[str, int]:
    """How a response ended, or its error, and the tokens of its usage."""
    body = {"model": SMOLLM2, "messages": [{"role": "user", "content": text}], "stream": True}
    body |= {"max_tokens": 40, "ignore_eos": True, "stream_options": {"include_usage": True}}
    reason, tokens = "", 0
    url = f"{graph.state()['endpoint']}/chat/completions"
    with (
        httpx.Client(timeout=120, trust_env=False) as client,
        client.stream("POST", url, json=body) as response,
    ):
        for line in response.iter_lines():
            if line.startswith("data: {"):
                began.release()
                event = json.loads(line[6:])
                if "error" in event:
                    return str(event), tokens
                tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
                reasons = [c["finish_reason"] for c in event["choices"] if c["finish_reason"]]
                reason = reasons[0] if reasons else reason
    return reason, tokens
