"""Two targets in one run of `penstock bench`, one of which is slower."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.bench.bench_runs import write_workload
from tests.support.command_line import penstock
from tests.support.completions_server import CompletionsServer, Response, Script
from tests.support.outputs import read_output

pytestmark = pytest.mark.needs("aiperf")

LIMIT = 20
SLICES = ("--duration", "18s", "--slice", "1s", "--gap", "500ms")  # 6 pairs
REQUESTS_PER_SLICE = 10


@dataclass(frozen=True, kw_only=True)
class Compared:
    code: int
    stderr: str
    document: Mapping[str, Any]
    logs: tuple[str, str]
    """Of AIPerf."""
    prompts: tuple[list[list[int]], list[list[int]]]
    """That each server received, in order of their lengths."""

    def difference(self, metric: str) -> Mapping[str, Any]:
        return next(
            difference
            for difference in self.document["differences"]
            if difference["metric"] == metric
        )


def compared(folder: Path, first: Script, second: Script, *arguments: str) -> Compared:
    servers = CompletionsServer(script=first), CompletionsServer(script=second)
    requests = 6 * REQUESTS_PER_SLICE + 1
    workload = write_workload(folder, requests, output_tokens=5, every_ms=1000 / REQUESTS_PER_SLICE)
    with servers[0].running(), servers[1].running():
        urls = [server.url for server in servers]
        out = folder / "out"
        arguments = ("--out", str(out), *arguments)
        done = penstock("bench", *urls, *workload, *SLICES, "--json", "-q", *arguments)
    prompts = [sorted((body["prompt"] for body in each.bodies), key=len) for each in servers]
    return Compared(
        code=done.returncode,
        stderr=done.stderr,
        document=read_output("bench", done.stdout),
        logs=((out / "A" / "aiperf.log").read_text(), (out / "B" / "aiperf.log").read_text()),
        prompts=(prompts[0], prompts[1]),
    )


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """The TTFT of the second server is four times as long, and its ITL is equal.

    So much that the limit is exceeded although the machine stalls during one slice.
    """
    return compared(
        tmp_path_factory.mktemp("bench"),
        lambda _: Response(first_s=0.1, gap_s=0.04),
        lambda _: Response(first_s=0.4, gap_s=0.04),
        *("--fail-if", "ttft_mean > +50%", "--fail-if", "itl_mean > +50%"),
    )


def test_a_slower_target_is_found(slower: Compared) -> None:
    ttft = slower.difference("ttft_mean")
    assert ttft["claim"] == 1
    assert ttft["change"] == pytest.approx(3.0, rel=0.2)
    assert ttft["low"] > 0.5
    assert slower.document["pairs"] == 5
    assert slower.document["requests"] == 5 * REQUESTS_PER_SLICE


def test_a_latency_that_is_equal_is_not_called_slower(slower: Compared) -> None:
    assert abs(slower.difference("itl_mean")["change"]) < 0.2


def test_an_exceeded_limit_decides_the_exit_code(slower: Compared) -> None:
    assert slower.code == LIMIT
    assert "--fail-if: ttft_mean > +50%: exceeded (99% interval" in slower.stderr
    assert "itl_mean" not in slower.stderr
    assert [limit["outcome"] for limit in slower.document["limits"]] == ["exceeded", "passed"]


def test_both_targets_get_the_same_lengths_and_different_tokens(slower: Compared) -> None:
    first, second = slower.prompts
    assert [len(prompt) for prompt in first] == [len(prompt) for prompt in second]
    assert all(each != other for each, other in zip(first, second, strict=True))


def test_few_responses_end_in_the_slice_of_the_other_target(slower: Compared) -> None:
    """Both loads use the times of the trace.

    On a busy machine, AIPerf may start later for one, or responses take longer than the gap. With
    equal times of both loads, half of the responses would end during the other target's slice.
    """
    assert all("zero_ms=0, auto_offset=False" in log for log in slower.logs)
    if slower.document["skew_ms"] < 200:
        assert slower.document["overlapping"] < 0.2
