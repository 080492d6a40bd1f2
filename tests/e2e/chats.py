"""Requests to a graph that is up, and what a client makes of the responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx

from penstock.drill.graph_process import GraphProcess


def post(
    graph: GraphProcess, path: str, headers: Mapping[str, str] | None = None, **body: Any
) -> httpx.Response:
    """A request for the graph's model."""
    state = graph.state()
    url, content = f"{state['endpoint']}/{path}", {"model": state["models"][0], **body}
    return httpx.post(url, json=content, headers=headers, timeout=120, trust_env=False)


def chat(graph: GraphProcess, question: str, **more: Any) -> httpx.Response:
    messages = [{"role": "user", "content": question}]
    return post(graph, "chat/completions", **{"messages": messages, **more})


def completed(graph: GraphProcess, question: str, **more: Any) -> dict[str, Any]:
    """The response of a chat that succeeds."""
    response = chat(graph, question, **more)
    assert response.status_code == 200, response.text
    return dict(response.json())


def text_of(response: dict[str, Any]) -> str:
    return str(response["choices"][0]["message"]["content"])


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream that is complete."""
    assert response.status_code == 200, response.text
    lines = [line[5:].strip() for line in response.text.splitlines() if line.startswith("data:")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def merged(response: httpx.Response, *, stream: bool) -> dict[str, Any]:
    """Content, reasoning, calls and finish reasons, merged as a client does."""
    assert response.status_code == 200, response.text
    bodies = events_of(response) if stream else [response.json()]
    choices = [choice for body in bodies for choice in body["choices"]]
    parts = [choice["delta" if stream else "message"] for choice in choices]
    calls: dict[int, list[str]] = {}
    for call in (call for part in parts for call in part.get("tool_calls") or ()):
        texts = calls.setdefault(call.get("index", 0), ["", ""])
        for at, name in enumerate(("name", "arguments")):
            texts[at] += (call.get("function") or {}).get(name) or ""
    return {
        "content": "".join(part.get("content") or "" for part in parts),
        "reasoning": "".join(part.get("reasoning_content") or "" for part in parts),
        "calls": [(name, json.loads(arguments)) for name, arguments in calls.values()],
        "finish": [reason for choice in choices if (reason := choice.get("finish_reason"))],
    }


def verified(graph: GraphProcess, *only: str) -> dict[str, str]:
    """Run `verify`, which must succeed: probe → verdict and detail."""
    options = [word for probe in only for word in ("--only", probe)]
    done = graph.penstock("verify", str(graph.graph), "--json", *options)
    report = json.loads(done.stdout)
    verdicts = {p["name"]: f"{p['verdict']}: {p['detail']}" for p in report["probes"]}
    assert (done.returncode, report["ok"]) == (0, True), verdicts
    assert not only or set(verdicts) == set(only)
    return verdicts
