"""`penstock capture` of a real frontend's request trace, as a file and from NATS."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from penstock.bench.shadow.requests import read_requests
from penstock.cli.main import main
from penstock.local.ports import Ports
from penstock.tokenizer import FOLDER
from penstock.workload import find_workload
from tests.support.dynamo_processes import dynamo_processes
from tests.support.needs import program
from tests.support.outputs import read_output
from tests.support.waiting import wait_for

PLANTED = ("PLANTEDTEXT", "PLANTEDKEY", "PLANTEDUSER", "PLANTEDQUERY", "PLANTEDSESSION")
REQUESTS = 4
MODEL = "traced"
MOCKER = (
    "-m", "dynamo.mocker", "--model-path", str(FOLDER), "--model-name", MODEL,
    "--block-size", "32", "--num-gpu-blocks-override", "4096",
)  # fmt: skip


def _send(url: str) -> None:
    """The same prompt of a few blocks, with another end each time."""
    text, key, user, query, session = PLANTED
    headers = {"Authorization": f"Bearer {key}", "x-session-id": session}
    for number in range(REQUESTS):
        message = {"role": "user", "content": f"{text} one two three four " * 40 + str(number)}
        body = {"model": MODEL, "messages": [message], "user": user, "max_tokens": 4}
        done = httpx.post(
            f"{url}/chat/completions?key={query}", json=body, headers=headers, trust_env=False
        )
        assert done.status_code == 200, done.text


@pytest.mark.needs("servers")
def test_a_trace_of_a_real_frontend_has_shapes_and_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ports = Ports()
    port = ports.free()
    log, live = tmp_path / "log.jsonl", tmp_path / "live.jsonl"
    variables = {
        "DYN_REQUEST_TRACE": "1",
        "DYN_REQUEST_TRACE_RECORDS": "request_end,request_payload,tool",
        "DYN_REQUEST_TRACE_SINKS": "file,nats",
        "DYN_REQUEST_TRACE_FILE_FORMAT": "jsonl",
        "DYN_REQUEST_TRACE_FILE_PATH": str(log),
        "DYN_REQUEST_TRACE_HTTP_HEADER_CAPTURE_LIST": "authorization",
        "NATS_SERVER": f"nats://127.0.0.1:{port}",
    }
    nats = subprocess.Popen(  # the frontend connects later, when it listens
        [program("nats-server"), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(tmp_path)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with dynamo_processes(
            tmp_path, MODEL, {"worker": MOCKER}, ports,
            frontend=("--router-mode", "kv"), variables={"frontend": variables},
        ) as url:  # fmt: skip
            address = f"nats://127.0.0.1:{port}"
            argv = [address, "-o", str(live), "--requests", str(REQUESTS), "--duration-s", "60"]
            reader = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli.main", "capture", *argv],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert reader.stderr is not None
            assert "reading dynamo.request_trace.v1" in reader.stderr.readline()
            _send(url)
            printed, _ = reader.communicate(timeout=60)
            assert reader.returncode == 0
            wait_for(lambda: _has_records(log), f"all records in {log}")
            copy = tmp_path / "copy.jsonl"
            assert main(["capture", str(log), "-o", str(copy)]) == 0
            _check_text(log, tmp_path / "text.jsonl", url, capsys)
    finally:
        nats.terminate()
        nats.wait(10)
    assert "PLANTEDTEXT" in log.read_text()  # the source has it
    assert live.read_text() == copy.read_text()
    requests = find_workload(str(live.with_suffix(".yaml"))).requests(0)
    assert [request.output_tokens for request in requests] == [4] * REQUESTS
    first, second = requests[0].blocks, requests[1].blocks
    assert first[:-1] == second[:-1]
    assert first[-1] != second[-1]
    written = printed + "".join(
        path.read_text() for path in (live, copy, live.with_suffix(".yaml"))
    )
    assert not [planted for planted in PLANTED if planted in written]
    assert [path.name for path in tmp_path.glob("*.requests.jsonl")] == ["text.requests.jsonl"]
    assert (tmp_path / "text.jsonl").read_text() == copy.read_text()


def _check_text(log: Path, out: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With --include-text, the prompts are in a file of their own, which `bench shadow` sends."""
    assert main(["capture", str(log), "-o", str(out), "--include-text"]) == 0
    path = out.with_suffix(".requests.jsonl")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    sent = read_requests(path).requests
    ends = [one.body["messages"][0]["content"].split()[-1] for one in sent]
    assert ends == [str(number) for number in range(REQUESTS)]
    assert all(one.body["max_tokens"] == 4 and one.body["model"] == MODEL for one in sent)
    text = path.read_text()
    assert "PLANTEDTEXT" in text
    assert not [planted for planted in PLANTED[1:] if planted in text]
    capsys.readouterr()
    code = main(["bench", "shadow", url, url, "--file", str(path), "--repeats", "0", "--json"])
    found = read_output("bench", capsys.readouterr().out)
    assert code == 21  # too few requests for a verdict
    assert (found["compared"], found["both_failed"]) == (REQUESTS, 0)


def _has_records(log: Path) -> bool:
    lines = log.read_text().splitlines() if log.exists() else []
    kinds = [json.loads(line)["event"]["event_type"] for line in lines]
    return kinds.count("request_end") == kinds.count("request_payload") == REQUESTS
