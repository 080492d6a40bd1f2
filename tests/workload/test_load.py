"""Workload files: invalid ones with the place of the problem, and the ready-made ones."""

from pathlib import Path

import pytest

from penstock.errors import GraphError, InputError, UsageError
from penstock.graph.load import parse_graph
from penstock.workload import find_workload, ready_names
from penstock.workload.duration import exceeds_sample_limit
from penstock.workload.load import parse_workload
from tests.support.outside_files import trace

GOOD = "input: 1024\noutput: 256\narrival: {poisson: 2}\n"


@pytest.mark.parametrize(
    ("text", "line", "place", "words"),
    [
        ("input: 1024\narrival: {poisson: 2}\n", None, "output", "required, but missing"),
        (GOOD + "inptu: 3\n", 4, "inptu", "Did you mean `input`?"),
        (GOOD.replace("1024", "0"), 1, "input.mean", "at least 1"),
        (GOOD.replace("1024", "1.5"), 1, "input", "a section of `key: value` lines"),
        (GOOD.replace("1024", "{mean: 10, cv: -1}"), 1, "input.cv", "at least 0"),
        (GOOD.replace("1024", "{mean: 10, max: 9}"), 1, "input.max", "less than the mean"),
        (
            GOOD + "requests: 79\nconversation: {turns: 40, think: 1}\n",
            4,
            "requests",
            "79 requests are less than two conversations of 40 turns",
        ),
        (
            GOOD + "conversation: {turns: 8, think: 86401}\n",
            4,
            "conversation.think",
            "at most 86400",
        ),
        (GOOD.replace("poisson: 2", "poisson: 0"), 3, "arrival.poisson", "more than 0"),
        (GOOD.replace("poisson: 2", ""), 3, "arrival", "exactly one of poisson"),
        (
            GOOD.replace("poisson: 2", "poisson: 2, concurrency: 1"),
            3,
            "arrival",
            "sets poisson and",
        ),
        (GOOD.replace("poisson: 2", "poisson: .inf"), 3, "arrival.poisson", "an invalid value"),
        (
            GOOD.replace("poisson: 2", "bursts: {rate: 1, peak: 9, every: 5, seconds: 5}"),
            3,
            "arrival.bursts.seconds",
            "does not end before",
        ),
        (
            "requests: 5\n" + GOOD.replace("poisson: 2", "ramp: {start: 1, end: 2, seconds: 3}"),
            1,
            "requests",
            "decide the number of requests",
        ),
        (
            GOOD.replace("poisson: 2", "ramp: {start: 1, end: 2000, seconds: 3600}"),
            3,
            "arrival.ramp",
            "3,601,800 requests are more than the limit of 1,000,000",
        ),
        ("requests: 1000001\n" + GOOD, 1, "requests", "1,000,001 requests"),
        (
            GOOD + "system_prompts: {tokens: 1024}\n",
            4,
            "system_prompts.tokens",
            "not less than the input of 1024",
        ),
        (GOOD + "trace: {format: azure}\n", 1, "input", "the trace has it already"),
        (GOOD.replace("1024", "{cv: 1}"), 1, "input", "sets no length"),
        (GOOD.replace("1024", "{median: 9, quantiles: []}"), 1, "input", "sets median"),
        (
            GOOD.replace("1024", "{median: 9, mean: 8}"),
            1,
            "input.mean",
            "1 to 5.1 times the median",
        ),
        (GOOD.replace("1024", "{median: 9, p99: 900}"), 1, "input.p99", "66.6 times the median, 9"),
        (GOOD.replace("1024", "{median: 9, mean: 10, cv: 1}"), 1, "input.cv", "decide the dev"),
        (
            GOOD.replace("1024", "{quantiles: [[0.1, 5], [1, 9]]}"),
            1,
            "input.quantiles",
            "the first share is not 0",
        ),
        (
            GOOD.replace("1024", "{quantiles: [[0, 5], [0.5, 3], [1, 9]]}"),
            1,
            "input.quantiles[1]",
            "is less than",
        ),
        (
            GOOD.replace("1024", "{quantiles: [[0, 5], [1, 9]], max: 8}"),
            1,
            "input.quantiles",
            "decide the deviation and the maximum",
        ),
        (
            GOOD.replace("poisson: 2", "ladder: {rates: [], seconds: 60}"),
            3,
            "arrival.ladder.rates",
            "the list is empty",
        ),
        (
            GOOD.replace("poisson: 2", f"ladder: {{rates: {[1] * 101}, seconds: 60}}"),
            3,
            "arrival.ladder.rates",
            "101 stages are more than the limit of 100",
        ),
        (
            GOOD.replace("poisson: 2", "ladder: {rates: [1, 0], seconds: 60}"),
            3,
            "arrival.ladder.rates[1]",
            "must be more than 0, got 0. Fix: Set it to more than 0.",
        ),
        (
            GOOD.replace("poisson: 2", "ladder: {rates: 4, seconds: 60}"),
            3,
            "arrival.ladder.rates",
            "must be a list, got the number 4. Fix: Write a list.",
        ),
        (
            GOOD.replace("1024", "{quantiles: [[0, 5, 6], [1, 9]]}"),
            1,
            "input.quantiles[0]",
            "must have at most 2 items, got 3. Fix: Remove the other items.",
        ),
        (
            GOOD.replace("poisson: 2", "ladder: {rates: [1, 99999], seconds: 60}"),
            3,
            "arrival.ladder",
            "6,000,000 requests are more than the limit",
        ),
        (
            "trace: {format: mooncake, block_tokens: 16}\n",
            1,
            "trace.block_tokens",
            "multiple of 64",
        ),
        ("trace: {format: parquet}\n", 1, "trace.format", "one of mooncake, azure"),
        ("- 1\n", 1, "", "a workload is a mapping"),
    ],
)
def test_an_invalid_workload_is_refused_with_its_place(
    text: str, line: int | None, place: str, words: str
) -> None:
    with pytest.raises(GraphError) as caught:
        parse_workload(text, "w.yaml")
    problem = caught.value.problems[0]
    assert problem.place == place
    assert words in str(problem)
    assert problem.line == line
    assert problem.fix


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(GraphError) as caught:
        parse_workload("input: 0\noutput: no\narrival: {constant: -1}\n", "w.yaml")
    assert [p.line for p in caught.value.problems] == [1, 2, 3]


@pytest.mark.parametrize("name", [n for n in ready_names() if n != "conversation"])
def test_ready_workloads_sample_requests(name: str) -> None:
    loaded = find_workload(name)
    assert loaded.name == name
    assert len(loaded.requests(0)) == (loaded.workload.requests or 500)


def test_the_recorded_workload_needs_its_file() -> None:
    with pytest.raises(InputError, match="--trace FILE"):
        find_workload("conversation")


@pytest.mark.needs("trace")
def test_the_recorded_workload_has_the_requests_of_its_file() -> None:
    requests = find_workload("conversation", trace()).requests(0)
    assert len(requests) == 2000
    assert requests[0].at_ms == 0


def test_an_unknown_name_or_unused_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Did you mean `short-chat"):
        find_workload("shortchat")
    with pytest.raises(InputError, match="no such file"):
        find_workload("missing.yaml")
    with pytest.raises(InputError, match="reads no trace"):
        find_workload("short-chat", tmp_path / "t.jsonl")


def test_a_trace_is_found_beside_its_workload(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    )
    (tmp_path / "w.yaml").write_text("trace: {format: azure, file: t.csv}\n")
    (request,) = find_workload(str(tmp_path / "w.yaml")).requests(0)
    assert (request.input_tokens, request.output_tokens) == (374, 44)


def test_each_arrival_at_twice_the_scale() -> None:
    arrivals = {
        "poisson: 2": "poisson: 4.0",
        "constant: 2": "constant: 4.0",
        "concurrency: 3": "concurrency: 6",
        "ramp: {start: 1, end: 2, seconds: 3}": "ramp: {start: 2.0, end: 4.0, seconds: 3}",
        "bursts: {rate: 1, peak: 9, every: 5, seconds: 1}": "bursts: {rate: 2.0, peak: 18.0, "
        "every: 5, seconds: 1}",
    }
    for once, twice in arrivals.items():
        once_scaled, two = (
            parse_workload(GOOD.replace("poisson: 2", a), "w.yaml").workload for a in (once, twice)
        )
        assert once_scaled.scaled(2) == two
    recorded = parse_workload("trace: {format: azure}\n", "w.yaml").workload
    assert recorded.scaled(2).trace == recorded.trace.model_copy(update={"speed": 2.0})  # type: ignore[union-attr]


def test_a_scale_that_exceeds_the_sample_limit_is_refused_before_sampling() -> None:
    text = GOOD.replace("poisson: 2", "ramp: {start: 1, end: 10, seconds: 900}")
    loaded = parse_workload(text, "ramp.yaml")
    assert not exceeds_sample_limit(loaded.workload)
    with pytest.raises(InputError, match="9,900,000 requests"):
        loaded.scaled(2000).requests(0)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,5,7\n"),
        ("mooncake", '{"timestamp": 0, "input_length": 5, "output_length": 7}\n'),
    ],
)
def test_a_byte_order_mark_is_not_part_of_a_trace(form: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(text, encoding="utf-8-sig")
    (tmp_path / "w.yaml").write_text(f"trace: {{format: {form}, file: t}}\n")
    (request,) = find_workload(str(tmp_path / "w.yaml")).requests(0)
    assert (request.input_tokens, request.output_tokens) == (5, 7)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("model: {id: m}\nengine: {kind: mocker}\n", "a graph"),
        ("apiVersion: v1\nkind: ConfigMap\n", "a Kubernetes manifest"),
    ],
)
def test_a_file_of_another_kind_is_named(text: str, kind: str) -> None:
    with pytest.raises(GraphError, match=f"g.yaml: is {kind}, not a workload. Fix: Use a"):
        parse_workload(text, "g.yaml")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,5,7\n"),
        ("azure", '"Model",TIMESTAMP,ContextTokens,GeneratedTokens\nm,2023-11-16 18:15:46,5,7\n'),
        ("mooncake", '{"timestamp": 0, "input_length": 5, "output_length": 7}\n' * 2),
    ],
)
def test_a_trace_is_not_a_workload(form: str, text: str, tmp_path: Path) -> None:
    """`capture` writes a workload next to its trace, and the message names it."""
    trace = tmp_path / "t.jsonl"
    trace.write_text(text)
    with pytest.raises(GraphError, match=f"is a trace, not a workload.*format: {form}, file: t.js"):
        find_workload(str(trace))
    (tmp_path / "t.yaml").write_text(GOOD)
    with pytest.raises(GraphError, match=r"is a trace, not a workload. Fix: Use \S+/t.yaml."):
        find_workload(str(trace))


def test_a_file_of_one_long_line_is_no_workload(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("a" * 3_000_000)
    with pytest.raises(GraphError, match=r"w\.yaml"):
        find_workload(str(tmp_path / "w.yaml"))


def test_a_concurrency_replaces_the_arrivals() -> None:
    loaded = parse_workload(GOOD, "w.yaml").with_concurrency(32)
    assert (loaded.workload.concurrency, loaded.mean_rate()) == (32, None)
    assert {request.at_ms for request in loaded.requests(0)} == {0.0}
    with pytest.raises(UsageError, match="--concurrency: agentic has recorded arrivals or"):
        find_workload("agentic").with_concurrency(2)


def test_a_workload_is_no_graph() -> None:
    text = "requests: 5\ninput: 9\noutput: 9\narrival: {poisson: 1}\n"
    assert parse_workload(text, "w.yaml").workload.requests == 5
    with pytest.raises(GraphError, match="the file is a workload, not a graph"):
        parse_graph(text, "w.yaml")
