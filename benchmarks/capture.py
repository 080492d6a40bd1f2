"""Measures `penstock capture`: time, and what a captured trace keeps of the original traffic.

python benchmarks/capture.py --trace FILE   Writes results/capture.json.

FILE is Mooncake's conversation trace. `capture` has no fitted parameter; the slice of the trace and
the chat workload below were chosen before the first run, with the seed `SEED`.

- `read`: 100,000 records of Dynamo's request trace in compressed segments of four frontends, made
  from the trace, and as many lines of Envoy Gateway's access log.
- `offline`: the trace as logs of four frontends, captured, and both simulated.
- `live`: requests that `penstock bench` sends to mockers behind a real frontend with
  DYN_REQUEST_TRACE=1; the workload and the captured trace are both simulated.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from report import write_result

Row = dict[str, Any]
SEED = 20261127
REQUESTS = 100_000
FRONTENDS = 4
SEGMENT_LINES = 10_000
BLOCK, TRACE_BLOCK = 32, 512  # tokens of TensorRT-LLM's blocks, and of Mooncake's
LIVE_REQUESTS = 150
START_MS = 1_795_745_000_000
GRAPH = """
model: {id: openai/gpt-oss-120b, context_length: 131072}
hardware: {gpu: b200}
engine:
  kind: trtllm
  config: {max_batch_size: 256, max_num_tokens: 8192, kv_cache_config: {dtype: fp8}}
worker: {replicas: 2, gpus: 1}
"""
LIVE_GRAPH = """
model: {id: openai/gpt-oss-20b, context_length: 131072}
engine:
  kind: mocker
  config: {engine: {speedup_ratio: 20.0, num_gpu_blocks: 32768}}
worker: {replicas: 1}
frontend: {env: {DYN_REQUEST_TRACE: "1"}}
"""
CHAT = """
requests: 150
input: {mean: 700, cv: 0.5, max: 2000}
output: 24
arrival: {poisson: 4}
system_prompts: {tokens: 300, count: 4}
"""
SEGMENTS = "dynamo-request-trace.*.jsonl.gz"  # in /tmp: `up` accepts no other path


def penstock(*arguments: str) -> str:
    argv = [sys.executable, "-m", "penstock.cli.main", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{argv}: {done.stderr}")
    return done.stdout


def rows_of(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _hashes(row: Row) -> str:
    """Those of a prompt's blocks, as 64-bit numbers in JSON."""
    parts = TRACE_BLOCK // BLOCK
    needed = -(-row["input_length"] // BLOCK)
    numbers = [
        (block * parts + part + 1) * 0x9E3779B97F4A7C15 % 2**64
        for block in row["hash_ids"]
        for part in range(parts)
    ]
    return ",".join(map(str, numbers[:needed]))


def _record(row: Row, number: int, at_ms: int) -> tuple[int, str]:
    """(Its end, the record): the fields that Dynamo 1.6.1 writes and `capture` reads."""
    took = 200 + 8 * row["output_length"]
    tokens = row["input_length"]
    return at_ms + took, (
        '{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":'
        f'{at_ms + took},"request":{{"request_id":"{number}","input_tokens":{tokens},'
        f'"output_tokens":{row["output_length"]},"request_received_ms":{at_ms},"total_time_ms":'
        f'{took}.0,"replay":{{"trace_block_size":{BLOCK},"input_length":{tokens},'
        f'"input_sequence_hashes":[{_hashes(row)}]}}}}}}'
    )


def write_logs(rows: Iterable[tuple[Row, int]], folder: Path) -> int:
    """Deal the rows (with their times in ms) to the frontends; returns the uncompressed bytes."""
    chance = random.Random(SEED)
    logs: list[list[tuple[int, str]]] = [[] for _ in range(FRONTENDS)]
    for number, (row, at_ms) in enumerate(rows):
        logs[chance.randrange(FRONTENDS)].append(_record(row, number, START_MS + at_ms))
    size = 0
    for name, log in enumerate(logs):
        log.sort()
        for index, first in enumerate(range(0, len(log), SEGMENT_LINES)):
            lines = [
                f'{{"timestamp":{end - START_MS},"event":{text}}}\n'
                for end, text in log[first : first + SEGMENT_LINES]
            ]
            content = "".join(lines).encode()
            size += len(content)
            path = folder / f"frontend-{name}.{index:06d}.jsonl.gz"
            path.write_bytes(gzip.compress(content, 1))
    return size


def timed_capture(*arguments: str) -> float:
    begun = time.perf_counter()
    penstock("capture", *arguments)
    return round(time.perf_counter() - begun, 1)


def read_case(rows: Sequence[Row], folder: Path) -> Row:
    """`REQUESTS` records: the trace again and again, one after the other."""
    logs = folder / "logs"
    logs.mkdir()
    period = rows[-1]["timestamp"] + 1000
    many = (
        (rows[n % len(rows)], rows[n % len(rows)]["timestamp"] + n // len(rows) * period)
        for n in range(REQUESTS)
    )
    size = write_logs(many, logs)
    dynamo_s = timed_capture(str(logs), "-o", str(folder / "read.jsonl"))
    count = len(rows_of(folder / "read.jsonl"))
    access = folder / "access.log"
    with access.open("w") as file:
        for number in range(REQUESTS):
            at_s = number // 20
            time_of_day = f"{at_s // 3600:02d}:{at_s // 60 % 60:02d}:{at_s % 60:02d}"
            entry = {
                "start_time": f"2026-11-27T{time_of_day}.{number % 20 * 50:03d}Z",
                "method": "POST",
                "x-envoy-origin-path": "/v1/chat/completions",
                "response_code": 200,
                "duration": 900,
                "x-request-id": str(number),
            }
            file.write(json.dumps(entry) + "\n")
    lengths = ["--input-tokens", "1000:0.5", "--output-tokens", "200:0.5"]
    envoy_s = timed_capture(str(access), "-o", str(folder / "access.jsonl"), *lengths)
    return {
        "dynamo": {"records": count, "uncompressed_mib": size >> 20, "seconds": dynamo_s},
        "envoy": {"records": REQUESTS, "mib": access.stat().st_size >> 20, "seconds": envoy_s},
    }


def simulated_hit_rate(graph: Path, workload: Path) -> float:
    """Share of the input tokens that the replay finds in a cache."""
    text = penstock("simulate", str(graph), "--workload", str(workload), "--seeds", "1", "--json")
    (one,) = json.loads(text)["graphs"]
    return float(one["figures"]["prefix_hit_rate"]["median"])


def compare(graph: Path, original: Path, captured: Path) -> Row:
    before, after = (simulated_hit_rate(graph, path) for path in (original, captured))
    return {
        "hit_rate_original": round(before, 4),
        "hit_rate_captured": round(after, 4),
        "difference_points": round(abs(after - before) * 100, 2),
    }


def gap_differences(original: Sequence[float], captured: Sequence[float]) -> Row:
    """Between the sorted times between arrivals, in ms, and between the arrivals themselves."""
    gaps = [sorted(b - a for a, b in pairwise(times)) for times in (original, captured)]
    differences = sorted(abs(a - b) for a, b in zip(*gaps, strict=True))
    shifts = sorted(
        abs((a - original[0]) - (b - captured[0])) for a, b in zip(original, captured, strict=True)
    )
    return {
        "gap_difference_ms_p50": round(differences[len(differences) // 2], 1),
        "gap_difference_ms_max": round(differences[-1], 1),
        "arrival_difference_ms_p50": round(shifts[len(shifts) // 2], 1),
        "arrival_difference_ms_max": round(shifts[-1], 1),
    }


def offline_case(rows: Sequence[Row], trace: Path, folder: Path) -> Row:
    logs = folder / "offline"
    logs.mkdir()
    write_logs(((row, row["timestamp"]) for row in rows), logs)
    captured = folder / "offline.jsonl"
    penstock("capture", str(logs), "-o", str(captured))
    original = folder / "original.yaml"
    original.write_text(f"trace: {{format: mooncake, file: {trace}}}\n")
    graph = folder / "simulated.yaml"
    graph.write_text(GRAPH)
    times = [[float(row["timestamp"]) for row in part] for part in (rows, rows_of(captured))]
    lengths = [
        sorted((row["timestamp"], row["input_length"], row["output_length"]) for row in part)
        for part in (rows, rows_of(captured))
    ]
    return {
        "requests": len(rows),
        "lengths_and_times_are_equal": lengths[0] == lengths[1],
        **gap_differences(*times),
        **compare(graph, original, captured.with_suffix(".yaml")),
    }


def live_case(workload: Path, expected: Sequence[float], folder: Path) -> Row:
    """``expected``: the arrivals in ms."""
    graph = folder / f"{workload.stem}-live.yaml"
    graph.write_text(LIVE_GRAPH)
    known = set(Path("/tmp").glob(SEGMENTS))
    printed = penstock("up", str(graph), "--detach", "--port", "0")
    url = next(word for word in printed.split() if word.startswith("http://"))
    try:
        penstock("bench", url, "--workload", str(workload))
        time.sleep(3)  # the frontend flushes its trace once a second
    finally:
        penstock("down", str(graph))
    segments = sorted(set(Path("/tmp").glob(SEGMENTS)) - known)
    every = folder / f"{workload.stem}-all.jsonl"
    penstock("capture", *map(str, segments), "-o", str(every))
    for segment in segments:
        segment.unlink()
    # `up` and `bench` send a few requests of their own before the workload.
    rows = rows_of(every)[-len(expected) :]
    captured = folder / f"{workload.stem}-captured.jsonl"
    captured.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = every.with_suffix(".yaml").read_text().replace(every.name, captured.name)
    captured.with_suffix(".yaml").write_text(text)
    simulated = folder / "simulated.yaml"
    simulated.write_text(GRAPH)
    times = [float(row["timestamp"]) for row in rows]
    return {
        "requests": len(rows),
        **gap_differences(expected, times),
        **compare(simulated, workload, captured.with_suffix(".yaml")),
    }


def live_cases(rows: Sequence[Row], folder: Path) -> Row:
    from penstock.workload import find_workload

    first = random.Random(SEED).randrange(len(rows) - LIVE_REQUESTS)
    part = [row for row in rows[first : first + LIVE_REQUESTS] if row["output_length"]]
    cut = folder / "slice.jsonl"
    cut.write_text(
        "".join(json.dumps(row | {"output_length": min(row["output_length"], 24)}) + "\n"
                for row in part)
    )  # fmt: skip
    mooncake, chat = folder / "slice.yaml", folder / "chat.yaml"
    mooncake.write_text(f"trace: {{format: mooncake, file: {cut}}}\n")
    chat.write_text(CHAT)
    found: Row = {"first_request_of_the_slice": first}
    for path in (mooncake, chat):
        arrivals = [request.at_ms or 0.0 for request in find_workload(str(path)).requests(0)]
        found[path.stem] = live_case(path, arrivals, folder)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--only", choices=["read", "offline", "live"])
    args = parser.parse_args()
    trace = args.trace.resolve()
    rows = rows_of(trace)
    figures: Row = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.only in (None, "read"):
            figures["read"] = read_case(rows, folder)
        if args.only in (None, "offline"):
            figures["offline"] = offline_case(rows, trace, folder)
        if args.only in (None, "live"):
            figures["live"] = live_cases(rows, folder)
    if args.only:
        print(json.dumps(figures, indent=1))
        return
    write_result("capture", "python benchmarks/capture.py --trace FILE", figures)


if __name__ == "__main__":
    main()
