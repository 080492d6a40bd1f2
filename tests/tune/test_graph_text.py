"""Settings are written into the text of a graph, and the rest stays."""

from __future__ import annotations

import pytest

from penstock.errors import GraphError
from penstock.graph.load import parse_graph
from penstock.tune.graph_text import tuned_text
from penstock.tune.settings import DYNAMO_DEFAULT, RouterSettings
from tests.graph.texts import HEAD

TUNED = RouterSettings(4, 2)
EVIDENCE = ["penstock tune ours.yaml", "ratio 1.31"]
COMMENT = "# tuned by: penstock tune ours.yaml\n#   ratio 1.31\n"
TOP = "# größe 😀\n" + HEAD
CASES = {
    "no section": (
        "worker: {}  # x\n",
        f"worker: {{}}  # x\n{COMMENT}router:\n  prefill_load_scale: 4\n",
    ),
    "a section": (
        "# why kv\nrouter:\n  # c\n  mode: kv  # m\nworker: {}\n",
        f"# why kv\n{COMMENT}router:\n  # c\n  prefill_load_scale: 4\n",
    ),
    "a flow section": (
        "router: {mode: kv}  # m\nworker: {}\n",
        f"{COMMENT}router: {{overlap_score_credit: 2, prefill_load_scale: 4, mode: kv}}  # m\n",
    ),
    "a value with a comment": (
        "router:\n  prefill_load_scale:  1.0   # one\nworker: {}\n",
        f"{COMMENT}router:\n  overlap_score_credit: 2\n  prefill_load_scale:  4   # one\n",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_settings_and_the_evidence_are_added(case: str) -> None:
    before, expected = CASES[case]
    after = tuned_text(TOP + before, TUNED, DYNAMO_DEFAULT, EVIDENCE)
    assert after.startswith(TOP)
    for line in expected.splitlines():
        assert line in after
    assert COMMENT + "router" in after
    router = parse_graph(after, "ours.yaml").graph.router
    assert (router.prefill_load_scale, router.overlap_score_credit) == (4, 2)
    assert router.queue_threshold is None
    kept = [line for line in before.splitlines() if "#" in line and "router" not in line]
    assert all(line.split("#")[1] in after for line in kept)


def test_an_earlier_comment_is_replaced_and_others_stay() -> None:
    text = TOP + "worker: {}\n# ours\nrouter: {mode: kv}\n"
    once = tuned_text(text, TUNED, DYNAMO_DEFAULT, EVIDENCE)
    again = tuned_text(once, RouterSettings(8, 2, 0.0), TUNED, ["penstock tune again", "ratio 2"])
    assert again.count("# tuned by: ") == 1
    assert "# ours\n# tuned by: penstock tune again\n#   ratio 2\nrouter:" in again
    assert "1.31" not in again
    router = parse_graph(again, "ours.yaml").graph.router
    assert (router.prefill_load_scale, router.queue_threshold) == (8, 0)


def test_dynamos_default_replaces_settings_of_the_graph() -> None:
    text = TOP + "worker: {}\nrouter: {prefill_load_scale: 8, queue_threshold: 0}\n"
    after = tuned_text(text, DYNAMO_DEFAULT, RouterSettings(8, 1, 0.0), EVIDENCE)
    assert "router: {prefill_load_scale: 1, queue_threshold: null}" in after


def test_a_queue_policy_is_added_after_its_threshold_and_removed_before_it() -> None:
    waiting = RouterSettings(1, 1, 0.5, "wspt")
    text = tuned_text(TOP + "worker: {}\n", waiting, DYNAMO_DEFAULT, EVIDENCE)
    router = parse_graph(text, "ours.yaml").graph.router
    assert (router.queue_threshold, router.queue_policy) == (0.5, "wspt")
    again = tuned_text(text, DYNAMO_DEFAULT, waiting, EVIDENCE)
    router = parse_graph(again, "ours.yaml").graph.router
    assert (router.queue_threshold, router.queue_policy) == (None, None)


@pytest.mark.parametrize("start", ["\ufeff", ""])
def test_line_ends_and_a_byte_order_mark_stay(start: str) -> None:
    text = start + (TOP + "worker: {}\n").replace("\n", "\r\n")
    after = tuned_text(text, TUNED, DYNAMO_DEFAULT, EVIDENCE)
    assert after.startswith(start + TOP.replace("\n", "\r\n"))
    assert after.count("\n") == after.count("\r\n")


def test_an_invalid_graph_is_an_error() -> None:
    text = TOP + "worker: {}\nrouter:\n"
    with pytest.raises(GraphError, match="router: must be a section"):
        tuned_text(text, TUNED, DYNAMO_DEFAULT, EVIDENCE)
