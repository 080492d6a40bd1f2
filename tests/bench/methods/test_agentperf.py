"""`penstock bench --part agentperf`, with a program in place of agentperf-local."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from penstock.cli.main import main
from tests.bench.bench_process import Running, run_process
from tests.bench.methods.fake_agentperf import install
from tests.support.command_line import penstock
from tests.support.outputs import read_output
from tests.support.scripted_http import respond, serving

pytestmark = pytest.mark.program

MISSING, BENCH, INTERRUPTED = 8, 19, 130
AGENTPERF = ("--method", "artificial-analysis", "--part", "agentperf")
FULL = {"id": "m", "context_window": 131072}


def bench(
    folder: Path, *arguments: str, does: str = "succeed", model: object = FULL
) -> CompletedProcess[str]:
    install(folder / "environments")
    listed = json.dumps({"data": [model]}).encode()
    with serving(lambda r: respond(r, listed)) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_ENVIRONMENTS", str(folder / "environments"))
        patch.setenv("FAKE_AGENTPERF", does)
        patch.setenv("OPENAI_API_KEY", "the-secret")
        return penstock("bench", "public", url, *AGENTPERF, *arguments)


def test_the_tool_gets_the_context_that_dynamo_reports(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = bench(tmp_path, "--replay", "aa-mini-v1", "--out", str(out))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("aa-mini-v1 (agentperf-local 0.3.4), m at http://127.0.0.1:")
    assert lines[1:4] == [
        "turns: 6 of 6 succeeded",
        "context: 131,072 tokens; the benchmark needs 65,536; agentperf-local: full",
        "aa-mini-v1 checks the setup. Only results of agentperf-default-v1 are comparable",
    ]
    assert "output: 400.0 tokens/s after the first token, 350.0 tokens/s with TTFT" in lines
    assert lines[-1] == "agentperf-local: note: no GPU"
    called = json.loads((out / "agentperf" / "called.json").read_text())
    assert Path(called["cache"]) == tmp_path / "environments" / "harmony" / "cache"
    assert "the-secret" not in " ".join(called["argv"])
    assert "OPENAI_API_KEY" in called["argv"]
    assert "--timeout-seconds" not in called["argv"]  # the tool's own


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ({"id": "m", "context_window": 8192}, "context: 8,192 tokens; the benchmark needs 65,536"),
        ({"id": "m"}, "context: unknown (context-not-reported); the benchmark needs 65,536"),
    ],
)
def test_the_verdict_stays_that_of_the_tool(
    model: dict[str, object], line: str, tmp_path: Path
) -> None:
    done = bench(tmp_path, "--request-timeout", "30s", model=model)
    assert done.returncode == 0, done.stderr
    assert line in done.stdout
    assert "agentperf-local: reduced, so the run is not comparable" in done.stdout


def test_failed_turns_are_an_error(tmp_path: Path) -> None:
    done = bench(tmp_path, "--json", does="fail-turns")
    assert done.returncode == BENCH
    document = read_output("bench", done.stdout)
    assert (document["replay"], document["has_full_context"]) == ("agentperf-default-v1", True)
    assert "2 of 6 turns failed: HTTP 400: too long. Fix: Read agentperf/failures" in done.stderr


def test_an_error_of_the_tool_is_printed(tmp_path: Path) -> None:
    done = bench(tmp_path, does="refuse")
    assert done.returncode == BENCH
    assert "agentperf-local 0.3.4 failed: server ignores ignore_eos. Fix: Read" in done.stderr


def test_ctrl_c_ends_the_tool(tmp_path: Path) -> None:
    install(tmp_path / "environments")
    out = tmp_path / "out"

    def act(running: Running) -> None:
        running.wait_for((out / "agentperf" / "called.json").exists, "the tool")
        running.signal(signal.SIGINT)

    environ = {"PENSTOCK_ENVIRONMENTS": str(tmp_path / "environments"), "FAKE_AGENTPERF": "hang"}
    listed = json.dumps({"data": [FULL]}).encode()
    with serving(lambda r: respond(r, listed)) as url:
        ended = run_process([url, *AGENTPERF, "--out", str(out)], act, **environ)
    assert (ended.code, list(ended.left)) == (INTERRUPTED, [])


@pytest.mark.parametrize(
    ("installed", "words"),
    [
        ((), "Run `penstock tools env install agentperf` (0.1 GB, once)."),
        (("agentperf",), "Run `penstock tools env install harmony`."),
    ],
)
def test_with_no_install_the_fix_installs_its_environments(
    installed: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in installed:
        (tmp_path / name).mkdir()
        (tmp_path / name / "installed.txt").write_text("")
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path))
    assert main(["bench", "http://127.0.0.1:1", *AGENTPERF, "--no-install"]) == MISSING
    assert words in capsys.readouterr().err
