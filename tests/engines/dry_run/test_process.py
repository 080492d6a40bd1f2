"""The process of an engine, with a small program instead of the engine."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from penstock.engines.dry_run.process import MOST_STARTS, EngineProcess, EngineProcesses
from penstock.engines.dry_run.protocol import Accepted, Refused, Undecided
from penstock.errors import MissingToolError
from penstock.manifests.deployment import Engine

from .configurations import configuration

# Responds by the worker's last argument: refuses `refused`, hangs at `hang`, ends at `end`, or at
# `half` within a line.
PROGRAM = """
import json, sys, time
open("starts", "a").write("x")
print(json.dumps({"version": "1.2"}), flush=True)
for line in sys.stdin:
    word = json.loads(line)["arguments"][-1]
    if word == "hang":
        time.sleep(600)
    if word == "end":
        sys.exit(3)
    if word == "half":
        print('{"outcome":', end="", flush=True)
        sys.exit(3)
    refused = {"outcome": "refused", "text": "no"}
    accepted = {"outcome": "accepted", "resolved": {}}
    print(json.dumps(refused if word == "refused" else accepted), flush=True)
"""


def process(folder: Path, program: str = PROGRAM, time_limit_s: float = 20.0) -> EngineProcess:
    return EngineProcess((sys.executable, "-c", program), folder, time_limit_s=time_limit_s)


def test_one_process_responds_to_several_configurations(tmp_path: Path) -> None:
    child = process(tmp_path)
    try:
        assert isinstance(child.ask(configuration("fine", tmp_path)), Accepted)
        assert child.ask(configuration("refused", tmp_path)) == Refused(message="no")
        assert child.version == "1.2"
    finally:
        child.end()


@pytest.mark.parametrize("word", ["end", "half"])
def test_a_configuration_that_ends_the_process_is_undecided_and_the_next_is_asked(
    tmp_path: Path, word: str
) -> None:
    child = process(tmp_path)
    try:
        outcome = child.ask(configuration(word, tmp_path))
        assert isinstance(outcome, Undecided)
        assert "ended" in outcome.reason
        assert isinstance(child.ask(configuration("fine", tmp_path)), Accepted)
    finally:
        child.end()


def test_a_process_that_ends_each_time_is_not_started_for_ever(tmp_path: Path) -> None:
    child = process(tmp_path)
    outcomes = [child.ask(configuration("end", tmp_path)) for _ in range(MOST_STARTS + 2)]
    assert len((tmp_path / "starts").read_text()) == MOST_STARTS
    assert all(isinstance(outcome, Undecided) for outcome in outcomes)
    assert outcomes[-1] == Undecided(
        reason=f"the engine's own code failed {MOST_STARTS} times and is not started again"
    )


def test_a_configuration_that_takes_too_long_is_undecided(tmp_path: Path) -> None:
    child = process(tmp_path, time_limit_s=1.0)
    begun = time.monotonic()
    outcome = child.ask(configuration("hang", tmp_path))
    assert outcome == Undecided(reason="the engine's own code did not respond within 1 s")
    assert time.monotonic() - begun < 60


def test_code_that_does_not_start_is_reported_with_its_last_line(tmp_path: Path) -> None:
    child = process(tmp_path, "raise ImportError('no kernels')")
    with pytest.raises(MissingToolError, match="does not start: ImportError: no kernels"):
        child.start()


def test_an_engine_that_does_not_start_is_not_started_again(tmp_path: Path) -> None:
    with EngineProcesses({Engine.VLLM: Path(sys.executable)}) as engines:
        asked = configuration("", engines.folder)
        for _ in range(2):
            with pytest.raises(MissingToolError, match="No module named 'vllm'"):
                engines.ask(Engine.VLLM, asked)
        assert engines.has(Engine.VLLM)
        assert not engines.has(Engine.SGLANG)
    assert not engines.folder.exists()
