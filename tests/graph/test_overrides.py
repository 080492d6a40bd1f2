"""--set gives what `helm install --set` gives, and its errors name the command line."""

from __future__ import annotations

from typing import Any

import helm_python
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.graph.load import parse_graph
from penstock.graph.overrides import apply_sets
from tests.graph.texts import HEAD, SMALL, problems_of, the_problem, values

BASE: dict[str, Any] = {
    "a": {"b": 1, "c": ["x", {"d": True}]},
    "e": None,
    "f": [],
    "g": {},
    "h.i": 0.5,
}


@pytest.mark.parametrize(
    ("expression", "changed"),
    [
        ("a.b=2", {"a": {"b": 2, "c": ["x", {"d": True}]}}),
        ("a.b=2,e=x", {"a": {"b": 2, "c": ["x", {"d": True}]}, "e": "x"}),
        ("a.c[0]=y", {"a": {"b": 1, "c": ["y", {"d": True}]}}),
        ("a.c[1].d=false", {"a": {"b": 1, "c": ["x", {"d": False}]}}),
        ("a.c[3]=z", {"a": {"b": 1, "c": ["x", {"d": True}, None, "z"]}}),
        ("a.c={y,z}", {"a": {"b": 1, "c": ["y", "z"]}}),
        ("a.b=null", {"a": {"b": None, "c": ["x", {"d": True}]}}),
        ("a=null", {"a": None}),
        ("f[0]=x", {"f": ["x"]}),
        ("f[1]=x", {"f": [None, "x"]}),
        ("g.x=1", {"g": {"x": 1}}),
        (r"h\.i=1", {"h.i": 1}),
        ("n=a\\,b", {"n": "a,b"}),
        ("n=017", {"n": "017"}),
        ("n=1.5", {"n": "1.5"}),
        ("n=TRUE", {"n": True}),
        ("n=", {"n": ""}),
        ("n=0", {"n": 0}),
    ],
)
def test_a_set_changes_the_values_as_helm_does(expression: str, changed: dict[str, Any]) -> None:
    result = apply_sets(BASE, [expression])
    assert result.problems == ()
    assert result.values == {**BASE, **changed}


def test_a_set_below_a_scalar_is_refused_like_in_helm() -> None:
    (problem,) = apply_sets(BASE, ["e.new=1"]).problems
    assert problem.message == "`e` is nothing (null), not a section"
    assert problem.fix == "Remove `e`, which has no value, from the file."


@pytest.mark.parametrize(
    ("expression", "message", "fix"),
    [
        ("x.gpus[0]=1", "`x.gpus` is the number 1, not a list", "Write `--set x.gpus=VALUE`."),
        ("x.gpus.a=1", "`x.gpus` is the number 1, not a section", "Write `--set x.gpus=VALUE`."),
        ("x[0]=1", "`x` is a mapping, not a list", "Write `--set x.KEY=VALUE`."),
        ("x.args.a=1", "`x.args` is a list, not a section", "Write `--set x.args[0]=VALUE`."),
    ],
)
def test_a_set_that_does_not_fit_the_graph_says_what_is_there(
    expression: str, message: str, fix: str
) -> None:
    values = {"x": {"gpus": 1, "args": ["a"]}}
    (problem,) = apply_sets(values, [expression]).problems
    place = expression.partition("=")[0]
    assert (problem.place, problem.message, problem.fix) == (place, message, fix)


LEAVES = st.none() | st.booleans() | st.integers(-9, 99) | st.text(max_size=4)


@pytest.mark.slow
@settings(deadline=None)
@given(st.dictionaries(st.text("abc.,=[]\\ é", min_size=1), values(LEAVES)))
def test_a_set_leaves_everything_else_as_it_was(before: dict[str, Any]) -> None:
    result = apply_sets({**before, "z": before}, ["z.new.key=1"])
    assert result.problems == ()
    assert result.values == {**before, "z": {**before, "new": {"key": 1}}}
    assert list(result.values["z"])[: len(before)] == list(before)
    assert set(result.sets) == {"z.new", "z.new.key"}


@settings(deadline=None)
@given(st.text("abc.=,{}[]01\\ truenl-", min_size=1, max_size=20))
def test_any_expression_without_base_values_gives_what_helm_gives(expression: str) -> None:
    try:
        helm = helm_python.parse_set_string(expression)
    except helm_python.HelmError:
        helm = {}
    result = apply_sets({}, [expression])
    assert result.values == helm
    assert bool(result.problems) == (not helm)


def test_sets_apply_in_order() -> None:
    result = apply_sets({}, ["a.b=1", "a.b=2,a.c=3", "a.c=4"])
    assert result.values == {"a": {"b": 2, "c": 4}}
    assert result.sets["a.b"] == "a.b=2,a.c=3"


def test_a_value_from_a_set_has_no_line_and_names_its_expression() -> None:
    places = parse_graph(SMALL, "graph.yaml", ["worker.replicas=3"]).places
    assert places.line_of("worker.replicas") is None
    assert places.set_of("worker.replicas") == "worker.replicas=3"
    assert places.line_of("worker.gpus") == 3
    assert places.set_of("worker.gpus") is None


def test_values_in_a_section_created_by_a_set_come_from_the_set() -> None:
    places = parse_graph(HEAD, "graph.yaml", ["worker.config.a.b=1"]).places
    assert places.set_of("worker.config.a.b") == "worker.config.a.b=1"
    assert places.set_of("worker.replicas") == "worker.config.a.b=1"


def test_a_list_shortened_by_a_set_comes_from_the_set() -> None:
    text = HEAD + "worker: {args: [a, b]}\n"
    places = parse_graph(text, "graph.yaml", ["worker.args={a}"]).places
    assert places.set_of("worker.args[0]") == "worker.args={a}"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("worker.replica=3", "--set worker.replica: unknown key `replica`. Fix: Did you mean"),
        ("worker.replicas=x", 'must be an integer from 0 to 10000, got "x". Fix: Write'),
        ("worker.replicas=-1", "got -1. Fix: Write an integer from 0 to 10000: `--set worker."),
        ("worker.replicas=10001", "got 10001. Fix: Write an integer from 0 to 10000: `--set w"),
        ("worker.replicas=99999999999999999999", "from 0 to 10000, got 99999999999999999999."),
        ("worker.nodes=0", "got 0. Fix: Write an integer of at least 1: `--set worker.nodes=1`."),
        ("router.temperature=-0.5", "a number of at least 0: `--set router.temperature=1`."),
        ("router.active_decode_blocks_threshold=2", "above 0 and at most 1: `--set router"),
        ("router.kv_events=yes", "`--set router.kv_events=true` or `--set router.kv_events=false`"),
        ("worker.args=x", 'must be a list, got "x". Fix: Write a list: `--set \'worker.args={A,'),
        ("worker.nodes=null", "Fix: Write `--set worker.nodes=1`, or remove this --set."),
        ("model.id=5", 'Fix: Write it in the file, in quotes ("5"): --set makes a number of it.'),
        ("engine.image=", "must not be empty. Fix: Write a value, or remove this --set."),
        ("model.id=", "--set model.id: must not be empty. Fix: Write a value."),
        ("hardware=H100", 'got the string "H100". Fix: Write `--set hardware.gpu=h100`.'),
        ("hardware=A100", "gb300. A100 is not supported."),
        ("kv_transfer=NIXL", "Fix: Write `--set kv_transfer.backend=nixl`."),
        ("model=null", "must have a value, got nothing (null). Fix: Remove this --set."),
        ("worker.shared_memory=64", "with its unit: `--set worker.shared_memory=64Gi`."),
        ("verify.must_pass=x", 'must be a list, got the string "x". Fix: Write a list of models, '),
        ("gateway.api_keys=x", "`--set gateway.api_keys.KEY=VALUE`, with one of secret, header."),
        ("worker[x]=1", "the text between [ and ] is not the number of an item"),
        ("worker..x=1", "a step of the path is empty"),
        ("worker.env.A=1", 'Fix: Write it in the file, in quotes ("1")'),
        ("router.temperature=x", "must be a number"),
        ("worker.env.A=x,worker.env.B=2", 'Fix: Write it in the file, in quotes ("2")'),
        ("engine.kind=vlm", "--set engine.kind: must be one of trtllm"),
        ("decode.replicas=1", "decode"),
        ("worker.gpus=9007199254740993", "--set worker.gpus: 9007199254740993 is too large"),
        ("worker", '--set worker: cannot be applied: key "worker" has no value'),
        ("=1", "--set: cannot be applied: it sets no value"),
        ("", "--set: cannot be applied: it sets no value"),
        ("worker.args[-1]=x", "negative -1 index not allowed"),
        ("worker.args={a", "list must terminate with '}'"),
        ("model.id.x=1", "--set model.id.x: `model.id` is the string"),
    ],
)
def test_a_wrong_set_is_reported_as_an_error_of_the_command_line(
    expression: str, text: str
) -> None:
    printed = [str(p) for p in problems_of(SMALL, [expression])]
    assert any(text in line for line in printed), printed


def test_a_wrong_value_of_the_file_is_not_reported_as_an_error_of_the_command_line() -> None:
    problem = the_problem(HEAD + "worker: {gpu: 1}\n", ["worker.replicas=2"])
    assert (problem.file, problem.line) == ("graph.yaml", 3)


def test_a_secret_in_a_set_is_not_printed() -> None:
    (problem,) = problems_of(SMALL, ["worker.env.HF_TOKEN=12345678"])
    assert "12345678" not in str(problem)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("worker.config.a.b", "0.8", 0.8),
        ("worker.config.list[0]", "2.50", 2.5),
        ("engine.config.a", "1e-05", "1e-05"),  # YAML readers differ on it
        ("worker.pod.a", "1.5", 1.5),
        ("router.temperature", "0.5", 0.5),
        ("worker.env.A", "0.8", "0.8"),
        ("worker.args[0]", "0.8", "0.8"),
        ("engine.image", "1.10", "1.10"),
        ("model.id", "3.5", "3.5"),
    ],
)
def test_a_decimal_is_a_number_where_the_graph_has_no_text(
    path: str, text: str, expected: object
) -> None:
    values: Any = parse_graph(SMALL, "graph.yaml", [f"{path}={text}"]).values
    for step in path.replace("[0]", ".0").split("."):
        values = values[int(step) if step == "0" else step]
    assert values == expected
    assert type(values) is type(expected)
