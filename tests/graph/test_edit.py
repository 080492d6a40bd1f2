"""Editing replica counts changes no other byte of the text."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import GraphError
from penstock.graph.edit import set_replicas, set_values, write_text
from penstock.strict_yaml.kind import MOST_REPLICAS
from tests.graph.texts import HEAD, SMALL

TOP = "# größe 😀\n" + HEAD

CASES = {
    "a count with a comment": (
        "worker: # hi\n\n  replicas:   1   # one\n  image: 'x'\n",
        {"worker": 3},
        "worker: # hi\n\n  replicas:   3   # one\n  image: 'x'\n",
    ),
    "a block without a count": (
        "worker:\n    # c\n    image: x:1\n",
        {"worker": 3},
        "worker:\n    # c\n    replicas: 3\n    image: x:1\n",
    ),
    "an empty map": ("worker: {}\n", {"worker": 3}, "worker: {replicas: 3}\n"),
    "a flow map without a count": (
        "worker: {image: x}\n",
        {"worker": 3},
        "worker: {replicas: 3, image: x}\n",
    ),
    "a flow map over several lines": (
        "worker: {\n  # c\n  image: x}\n",
        {"worker": 3},
        "worker: {replicas: 3, \n  # c\n  image: x}\n",
    ),
    "a quoted key": ("'worker': {}\n", {"worker": 3}, "'worker': {replicas: 3}\n"),
    "an explicit key": (
        "worker:\n  ? image\n  : x\n",
        {"worker": 3},
        "worker:\n  replicas: 3\n  ? image\n  : x\n",
    ),
    "two pools at once": (
        "prefill: {replicas: 10}\ndecode:\n  replicas: 2\n",
        {"decode": 4, "prefill": 0},
        "prefill: {replicas: 0}\ndecode:\n  replicas: 4\n",
    ),
    "a frontend that is there": (
        "worker: {}\nfrontend: {port: 80}\n",
        {"frontend": 2},
        "worker: {}\nfrontend: {replicas: 2, port: 80}\n",
    ),
    "a frontend that is not": (
        "worker: {} # x\n",
        {"frontend": 2},
        "worker: {} # x\nfrontend:\n  replicas: 2\n",
    ),
    "a frontend and no line end": (
        "worker: {} # x",
        {"frontend": 2},
        "worker: {} # x\nfrontend:\n  replicas: 2\n",
    ),
    "a frontend before the end mark": (
        "worker: {}\n...\n",
        {"frontend": 2},
        "worker: {}\nfrontend:\n  replicas: 2\n...\n",
    ),
    "a frontend after a text that keeps its lines": (
        "worker: {}\npod:\n  a: |+\n    x\n\n# end\n",
        {"frontend": 2},
        "worker: {}\npod:\n  a: |+\n    x\n\n# end\nfrontend:\n  replicas: 2\n",
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_only_the_count_changes(case: str, newline: str, mark: str) -> None:
    before, changes, after = CASES[case]
    text = mark + (TOP + before).replace("\n", newline)
    assert set_replicas(text, changes) == mark + (TOP + after).replace("\n", newline)


def test_a_section_is_added_at_the_start_if_it_cannot_be_added_at_the_end() -> None:
    text = SMALL + "pod:\n  a: |\n    no line end"
    assert set_replicas(text, {"frontend": 2}) == "frontend:\n  replicas: 2\n" + text


def test_a_graph_in_json_is_edited_too() -> None:
    text = '{"model": {"id": "m"}, "engine": {"kind": "vllm"}, "worker": {"gpus": 1}}'
    edited = yaml.safe_load(set_replicas(text, {"worker": 2, "frontend": 3}))
    assert edited["worker"] == {"replicas": 2, "gpus": 1}
    assert edited["frontend"] == {"replicas": 3}


def test_no_change_changes_nothing() -> None:
    assert set_replicas(SMALL, {}) == SMALL


@settings(max_examples=20, deadline=None)
@given(st.integers(0, MOST_REPLICAS), st.integers(0, MOST_REPLICAS), st.sampled_from(list(CASES)))
def test_reverting_a_change_gives_the_same_text(first: int, second: int, case: str) -> None:
    before, changes, _ = CASES[case]
    changed = set_replicas(TOP + before, dict.fromkeys(changes, first))
    two = set_replicas(changed, dict.fromkeys(changes, second))
    assert set_replicas(two, dict.fromkeys(changes, first)) == changed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wrker": 1}, "no component `wrker`; this graph has frontend, worker. Fix: Did you mean"),
        ({"decode": 1}, "no component `decode`; this graph has frontend, worker"),
        ({"worker": -1}, "worker.replicas: must be an integer from 0 to 10,000, got -1"),
        ({"worker": True}, "must be an integer from 0 to 10,000, got True"),
        ({"worker": 1.5}, "must be an integer from 0 to 10,000, got 1.5"),
        ({"worker": 10_001}, "must be an integer from 0 to 10,000, got 10001"),
        ({"worker": 2**53}, "must be an integer from 0 to 10,000, got 9007199254740992"),
    ],
)
def test_a_wrong_change_is_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        set_replicas(SMALL, changes)
    assert message in str(caught.value)


def test_all_wrong_changes_are_named_and_an_invalid_graph_is_not_edited() -> None:
    with pytest.raises(GraphError) as caught:
        set_replicas(SMALL, {"worker": -1, "x": 1, "frontend": -2})
    assert len(caught.value.problems) == 3
    with pytest.raises(GraphError, match="unknown key"):
        set_replicas(SMALL + "x: 1\n", {"worker": 2})


@pytest.mark.parametrize("value", [1_000_000.0, 1_234_567.5, 0.00001])
def test_a_large_or_tiny_number_is_written_as_it_is(value: float) -> None:
    """YAML reads `1e+06` as text."""
    edited = set_values(SMALL + "slo: {ttft_ms: 500}\n", "slo", {"ttft_ms": value})
    assert yaml.safe_load(edited)["slo"] == {"ttft_ms": value}
    assert "e+" not in edited


def test_the_file_is_replaced_with_its_mode_and_through_its_link(tmp_path: Path) -> None:
    file, link = tmp_path / "graph.yaml", tmp_path / "link.yaml"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    write_text(link, "new\r\n")
    assert file.read_bytes() == b"new\r\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["graph.yaml", "link.yaml"]


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "graph.yaml").mkdir()
    with pytest.raises(OSError):
        write_text(tmp_path / "graph.yaml", "new")
    assert [p.name for p in tmp_path.iterdir()] == ["graph.yaml"]
