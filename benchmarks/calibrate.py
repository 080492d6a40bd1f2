"""Whether `penstock bench --calibrate` recovers the hidden parameters of a twin.

python benchmarks/calibrate.py [--runs N]
Writes results/calibrate.json; continues with the runs that it lacks. Needs the environments sim and
aiperf.

A twin is a graph that `penstock up --engine mocker --timing model` runs with hidden parameters: the
step times of its mockers are changed outside of penstock (slow_timing/sitecustomize.py), and a
proxy holds each request back (delay_proxy.py). The control has none of them: its factors are the
overhead of this machine, which is part of every measurement. The factors of a run then predict
other traffic on the same twin.

Twins run at SPEED times real time, so that the noise of this machine is as much smaller compared
with their times: `--calibrate` must find SPEED times the prefill speed and 1 / SPEED times the step
time too. Its results are divided by them: `found` and `hidden` are of simulated time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from penstock.bench.measurement import predicted
from penstock.drill.graph_process import GraphProcess
from penstock.environments import environments_root
from penstock.local.ports import Ports
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from penstock.simulate.calibration import Factors, corrected
from penstock.simulate.replay import Cache, Replays
from penstock.simulate.replayable import replayable
from penstock.workload import find_workload
from report import RESULTS, write_result
from twin import own_comparison

HERE = Path(__file__).parent
GRAPHS = HERE.parent / "dynamo_graphs"
TWINS = {
    "gpt-oss-120b-h100-latency": ("frontend.replicas=1",),
    "gpt-oss-120b-h100-disagg": ("prefill.replicas=1", "decode.replicas=1", "frontend.replicas=1"),
}
SPEED = 0.25
LONG = """\
requests: 100
input: {mean: 6000, cv: 0.6, max: 20000}
output: {mean: 64, cv: 0.4, max: 160}
arrival: {poisson: 0.6}
"""
# Held out: shorter inputs with shared prefixes, at a higher rate.
OTHER = """\
requests: 100
input: {mean: 2500, cv: 0.5, max: 8000}
output: {mean: 96, cv: 0.4, max: 200}
arrival: {poisson: 1.2}
system_prompts: {tokens: 512, count: 4}
"""
WORKLOADS = {"long": LONG, "other": OTHER}
METRICS = ("ttft_ms", "itl_ms", "e2e_ms")


@dataclass(frozen=True, kw_only=True)
class Hidden:
    prefill_speed: float = 1.0
    step_time: float = 1.0
    fixed_ttft_ms: float = 0.0


HIDDEN = {
    "control": Hidden(),
    "delay": Hidden(fixed_ttft_ms=30.0),
    "issue": Hidden(prefill_speed=0.65, step_time=1.1, fixed_ttft_ms=30.0),
    "faster": Hidden(prefill_speed=1.3, step_time=0.85, fixed_ttft_ms=60.0),
}
CONTROL = "control"
# Parameters, and the seed of the traffic. The method was tuned on none of them.
RUNS = ((CONTROL, 0), ("issue", 0), ("delay", 0), ("issue", 1), (CONTROL, 1), ("faster", 0))


def changed_environment(folder: Path) -> Path:
    """The environment sim, whose Python has slow_timing on its path: `up` passes no PYTHONPATH."""
    real, changed = environments_root() / "sim", folder / "sim"
    (changed / "bin").mkdir(parents=True)
    for name in ("lib", "installed.txt"):
        (changed / name).symlink_to(real / name)
    python = changed / "bin" / "python"
    path = HERE / "slow_timing"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {real}/bin/python "$@"\n')
    python.chmod(0o755)
    return folder


def require_changed(folder: Path) -> None:
    logs = [path for path in folder.rglob("*.log") if "hidden factors" in path.read_text()]
    if not logs:
        raise RuntimeError("the mockers did not load slow_timing/sitecustomize.py")


@contextmanager
def twin(graph: str, hidden: Hidden, folder: Path, speed: float = SPEED) -> Iterator[str]:
    """The URL of the running twin, which is idle."""
    ports = Ports()
    flags = [flag for one in TWINS[graph] for flag in ("--set", one)]
    flags += [
        "--engine",
        "mocker",
        "--timing",
        "model",
        "--speed",
        f"{speed:g}",
        "--port",
        str(ports.free()),
    ]
    env = {
        "PENSTOCK_ENVIRONMENTS": str(changed_environment(folder / "environments")),
        "HIDDEN_PREFILL_SPEED": str(hidden.prefill_speed),
        "HIDDEN_STEP_TIME": str(hidden.step_time),
    }
    with GraphProcess(GRAPHS / f"{graph}.yaml", folder, flags, env) as up:
        url = up.wait_ready(300)
        require_changed(folder)
        own_comparison(up)  # whose requests would wait in the same queue
        if not hidden.fixed_ttft_ms:
            yield url.removesuffix("/v1")
            return
        port, target = ports.free(), int(url.removesuffix("/v1").rsplit(":", 1)[1])
        delay_ms = hidden.fixed_ttft_ms / speed
        command = [sys.executable, HERE / "delay_proxy.py", port, target, delay_ms]
        proxy = subprocess.Popen(list(map(str, command)))
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            proxy.terminate()
            proxy.wait()


def bench(url: str, graph: str, workload: str, seed: int, folder: Path, *more: str) -> Any:
    """The JSON of one run."""
    path = folder / f"{workload}.yaml"
    path.write_text(WORKLOADS[workload])
    command = ["penstock", "bench", url, "--workload", str(path), "--seed", str(seed), "--json"]
    command += ["--predict", str(GRAPHS / f"{graph}.yaml"), *more]
    for one in TWINS[graph]:
        command += ["--set", one]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def errors(measured: Any, predicted: Any) -> dict[str, float]:
    """Measured divided by predicted percentile, minus 1."""
    return {
        f"{name}_{share}": round(measured[name][share] / predicted[name][share] - 1, 4)
        for name in METRICS
        for share in ("p50", "p90")
    }


def uncorrected(graph: str, workload: Path, seed: int) -> Any:
    """The prediction without hidden parameters, at the speed of the twins."""
    source = open_source(GRAPHS / f"{graph}.yaml", TWINS[graph])
    loaded = find_workload(str(workload))
    own = corrected(replayable(source, Hints()), Factors(prefill_speed=SPEED, step_time=1 / SPEED))
    with Replays(Cache(None, "")) as replays:
        return asdict(predicted(own, loaded, seed, replays).prediction)


SCALES = {"prefill_speed": 1 / SPEED, "step_time": SPEED, "fixed_ttft_ms": SPEED}


def measured(graph: str, name: str, seed: int) -> dict[str, Any]:
    """One calibration, and unless it is a control, the prediction of other traffic with it."""
    hidden, other = HIDDEN[name], None
    with TemporaryDirectory(prefix="penstock-calibrate-") as scratch:
        folder = Path(scratch)
        file = folder / "calibration.yaml"
        with twin(graph, hidden, folder) as url:
            run = bench(url, graph, "long", seed, folder, "--calibrate", str(file))
            if name != CONTROL:
                other = bench(url, graph, "other", seed, folder, "--calibration", str(file))
        before = uncorrected(graph, folder / "other.yaml", seed) if other else None
    found = run["calibration"]
    return {
        "graph": graph,
        "parameters": name,
        "seed": seed,
        "hidden": asdict(hidden),
        "found": {key: round(found[key] * scale, 4) for key, scale in SCALES.items()},
        "intervals": {
            key: [round(end * scale, 4) for end in found[interval_key(key)]]
            for key, scale in SCALES.items()
        },
        "requests": found["requests"],
        "warnings": found["warnings"],
        "error_after": found["errors_after"],
        "other_traffic": other
        and {
            "error_before": errors(other, before),
            "error_after": errors(other, other["prediction"]),
            "distortion": other["distortion"],
        },
    }


def interval_key(key: str) -> str:
    return "fixed_ttft_interval_ms" if key == "fixed_ttft_ms" else f"{key}_interval"


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each run that is not a control: the error of each factor. The fixed TTFT of the controls
    of its graph is the overhead of this machine, which its own contains too."""
    rows = []
    for run in runs:
        own = [r for r in runs if r["graph"] == run["graph"] and r["parameters"] == CONTROL]
        if run["parameters"] == CONTROL or not own:
            continue
        found, hidden = run["found"], run["hidden"]
        controls = {key: sum(one["found"][key] for one in own) / len(own) for key in found}
        overhead = controls["fixed_ttft_ms"]
        row = {key: run[key] for key in ("graph", "parameters", "seed")}
        for key in ("prefill_speed", "step_time"):
            row[f"{key}_error"] = round(found[key] / hidden[key] - 1, 4)
            row[f"{key}_error_from_control"] = round(
                found[key] / hidden[key] / controls[key] - 1, 4
            )
        row["overhead_ms"] = round(overhead, 2)
        expected = hidden["fixed_ttft_ms"] + overhead
        row["fixed_ttft_error"] = round(found["fixed_ttft_ms"] / expected - 1, 4)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=len(RUNS), help="runs of each graph")
    args = parser.parse_args()
    path = RESULTS / "calibrate.json"
    runs: list[dict[str, Any]] = json.loads(path.read_text())["runs"] if path.exists() else []
    known = {(run["graph"], run["parameters"], run["seed"]) for run in runs}
    for graph in TWINS:
        for name, seed in RUNS[: args.runs]:
            if (graph, name, seed) in known:
                continue
            runs.append(measured(graph, name, seed))
            print(json.dumps(runs[-1]), flush=True)
            figures = {
                "speed": SPEED,
                "workloads": WORKLOADS,
                "summary": summary(runs),
                "runs": runs,
            }
            write_result("calibrate", "python benchmarks/calibrate.py", figures, show=False)
    print(json.dumps(summary(runs), indent=1))


if __name__ == "__main__":
    main()
