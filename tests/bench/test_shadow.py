"""`penstock bench shadow` finds changes of a deployment, and nothing between equal deployments."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.bench.shadow_server import (
    CALL,
    MODEL,
    TOOL,
    Reply,
    Script,
    ShadowServer,
    prompts,
    reply_of,
    write_requests,
)
from tests.support.command_line import penstock
from tests.support.outputs import read_output
from tests.support.waiting import LIMIT_S

COUNT = 30
INVALID, FINDING, UNDECIDED = 3, 20, 21


def shadow(
    path: Path, first: ShadowServer, second: ShadowServer, *options: str
) -> CompletedProcess[str]:
    with ExitStack() as opened:
        urls = [opened.enter_context(each.running()).url for each in (first, second)]
        return penstock("bench", "shadow", *urls, "--file", str(path), *options)


def statuses(done: CompletedProcess[str]) -> dict[str, str]:
    document = read_output("bench", done.stdout)
    return {verdict["name"]: verdict["status"] for verdict in document["classes"]}


@pytest.mark.slow
def test_equal_deployments_have_no_finding(tmp_path: Path) -> None:
    path = write_requests(tmp_path / "r.jsonl", prompts(COUNT))
    first, second = ShadowServer(), ShadowServer(model="another-name")
    done = shadow(path, first, second, "--json")
    assert done.returncode == 0, done.stderr
    document = read_output("bench", done.stdout)
    assert document["verdict"] == "no_findings"
    assert (document["compared"], document["repeated"]) == (COUNT, COUNT)
    assert {verdict["differing"] for verdict in document["classes"]} == {0}
    assert {latency["metric"] for latency in document["latencies"]} >= {"ttft_mean", "e2e_mean"}
    assert sorted(first.prompts) == sorted(prompts(COUNT) * 2)
    assert sorted(second.prompts) == sorted(prompts(COUNT))
    assert {body["model"] for body in first.bodies} == {MODEL}
    assert {body["model"] for body in second.bodies} == {"another-name"}
    assert all(body["temperature"] == body["seed"] == 0 for body in second.bodies)


def changed(change: Callable[[Reply], Reply], share: float = 1.0) -> Script:
    """A server that changes its replies to a share of the prompts."""

    def script(prompt: str, _: Mapping[str, Any]) -> Reply:
        is_changed = random.Random(prompt).random() < share
        return change(reply_of(prompt)) if is_changed else reply_of(prompt)

    return script


FOUND = {
    "another chat template": ("prompt_tokens", lambda each: replace(each, prompt_tokens=9), 0.05),
    "a shorter context": ("error", lambda each: Reply(status=400), 0.05),
    "failures": ("error", lambda each: Reply(status=503), 0.6),
    "perturbed weights": ("text", lambda each: replace(each, text=each.text + "!"), 0.6),
    "no stop token": ("finish_reason", lambda each: replace(each, finish_reason="length"), 0.6),
    "longer output": ("length", lambda each: replace(each, tokens=9), 0.6),
    "a reasoning parser": ("reasoning", lambda each: replace(each, reasoning="Hm."), 0.6),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_a_change_is_found(name: str, tmp_path: Path) -> None:
    kind, change, share = FOUND[name]
    path = write_requests(tmp_path / "r.jsonl", prompts(COUNT))
    done = shadow(path, ShadowServer(), ShadowServer(script=changed(change, share)), "--json")
    assert done.returncode == FINDING
    assert statuses(done)[kind] == "finding"


def with_call(call: Mapping[str, str] | None) -> Script:
    if call is None:
        return lambda *_: Reply(text=f"<tool_call>{json.dumps(CALL)}</tool_call>")
    return lambda *_: Reply(call=call, finish_reason="tool_calls")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "call", "detail"),
    [
        ("tool_calls", None, "look_up → none"),
        ("tool_calls", {**CALL, "name": "a secret"}, "look_up → unknown tool"),
        ("tool_arguments", {**CALL, "arguments": '{"word": '}, "keys: 1 → invalid JSON"),
        ("tool_arguments", {**CALL, "arguments": '{"w": 1, "x": 2}'}, "keys: 1 → keys: 2"),
    ],
)
def test_a_change_of_tool_calls_is_found_in_few_requests(
    kind: str, call: Mapping[str, str] | None, detail: str, tmp_path: Path
) -> None:
    path = write_requests(tmp_path / "r.jsonl", prompts(8), tools=[TOOL])
    servers = ShadowServer(script=with_call(CALL)), ShadowServer(script=with_call(call))
    done = shadow(path, *servers, "--json")
    assert done.returncode == FINDING
    (kind_verdict,) = (
        verdict for verdict in json.loads(done.stdout)["classes"] if verdict["name"] == kind
    )
    assert kind_verdict["status"] == "finding"
    assert kind_verdict["examples"][0]["detail"] == detail


def test_invalid_json_is_found(tmp_path: Path) -> None:
    form = {"type": "json_object"}
    path = write_requests(tmp_path / "r.jsonl", prompts(8), response_format=form)
    first = ShadowServer(script=lambda *_: Reply(text='{"a": 1}'))
    second = ShadowServer(script=lambda *_: Reply(text='{"a": 1'))
    done = shadow(path, first, second, "--json")
    assert statuses(done)["json"] == "finding"


@pytest.mark.slow
def test_random_texts_are_not_compared_and_other_changes_are_found(tmp_path: Path) -> None:
    """As those of mockers: equal ones have no finding."""
    chance = random.Random(1)

    def script(prompt_tokens: int) -> Script:
        return lambda *_: Reply(text=str(chance.random()), prompt_tokens=prompt_tokens)

    path = write_requests(tmp_path / "r.jsonl", prompts(COUNT))
    done = shadow(path, ShadowServer(script=script(10)), ShadowServer(script=script(10)))
    assert done.returncode == 0, done.stderr
    assert "text: cannot be compared, as A differs from itself in 30 of 30 requests" in done.stdout
    assert "verdict: no finding, but the texts cannot be compared" in done.stdout
    done = shadow(path, ShadowServer(script=script(10)), ShadowServer(script=script(11)))
    assert done.returncode == FINDING
    assert "verdict: B differs from A: prompt tokens" in done.stdout


def test_with_two_requests_there_is_no_verdict_about_texts(tmp_path: Path) -> None:
    path = write_requests(tmp_path / "r.jsonl", prompts(2))
    done = shadow(path, ShadowServer(), ShadowServer())
    assert done.returncode == UNDECIDED
    assert "Fix: Send more requests, and raise --repeats." in done.stderr
    done = shadow(path, ShadowServer(), ShadowServer(), "--repeats", "0")
    assert "not measured" in done.stdout


@pytest.mark.slow
def test_texts_are_only_printed_on_request(tmp_path: Path) -> None:
    path = write_requests(tmp_path / "r.jsonl", [f"private {n}" for n in range(COUNT)])
    other = ShadowServer(script=lambda *_: Reply(text="Another \x1b[31mtext"))
    done = shadow(path, ShadowServer(), other)
    length = len(reply_of("private 0").text)
    assert f"request 1: content: {length} → 17 characters, from character 2 on" in done.stdout
    assert "private" not in done.stdout + done.stderr
    done = shadow(path, ShadowServer(), other, "--show-text")
    assert "  A: 'An answer to private 0, with 9 c" in done.stdout
    assert "  B: 'Another \\x1b[31mtext'" in done.stdout


@pytest.mark.slow
def test_a_report_is_written_also_with_findings_and_has_texts_only_on_request(
    tmp_path: Path,
) -> None:
    path = write_requests(tmp_path / "r.jsonl", [f"private {n}" for n in range(COUNT)])
    report = tmp_path / "r.html"
    other = ShadowServer(script=lambda *_: Reply(text="Another text"))
    done = shadow(path, ShadowServer(), other, "--report", str(report))
    assert done.returncode == FINDING
    assert "B differs from A: text" in report.read_text()
    assert "private 1" not in report.read_text()
    shadow(path, ShadowServer(), other, "--report", str(report), "--show-text")
    assert "An answer to private 1" in report.read_text()
    assert report.stat().st_mode & 0o777 == 0o600


def test_a_report_replaces_no_other_file(tmp_path: Path) -> None:
    path = write_requests(tmp_path / "r.jsonl", prompts(2))
    server = ShadowServer()
    done = shadow(path, server, ShadowServer(), "--report", str(path))
    assert (done.returncode, server.bodies) == (INVALID, [])
    assert "r.jsonl: already exists, and is not a report of penstock" in done.stderr
    link = tmp_path / "link.html"
    link.symlink_to(tmp_path / "gone.html")
    done = shadow(path, server, ShadowServer(), "--report", str(link))
    assert "link.html: already exists, and is not a report of penstock" in done.stderr
    assert link.is_symlink()
    both = ("--report", str(tmp_path / "new"), "--results", str(tmp_path / "new"))
    done = shadow(path, server, ShadowServer(), *both)
    assert f"--report: {both[1]} is also the file of --results" in done.stderr


def test_requests_are_sent_unchanged_on_request(tmp_path: Path) -> None:
    more = {"temperature": 0.7, "n": 2, "model": "own"}
    path = write_requests(tmp_path / "r.jsonl", prompts(8), **more)
    first = ShadowServer()
    done = shadow(path, first, ShadowServer(), "--as-sent", "--keep-model", "--concurrency", "4")
    assert done.returncode == 0, done.stderr
    bodies = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(body in bodies for body in first.bodies)
    assert "TTFT" not in done.stdout  # it was not streamed


def test_the_batch_format_names_requests_by_custom_id(tmp_path: Path) -> None:
    path = tmp_path / "batch.jsonl"
    lines = [
        {
            "custom_id": f"id-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"messages": [{"role": "user", "content": "hello"}], "stream": False},
        }
        for number in range(9)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    other = ShadowServer(script=lambda *_: Reply(text="Other", prompt_tokens=3))
    done = shadow(path, ShadowServer(), other)
    assert done.returncode == FINDING
    assert "  request id-0: 10 → 3" in done.stdout


@pytest.mark.slow
def test_the_repeat_waits_for_a_slow_request(tmp_path: Path) -> None:
    slow, count = "question 0", 40
    path = write_requests(tmp_path / "r.jsonl", prompts(count))
    has_all = threading.Event()

    def reply(prompt: str, _: object) -> Reply:
        if len(second.bodies) == count:
            has_all.set()
        assert prompt != slow or has_all.wait(LIMIT_S)
        return reply_of(prompt)

    first, second = ShadowServer(), ShadowServer(script=reply)
    done = shadow(path, first, second, "--concurrency", "8")
    assert f"compared: {count} of {count} requests, {count} sent to A twice" in done.stdout
    assert sorted(second.prompts) == sorted(prompts(count))
    assert sorted(first.prompts) == sorted(prompts(count) * 2)
