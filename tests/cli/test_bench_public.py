"""Options of `penstock bench public` that do not fit its method."""

from __future__ import annotations

import shlex

import pytest

from penstock.bench.methods import agentperf, artificial_analysis, openrouter, system_load
from penstock.cli import bench_public
from tests.support.command_line import penstock

USAGE = 2
AA = "--method artificial-analysis"
OPENROUTER = "--method openrouter"
URL, GRAPH = "http://127.0.0.1:1", "dynamo_graphs/quickstart-simulated.yaml"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"{URL} {AA} --duration 30m", "--duration needs --method openrouter"),
        (f"{URL} {AA} --phase 9s", "--phase needs --part system-load. Fix: Remove --phase."),
        (f"{URL} {AA} --replay aa-mini-v1", "--replay needs --part agentperf"),
        (f"{URL} {AA} --part agentperf --requests 3", "--requests needs --part 10k, 1k, 100k"),
        (f"{URL} {URL} {AA}", "--method artificial-analysis measures one target"),
        (f"{URL} {AA} --start", "--start needs a graph, and the target is a URL"),
        (f"{URL} {AA} --sweep 1,2", "unknown option --sweep"),
        (f"{URL} --part 1k", "the following arguments are required: --method"),
        (f"{URL} {OPENROUTER} --part 1k", "--part needs --method artificial-analysis"),
        (f"{URL} {OPENROUTER} --requests 5", "--requests needs --part 10k"),
        (f"{URL} {OPENROUTER} --request-timeout 9s", "--request-timeout does not apply to --met"),
        (f"{GRAPH} {OPENROUTER} --start", "--start does not apply to --method openrouter"),
    ],
)
def test_an_option_that_does_not_fit_is_an_error(words: str, message: str) -> None:
    done = penstock("bench", "public", *shlex.split(words))
    assert done.returncode == USAGE
    assert message in done.stderr


def test_the_options_name_what_the_methods_know() -> None:
    assert set(bench_public.SINGLE) == set(artificial_analysis.PARTS)
    assert bench_public.REPLAYS == agentperf.REPLAYS
    assert bench_public.DURATION_MS == 1000 * openrouter.DURATION_S
    assert bench_public.PHASE_MS == 1000 * system_load.PHASE_S
