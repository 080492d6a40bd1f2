"""`simulate` and `bench` take a captured trace, with the prefixes and arrivals of the original."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.bench.trace_file import keyed, write_trace
from penstock.cli.main import main
from penstock.workload import find_workload
from tests.capture.logs import START_MS, record

GRAPH = str(Path(__file__).parents[2] / "dynamo_graphs" / "gpt-oss-120b-b200-throughput.yaml")
ONE_WORKER = ("--set", "worker.replicas=1", "--seeds", "1")  # the router decides at random
BLOCK, PARTS = 32, 16  # tokens of a block of the log; such blocks in one of Mooncake's


def _original(folder: Path) -> Path:
    """Prompts with one of three beginnings of 4,096 tokens, in Mooncake's format."""
    chance = random.Random(7)
    rows = []
    for number in range(60):
        tokens = 4096 + chance.randint(1, 3000)
        shared = [8 * chance.randrange(3) + block for block in range(8)]
        unshared = [1000 + 100 * number + block for block in range(-(-tokens // 512) - 8)]
        row = {
            "timestamp": number * 100 + chance.randrange(100),
            "input_length": tokens,
            "output_length": chance.randint(1, 100),
            "hash_ids": shared + unshared,
        }
        rows.append(row)
    (folder / "original.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    workload = folder / "original.yaml"
    workload.write_text("trace: {format: mooncake, file: original.jsonl}\n")
    return workload


def _captured(folder: Path) -> Path:
    """The same from logs of two frontends, in the order in which the requests end."""
    logs: tuple[list[dict[str, Any]], ...] = ([], [])
    for number, line in enumerate((folder / "original.jsonl").read_text().splitlines()):
        row = json.loads(line)
        hashes = [block * PARTS + part for block in row["hash_ids"] for part in range(PARTS)]
        logs[number % 2].append(
            record(
                number,
                at_ms=START_MS + row["timestamp"],
                tokens=row["input_length"],
                hashes=hashes[: -(-row["input_length"] // BLOCK)],
                block_tokens=BLOCK,
                output_tokens=row["output_length"],
            )
        )
    for name, rows in zip("ab", logs, strict=True):
        rows.sort(key=lambda row: row["event_time_unix_ms"])
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    argv = [str(folder / "a.jsonl"), str(folder / "b.jsonl"), "-o", str(folder / "trace.jsonl")]
    assert main(["capture", *argv]) == 0
    return folder / "trace.yaml"


def test_the_requests_of_the_original_come_back(tmp_path: Path) -> None:
    original, captured = (
        find_workload(str(path)).requests(0) for path in (_original(tmp_path), _captured(tmp_path))
    )
    for name in ("at_ms", "input_tokens", "output_tokens"):
        values = [[getattr(request, name) for request in part] for part in (original, captured)]
        assert values[0] == values[1]
    for later in range(len(original)):
        for earlier in range(later):
            assert _shared(original, earlier, later) == _shared(captured, earlier, later)


def _shared(requests: Any, first: int, other: int) -> int:
    """Blocks at the beginning that two requests share."""
    pairs = zip(requests[first].blocks, requests[other].blocks, strict=False)
    equal = [a == b for a, b in pairs]
    return equal.index(False) if False in equal else len(equal)


@pytest.mark.needs("sim")
def test_the_replay_has_the_prefix_cache_hit_rate_of_the_original(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rates = []
    for workload in (_original(tmp_path), _captured(tmp_path)):
        capsys.readouterr()
        assert main(["simulate", GRAPH, *ONE_WORKER, "--workload", str(workload), "--json"]) == 0
        (graph,) = json.loads(capsys.readouterr().out)["graphs"]
        rates.append(graph["figures"]["prefix_hit_rate"]["median"])
    assert rates[0] > 0.2
    assert rates[1] == pytest.approx(rates[0], abs=0.002)


def test_bench_writes_the_requests_that_it_sends(tmp_path: Path) -> None:
    _original(tmp_path)
    requests = find_workload(str(_captured(tmp_path))).requests(0)
    out = tmp_path / "aiperf.jsonl"
    write_trace(out, keyed(requests), "m", "salt", is_scheduled=True)
    sent = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["timestamp"] for line in sent] == [request.at_ms for request in requests]
    prompts = [line["payload"]["prompt"] for line in sent]
    assert list(map(len, prompts)) == [request.input_tokens for request in requests]
