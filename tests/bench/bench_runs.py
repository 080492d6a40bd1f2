"""Runs of `penstock bench` against the scripted server, and AIPerf's records of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

from tests.support.command_line import penstock
from tests.support.completions_server import CompletionsServer, Script, Sent
from tests.support.outputs import read_output

FIRST_INPUT = 100  # tokens of request 0; each other request has one more than the one before


def write_workload(
    folder: Path, requests: int, output_tokens: int, every_ms: float
) -> tuple[str, ...]:
    """The arguments of a trace whose requests differ in their number of input tokens."""
    lines = [
        {
            "timestamp": number * every_ms,
            "input_length": FIRST_INPUT + number,
            "output_length": output_tokens,
        }
        for number in range(requests)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    trace, workload = folder / "trace.jsonl", folder / "workload.yaml"
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    workload.write_text("trace: {format: mooncake}\n")
    return "--workload", str(workload), "--trace", str(trace)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A run that served requests."""

    document: Mapping[str, Any]
    """The output of `--json`."""
    records: Sequence[Mapping[str, Any]]
    """AIPerf's, in order of the requests' starts."""
    out: Path
    """The folder of `--out`."""
    sent: Mapping[int, Sent]
    """What the server knows of complete responses, by the number of input tokens."""

    @property
    def served(self) -> list[Mapping[str, Any]]:
        return [record for record in self.records if _tokens(record) in self.sent]

    @property
    def counted(self) -> list[Mapping[str, Any]]:
        """Served requests in the measured window, by its definition in `simulate/window.py`: from
        the end of the warm-up to the last arrival. The warm-up is 10% of the requests or twice the
        median duration, the longer of the two, and at most half of the requests."""
        served = self.served
        starts = [_start_ms(request) for request in served]
        warm_up = 2 * median(e2e_ms(request) for request in served)
        earliest, latest = (starts[int(share * (len(starts) - 1))] for share in (0.1, 0.5))
        begin = min(max(earliest, starts[0] + warm_up), latest)
        assert starts[-1] - begin >= warm_up, "too short for a steady state"
        return [request for request in served if _start_ms(request) >= begin]

    def truth(self, record: Mapping[str, Any]) -> Sent:
        return self.sent[_tokens(record)]


def run_bench(
    folder: Path, script: Script, workload: Sequence[str], *arguments: str, key: str = ""
) -> Finished:
    """``key``: that the server requires."""
    server, out = CompletionsServer(script=script, key=key), folder / "out"
    with server.running():
        done = penstock(
            "bench", server.url, *workload, "--out", str(out), "--json", "-q", *arguments
        )
    assert done.returncode == 0, done.stderr
    lines = (out / "profile_export.jsonl").read_text().splitlines()
    return Finished(
        document=read_output("bench", done.stdout),
        records=sorted(map(json.loads, lines), key=_start_ms),
        out=out,
        sent={request.input_tokens: request for request in server.sent},
    )


def nearest_rank(values: Sequence[float], percent: int) -> float:
    return sorted(values)[ceil(percent * len(values) / 100) - 1]


def ttft_ms(record: Mapping[str, Any]) -> float:
    return float(record["metrics"]["time_to_first_token"]["value"])


def e2e_ms(record: Mapping[str, Any]) -> float:
    return float(record["metrics"]["request_latency"]["value"])


def itl_ms(record: Mapping[str, Any]) -> float:
    tokens = record["metrics"]["usage_completion_tokens"]["value"]
    return (e2e_ms(record) - ttft_ms(record)) / (int(tokens) - 1)


def _start_ms(record: Mapping[str, Any]) -> float:
    return float(record["metadata"]["request_start_ns"]) / 1e6


def _tokens(record: Mapping[str, Any]) -> int:
    usage = record["metrics"].get("usage_prompt_tokens") or {"value": 0}
    return int(usage["value"])
