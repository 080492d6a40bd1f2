"""Runs with records, for tests of CSV and of llm-d's Benchmark Report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.bench.measurement import Bench, RequestLog, measurement_of
from penstock.bench.records import read_records
from penstock.bench.trace_file import Key
from penstock.graph.slo import Slo
from penstock.workload import Request
from tests.bench.hand_written import record, request, traffic_of
from tests.bench.measured_runs import BENCH

EVERY_MS = 100.0
FAILED = {"error": {"code": 500, "type": "x"}, "ttft_ms": None, "tokens": None, "gaps_ms": None}


def run_of(
    folder: Path,
    number: int,
    *,
    failed: Iterable[int] = (),
    unsent: int = 0,
    slo: Slo = Slo(),  # noqa: B008 (frozen)
    **more: Any,
) -> Bench:
    """``number`` requests, one every 100 ms, whose TTFT is 20 ms, 21 ms, …; ``failed``: their
    numbers; ``unsent``: how many of the last have no record."""
    requests: Mapping[Key, Request] = {
        (f"r{each}", 0): request(each * EVERY_MS) for each in range(number)
    }
    records = [
        record((f"r{each}", 0), each * EVERY_MS, **FAILED)
        if each in set(failed)
        else record((f"r{each}", 0), each * EVERY_MS, ttft_ms=20.0 + each, e2e_ms=120.0 + each)
        for each in range(number - unsent)
    ]
    read = read_records(traffic_of(folder, requests, records))
    log = RequestLog(requests=requests, records=read)
    measured = measurement_of(read, slo, None, is_scheduled=True, cpu_share=0.1)
    return replace(BENCH, measurement=measured, slo=slo, log=log, **more)
