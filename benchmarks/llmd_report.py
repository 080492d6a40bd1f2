"""Whether the reports of `penstock bench --llm-d-report` have the schema of llm-d.

python benchmarks/llmd_report.py --checkout DIR
Writes results/llmd_report.json. DIR: a checkout of github.com/llm-d/llm-d-benchmark.

AIPerf sends each workload to a server with planned latencies (`scripted_server.py`). Every report
is validated by llm-d's JSON schema and by its model, which also checks units. Its medians must be
those of `--json`, and `--json` must have its published schema.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jsonschema
import yaml

from penstock.local.ports import Ports
from report import write_result

ROOT = Path(__file__).parents[1]
SERVER = Path(__file__).with_name("scripted_server.py")
PACKAGE = Path("llmdbenchmark/analysis/benchmark_report")
SCHEMA = PACKAGE / "br_v0_2_1_json_schema.json"
MODEL = """\
import sys, yaml
sys.path.insert(0, sys.argv[1])
from benchmark_report import BenchmarkReportV021
for path in sys.argv[2:]:
    with open(path) as file:
        BenchmarkReportV021.model_validate(yaml.safe_load(file))
"""
SAMPLED = """\
requests: 60
input: {mean: 300, cv: 0.8, max: 2000}
output: {mean: 30, cv: 0.5, max: 100}
arrival: {poisson: 8}
"""
CONVERSATIONS = SAMPLED + "conversation: {turns: 3, think: 0.2}\n"
EARLY = 20  # records, after which a run is interrupted
INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True)
class Form:
    """One kind of run."""

    name: str
    workload: str = SAMPLED
    options: Sequence[str] = ()
    is_interrupted: bool = False


FORMS = (
    Form(name="one target with an SLO", options=("--ttft", "200ms")),
    Form(name="sweep", options=("--sweep", "1,2,4", "--gpus", "2")),
    Form(name="fixed concurrency", options=("--concurrency", "4")),
    Form(name="conversations", workload=CONVERSATIONS),
    Form(
        name="interrupted",
        workload=SAMPLED.replace("60", "2000"),
        is_interrupted=True,
    ),
)


@contextmanager
def serving() -> Iterator[str]:
    port = Ports().free()
    process = subprocess.Popen([sys.executable, SERVER, str(port), "1.0"])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def run(form: Form, url: str, folder: Path) -> tuple[list[Path], dict[str, Any]]:
    """The reports, and the output of `--json`."""
    workload, out = folder / "workload.yaml", folder / "out"
    workload.write_text(form.workload)
    files = ("--llm-d-report", str(folder / "report.yaml"), "--out", str(out))
    command = [sys.executable, "-m", "penstock.cli.main", "bench", url, "--json", "-q"]
    process = subprocess.Popen(
        [*command, "--workload", str(workload), *files, *form.options],
        stdout=subprocess.PIPE,
        text=True,
    )
    if form.is_interrupted:
        while records_in(out) < EARLY and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    expected = INTERRUPTED if form.is_interrupted else 0
    if process.returncode != expected:
        raise SystemExit(f"{form.name}: exit code {process.returncode}, not {expected}")
    return sorted(folder.glob("report*.yaml")), json.loads(output)


def records_in(folder: Path) -> int:
    records = folder / "profile_export.jsonl"
    return len(records.read_bytes().splitlines()) if records.exists() else 0


def require_equal(reports: Sequence[Path], document: dict[str, Any]) -> None:
    """Medians of the reports and of `--json`."""
    runs = document.get("levels", [document])
    if len(runs) != len(reports):
        raise SystemExit(f"{len(reports)} reports of {len(runs)} runs")
    for path, one in zip(reports, runs, strict=True):
        found = yaml.safe_load(path.read_text())["results"]["request_performance"]["aggregate"]
        pairs = {
            "ttft_ms": found["latency"]["time_to_first_token"],
            "itl_ms": found["latency"]["time_per_output_token"],
            "e2e_ms": found["latency"]["request_latency"],
        }
        for name, statistics in pairs.items():
            if statistics["p50"] != one[name]["p50"]:
                raise SystemExit(f"{path.name}: {name} {statistics['p50']} ≠ {one[name]['p50']}")


def validated(form: Form, url: str, checkout: Path) -> int:
    """How many reports of this form have llm-d's schema."""
    theirs = jsonschema.Draft202012Validator(json.loads((checkout / SCHEMA).read_text()))
    ours = json.loads((ROOT / "docs" / "schemas" / "bench.json").read_text())
    with TemporaryDirectory(prefix="penstock-llmd-") as scratch:
        reports, document = run(form, url, Path(scratch))
        jsonschema.Draft202012Validator(ours).validate(document)
        for path in reports:
            theirs.validate(yaml.safe_load(path.read_text()))
        package = str((checkout / PACKAGE).parent)
        subprocess.run([sys.executable, "-c", MODEL, package, *map(str, reports)], check=True)
        require_equal(reports, document)
    print(f"{form.name}: {len(reports)} valid", flush=True)
    return len(reports)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkout", type=Path, required=True, help="of llm-d/llm-d-benchmark")
    checkout = parser.parse_args().checkout.resolve()
    head = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    commit = subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()
    with serving() as url:
        reports = {form.name: validated(form, url, checkout) for form in FORMS}
    figures = {
        "schema": {
            "repository": "llm-d/llm-d-benchmark",
            "commit": commit,
            "file": SCHEMA.as_posix(),
            "version": "0.2.1",
            "sha256": hashlib.sha256((checkout / SCHEMA).read_bytes()).hexdigest(),
        },
        "validated_by": ["JSON schema", "model of llm-d"],
        "reports": reports,
        "valid": sum(reports.values()),
    }
    write_result("llmd_report", "python benchmarks/llmd_report.py --checkout DIR", figures)


if __name__ == "__main__":
    main()
