"""Files, endpoints and responses that `penstock bench shadow` reports clearly, without losing any
result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.bench.shadow import client
from tests.bench.shadow_server import (
    MODEL,
    Reply,
    ShadowServer,
    prompts,
    reply_of,
    write_requests,
)
from tests.bench.test_shadow import shadow
from tests.support.command_line import penstock

pytestmark = pytest.mark.slow

USAGE, INPUT, NOT_UP, NOT_VERIFIED, BENCH, FINDING = 2, 3, 11, 13, 19, 20
CHAT = '{"messages": [{"role": "user", "content": "hello"}]}'

BAD_FILES = {
    "": "has no requests. Fix: Write one request body per line.",
    f"{CHAT}\n\n{{": ":3: is not JSON: ",
    f"{CHAT}\n[]": ":2: is a JSON array, not an object. Fix: Write a JSON object",
    "null": ":1: is null, not an object",
    "true": ":1: is a JSON boolean, not an object",
    '{"input": "x"}': ":1: has neither messages nor a prompt. Fix: Add messages",
    '{"messages": []}': ":1: messages is not a list with at least one message",
    '{"prompt": ""}': ":1: prompt is empty, or neither text nor a list",
    '{"url": "/v1/embeddings", "body": {"prompt": "a"}}': ":1: url is '/v1/embeddings', but the "
    "body is a request to /v1/completions. Fix: Set url to /v1/chat/completions for messages, or",
    '{"url": "/v1/completions", "body": 1}': ":1: body is not an object",
    '{"url": "/v1/completions", "body": {}, "id": 1}': ":1: unknown key 'id'",
    '{"custom_id": "2", "url": "/v1/completions", "body": {"prompt": "a"}}\n'
    + CHAT: ":2: custom_id '2' is also that of line 1",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_broken_file_is_reported_with_its_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    done = penstock("bench", "shadow", "http://a.invalid", "http://b.invalid", "--file", str(path))
    assert done.returncode == INPUT
    assert f"{path}" in done.stderr
    assert BAD_FILES[text] in done.stderr


def test_a_file_that_is_not_text_or_does_not_exist_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(CHAT.encode() + b"\n\xff")
    for file, message in ((path, ":2: is not UTF-8"), (tmp_path / "x", "cannot be read: No such")):
        done = penstock("bench", "shadow", "http://a.invalid", "http://b", "--file", str(file))
        assert done.returncode == INPUT
        assert message in done.stderr


def test_an_endpoint_that_dies_loses_no_result_and_the_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAUSE_S", 0.01)
    path = write_requests(tmp_path / "r.jsonl", prompts(12))
    results = tmp_path / "results.jsonl"
    first, dying = ShadowServer(), ShadowServer(dies_after=5)
    done = shadow(path, first, dying, "--results", str(results))
    assert done.returncode == BENCH
    assert "compared: 5 of 12 requests" in done.stdout
    assert "the run is incomplete: B (http://127.0.0.1:" in done.stderr
    assert "no longer responds: the connection ended early" in done.stderr
    assert results.stat().st_mode & 0o077 == 0
    with results.open("a") as file:
        file.write('{"id": "6", "a"')  # as a kill leaves it
    again, second = ShadowServer(), ShadowServer()
    done = shadow(path, again, second, "--results", str(results))
    assert done.returncode == 0, done.stderr
    assert "compared: 12 of 12 requests, 12 sent to A twice" in done.stdout
    assert sorted(second.prompts) == sorted(prompts(12)[5:])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--as-sent",), "without --as-sent"),
        (("--seed", "1"), "with --seed 0, not 1"),
        (("--repeats", "1"), "with --repeats 100, not 1"),
        (("--keep-model",), f"with model {MODEL}, not --keep-model"),
        ((), "with a different request file"),
    ],
)
def test_a_results_file_of_another_run_is_reported(
    options: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    path, results = tmp_path / "r.jsonl", tmp_path / "results.jsonl"
    with ShadowServer().running() as server:
        command = ("bench", "shadow", server.url, server.url, "--file", str(path))
        command = (*command, "--results", str(results))
        write_requests(path, prompts(2))
        penstock(*command)
        write_requests(path, prompts(2 if options else 3))
        done = penstock(*command, *options)
    assert done.returncode == INPUT
    assert f"{results}:1: belongs to a run {message}. Fix: Name a new file, or" in done.stderr


def test_an_unknown_model_is_reported_with_its_option(tmp_path: Path) -> None:
    path = write_requests(tmp_path / "r.jsonl", prompts(2))
    for option in ("--model", "--model-b"):
        done = shadow(path, ShadowServer(), ShadowServer(), option, "other")
        assert done.returncode == USAGE
        assert f"{option}: http://127.0.0.1:" in done.stderr
        assert f"lists no model other: {MODEL}. Fix: Name one of them." in done.stderr


def test_a_foreign_results_file_is_not_changed(tmp_path: Path) -> None:
    path = write_requests(tmp_path / "r.jsonl", prompts(2))
    other = tmp_path / "other.jsonl"
    other.write_text('{"a": 1}\n')
    done = shadow(path, ShadowServer(), ShadowServer(), "--results", str(other))
    assert done.returncode == INPUT
    assert f"{other}:1: is not a line of penstock bench shadow" in done.stderr
    assert other.read_text() == '{"a": 1}\n'
    done = shadow(path, ShadowServer(), ShadowServer(), "--results", str(path))
    assert done.returncode == USAGE


def test_results_with_line_ends_of_windows_continue_and_lose_nothing(tmp_path: Path) -> None:
    path, results = write_requests(tmp_path / "r.jsonl", prompts(2)), tmp_path / "results.jsonl"
    options = ("--results", str(results))
    shadow(path, ShadowServer(), ShadowServer(), *options)
    text = results.read_bytes().replace(b"\n", b"\r\n")
    results.write_bytes(text)
    first = ShadowServer()
    done = shadow(path, first, ShadowServer(), *options)
    assert "compared: 2 of 2 requests" in done.stdout
    assert first.bodies == []
    assert results.read_bytes() == text


def test_endpoints_that_do_not_serve_are_reported(tmp_path: Path) -> None:
    path = write_requests(tmp_path / "r.jsonl", prompts(2))
    with ShadowServer().running() as server:
        dead = "http://127.0.0.1:9"
        done = penstock("bench", "shadow", server.url, dead, "--file", str(path))
    assert done.returncode == NOT_VERIFIED
    assert f"{dead}: nothing listens there: connection refused" in done.stderr
    done = penstock("bench", "shadow", "./missing.yaml", dead, "--file", str(path))
    assert done.returncode == NOT_UP


def test_each_endpoint_gets_its_own_key_and_none_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_requests(tmp_path / "r.jsonl", prompts(8))
    first, second = ShadowServer(key="key-of-a"), ShadowServer(key="key-of-b")
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a")
    done = shadow(path, first, second)
    assert done.returncode == NOT_VERIFIED
    assert "rejected the request: /v1/models returned HTTP 401" in done.stderr
    monkeypatch.setenv("OPENAI_API_KEY_B", "key-of-b")
    results = tmp_path / "results.jsonl"
    done = shadow(path, first, second, "--results", str(results), "--json")
    assert done.returncode == 0, done.stderr
    assert "key-of" not in done.stdout + done.stderr + results.read_text()


BAD_REPLIES = {
    "HTML": (Reply(raw=b"<html>", headers={"Content-Type": "text/html"}), "the response is text/"),
    "not JSON": (
        Reply(raw=b"{", headers={"Content-Type": "application/json"}),
        "the response is not JSON",
    ),
    "no choices": (
        Reply(raw=b'{"usage": {}}', headers={"Content-Type": "application/json"}),
        "the response has no choices",
    ),
    "an error": (
        Reply(raw=b'{"error": "x"}', headers={"Content-Type": "application/json"}),
        "an error in the response",
    ),
    "a redirect": (
        Reply(status=307, headers={"Location": "http://example.invalid/"}),
        "HTTP 307, a redirect, which is not followed",
    ),
    "cut": (Reply(text="abcdef", is_cut=True), "the stream ended early"),
    "slow": (Reply(is_silent=True), "no complete response within 1 s"),
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_a_response_that_is_no_completion_counts_as_failed(name: str, tmp_path: Path) -> None:
    reply, reason = BAD_REPLIES[name]
    path = write_requests(tmp_path / "r.jsonl", prompts(8))
    timeout = "1s" if name == "slow" else "60s"
    options = ("--request-timeout", timeout, "--concurrency", "8")
    second = ShadowServer(script=lambda *_: reply)
    done = shadow(path, ShadowServer(), second, *options)
    assert done.returncode == FINDING, done.stderr
    assert f"B: 8 requests failed: {reason}" in done.stdout
    assert "request 1: ok → " in done.stdout
    assert "only one succeeds: Read the log of the endpoint that fails." in done.stdout


def test_two_endpoints_that_fail_all_requests_are_no_finding(tmp_path: Path) -> None:
    path = write_requests(tmp_path / "r.jsonl", prompts(8))
    servers = [ShadowServer(script=lambda *_: Reply(status=500)) for _ in range(2)]
    done = shadow(path, servers[0], servers[1])
    assert done.returncode == BENCH
    assert "both endpoints failed all requests: HTTP 500" in done.stderr


def test_without_usage_the_prompt_tokens_are_not_compared(tmp_path: Path) -> None:
    def script(prompt: str, _: object) -> Reply:
        choice = {"message": {"content": reply_of(prompt).text}, "finish_reason": "stop"}
        body = json.dumps({"choices": [choice]}).encode()
        return Reply(raw=body, headers={"Content-Type": "application/json"})

    path = write_requests(tmp_path / "r.jsonl", prompts(8))
    done = shadow(path, ShadowServer(script=script), ShadowServer())
    assert "prompt tokens are not compared in 8 requests without usage" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--keep-model", "--model", "x"), "--keep-model cannot be combined with --model"),
        (("--results", "-"), "writes a file, not the standard output"),
        (("--concurrency", "0"), "0"),
        (("third",), "unexpected argument 'third'"),
    ],
)
def test_wrong_options_are_reported(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    path = write_requests(tmp_path / "r.jsonl", prompts(2))
    done = penstock("bench", "shadow", "http://a", "http://b", "--file", str(path), *options)
    assert done.returncode == USAGE
    assert message in done.stderr


def test_help_of_the_subcommand_is_its_own() -> None:
    for words in (("bench", "shadow", "--help"), ("help", "bench", "shadow")):
        done = penstock(*words)
        assert done.returncode == 0
        assert "usage: penstock bench shadow" in done.stdout
    of_bench = penstock("bench", "--help").stdout
    assert "usage: penstock bench [" in of_bench
    assert "`penstock bench shadow --help`" in " ".join(of_bench.split())
