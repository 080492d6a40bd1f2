"""OpenRouter's figures, from scripted frontends and a clock that the test moves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import pytest

from penstock.bench.methods.documents import openrouter_document
from penstock.bench.methods.openrouter import Observation, observe, require_traffic
from penstock.bench.methods.report import openrouter_report
from penstock.errors import BenchError
from tests.bench.methods.frontends import MODEL, Frontend
from tests.reports.read import text_of
from tests.support.command_line import penstock
from tests.support.outputs import read_output
from tests.support.scripted_http import respond, serving

A, B = "http://a:8000", "http://b:8000"
DOWN = "down"


@dataclass(kw_only=True)
class World:
    """``events``: what happens at a time in seconds. ``at``: what serves an address."""

    at: dict[str, Frontend | str]
    events: Mapping[float, Callable[[World], None]] = field(default_factory=dict)
    now: float = 0.0
    _done: set[float] = field(default_factory=set)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for due, event in self.events.items():
            if due <= self.now and due not in self._done:
                self._done.add(due)
                event(self)

    def read(self, url: str) -> str:
        frontend = self.at[url]
        if frontend == DOWN:
            raise ConnectionRefusedError("refused")
        return frontend if isinstance(frontend, str) else frontend.text

    def observe(self, seconds: float) -> Observation:
        return observe(
            list(self.at),
            MODEL,
            seconds,
            lambda *_: None,
            read=self.read,
            clock=lambda: self.now,
            sleep=self.sleep,
        )


def lines(observation: Observation) -> list[str]:
    return text_of(openrouter_report(observation)).splitlines()


def finishes(frontend: Frontend, tokens: int = 100, ttft_s: float = 0.03) -> Callable[..., None]:
    return lambda _: frontend.finish(ttft_s=ttft_s, duration_s=2.0, tokens=tokens)


def test_only_requests_of_the_run_count() -> None:
    frontend = Frontend()
    frontend.finish(ttft_s=5.0, duration_s=100.0, tokens=1)
    events = {float(n): finishes(frontend, tokens=10 * n) for n in range(1, 9)}
    observation = World(at={A: frontend}, events=events).observe(20.0)
    assert (observation.total.ok, observation.total.tokens) == (8, 360)
    assert sorted(observation.known) == [5.0 * n for n in range(1, 9)]
    assert (observation.since_start.ok, observation.unknown, observation.processes) == (9, 0, 1)
    text = lines(observation)
    assert text[0] == f"openrouter, {MODEL} at {A}; traffic of all clients in 20 s"
    assert text[1] == "requests: 8 successful, 0 failed, 0 with an error of the client"
    rows = [line.split("  ") for line in text]
    cells = {row[0]: [cell.strip() for cell in row[1:] if cell.strip()] for row in rows}
    assert cells["throughput (OpenRouter) (tokens/s)"] == ["25.0", "15.0", "5.0", "5.0"]
    assert cells["TTFT (ms)"] == ["34.5", "40.8", "44.5", "46.8"]
    assert "22 to 47" in text[4]
    assert "mean, weighted by duration: throughput (OpenRouter) 22.5 tokens/s" in text


def test_two_frontends_are_added() -> None:
    first, second = Frontend(), Frontend(process="b2")
    events = {1.0: finishes(first), 1.1: finishes(second), 2.0: lambda _: second.fail("internal")}
    observation = World(at={A: first, B: second}, events=events).observe(5.0)
    assert (observation.total.ok, observation.total.errors, observation.total.uptime) == (
        2,
        1,
        2 / 3,
    )
    assert observation.known == (50.0, 50.0)
    assert observation.processes == 2


def test_a_frontend_that_restarts_counts_from_zero() -> None:
    old, new = Frontend(), Frontend(process="new", uptime_s=1.0)
    old.finish(ttft_s=0.01, duration_s=1.0, tokens=1)
    new.finish(ttft_s=0.01, duration_s=2.0, tokens=40)  # before it is read for the first time

    def stop(world: World) -> None:
        world.at[A] = DOWN

    def start(world: World) -> None:
        world.at[A] = new

    events = {1.0: finishes(old), 2.0: stop, 4.0: start, 5.0: finishes(new)}
    observation = World(at={A: old}, events=events).observe(10.0)
    assert (observation.total.ok, observation.since_start.ok) == (3, 4)
    assert sorted(observation.known) == [20.0, 50.0, 50.0]
    assert observation.failed_readings == 8
    assert any("2 frontend processes at 1 addresses" in line for line in lines(observation))
    assert "8 of 40 readings of the metrics failed" in lines(observation)


def test_a_reset_is_found_without_an_id_of_the_process() -> None:
    old, new = Frontend(process=""), Frontend(process="")
    for _ in range(5):
        old.finish(ttft_s=0.01, duration_s=1.0, tokens=10)
    new.finish(ttft_s=0.01, duration_s=2.0, tokens=40)

    def restart(world: World) -> None:
        world.at[A] = new

    observation = World(at={A: old}, events={3.0: restart}).observe(5.0)
    assert (observation.total.ok, observation.total.tokens, observation.since_start.ok) == (
        1,
        40,
        6,
    )


def test_an_address_of_several_frontends_counts_no_request_twice() -> None:
    first, second = Frontend(), Frontend(process="b2")
    for frontend in (first, second):
        for _ in range(7):
            frontend.finish(ttft_s=0.01, duration_s=1.0, tokens=10)

    def other(world: World) -> None:
        world.at[A] = second if world.at[A] is first else first

    events = {0.3 * n: other for n in range(1, 10)} | {1.0: finishes(first)}
    observation = World(at={A: first}, events=events).observe(5.0)
    assert (observation.total.ok, observation.since_start.ok) == (1, 15)
    assert any("name each frontend by its own address" in line for line in lines(observation))


def test_uptime_is_that_of_windows_that_were_observed() -> None:
    frontend = Frontend()
    events = {5.0: lambda _: frontend.fail("internal"), 200.0: finishes(frontend)}
    observation = World(at={A: frontend}, events=events).observe(310.0)
    document = read_output("bench", openrouter_document(observation).as_json())
    assert document["uptime"] == {
        "5 min": 1.0,
        "30 min": None,
        "1 day": None,
        "the run": 0.5,
        "since the frontends started": 0.5,
    }
    assert any("100.00%  not observed  not observed  50.00%" in line for line in lines(observation))


def test_requests_that_ended_together_give_bounds() -> None:
    frontend = Frontend()

    def burst(_: World) -> None:
        for _ in range(2):
            frontend.finish(ttft_s=0.2, duration_s=1.0, tokens=7)

    events = {float(n): finishes(frontend, tokens=10 * n) for n in range(1, 9)} | {9.0: burst}
    observation = World(at={A: frontend}, events=events).observe(12.0)
    document = read_output("bench", openrouter_document(observation).as_json())
    assert document["throughput"]["p50"] == {"low": 20.0, "high": 30.0}
    assert document["throughput"]["p99"] == {"low": 0.0, "high": 5.0}
    assert document["ttft_ms"]["p99"] == {"value": None, "bucket": [100.0, None]}
    text = "\n".join(lines(observation))
    assert "20.0 to 30.0" in text
    assert "at most 5.0" in text
    assert "above 100" in text
    assert "the throughput of 2 of 10 requests is not known" in text


def test_a_run_without_traffic_is_an_error() -> None:
    observation = World(at={A: Frontend()}).observe(3.0)
    assert any(line.startswith("TTFT (ms)") and "-" in line for line in lines(observation))
    with pytest.raises(BenchError, match=rf"no request for {MODEL} ended within 3 s\. Fix:"):
        require_traffic(observation)


def test_an_interrupted_run_keeps_its_figures() -> None:
    frontend = Frontend()

    def interrupt(_: World) -> None:
        raise KeyboardInterrupt

    observation = World(at={A: frontend}, events={1.0: finishes(frontend), 3.0: interrupt}).observe(
        9.0
    )
    assert (observation.interrupted, observation.total.ok) == ("interrupted", 1)
    assert lines(observation)[1] == "incomplete: interrupted"


@pytest.mark.parametrize(
    ("serves", "message"),
    [
        (DOWN, "http://a:8000/metrics: cannot be read: refused. Fix: Name the address"),
        ("<html>no metrics", "has no metrics of a Dynamo frontend. Fix: Name the address of a"),
        ("vllm:running 1\n", "has no metrics of a Dynamo frontend"),
        ("dynamo_frontend_x{ 1\ndynamo_frontend_requests_total{ 1\n", "has no metrics"),
    ],
)
def test_an_address_that_is_no_frontend_is_an_error(serves: str, message: str) -> None:
    with pytest.raises(BenchError, match=message.replace(".", r"\.")):
        World(at={A: serves}).observe(1.0)


def test_two_addresses_are_read_over_http() -> None:
    first, second = Frontend(), Frontend(process="b2")

    def handle(frontend: Frontend) -> Callable[[BaseHTTPRequestHandler], None]:
        def answer(request: BaseHTTPRequestHandler) -> None:
            if request.path == "/v1/models":
                respond(request, json.dumps({"data": [{"id": MODEL}]}).encode())
                return
            respond(request, frontend.text.encode())
            first.finish(ttft_s=0.03, duration_s=2.0, tokens=100)  # between two readings

        return answer

    with serving(handle(first)) as first_url, serving(handle(second)) as other:
        arguments = (first_url, other, "--method", "openrouter", "--duration", "300ms", "--json")
        done = penstock("bench", "public", *arguments)
    assert done.returncode == 0, done.stderr
    document = read_output("bench", done.stdout)
    assert document["urls"] == [first_url, other]
    assert document["requests"]["successful"] > 0
    assert document["mean_throughput"] == pytest.approx(50.0)
