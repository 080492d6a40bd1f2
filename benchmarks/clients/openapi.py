"""Runs schemathesis on a frontend's /openapi.json and returns the kinds of deviations."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clients.deviations import Kind
from clients.drivers import BENCHMARKS, Missing
from penstock.environments import environments_root
from penstock.environments.post_install import CLIENTS

# It changes the frontend's load limits for all later requests.
EXCLUDED = ("/busy_threshold",)


def kinds(
    base_url: str, model: str, *, examples: int, paths: tuple[str, ...] = ()
) -> tuple[Counter[Kind], int]:
    """The kinds with their counts, and how many requests were sent.

    ``examples``: generated requests for each operation, in addition to those that cover the
    schema's boundaries. ``paths``: only these operations; empty: all.
    """
    program = environments_root() / CLIENTS / "bin" / "schemathesis"
    if not program.exists():
        raise Missing("clients is not installed: run `penstock tools env install clients`")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.ndjson"
        command = [str(program), "run", base_url.removesuffix("/v1") + "/openapi.json"]
        command += ["--phases", "coverage,fuzzing" if not paths else "fuzzing"]
        command += ["-n", str(examples), "--generation-deterministic", "--no-shrink"]
        command += ["--continue-on-failure", "--max-failures", "5000", "--request-timeout", "60"]
        command += ["--suppress-health-check", "all", "--report", "ndjson"]
        command += ["--report-ndjson-path", str(report)]
        for path in paths:
            command += ["--include-path", path]
        for path in () if paths else EXCLUDED:
            command += ["--exclude-path", path]
        own = {"PENSTOCK_MODEL": model, "SCHEMATHESIS_HOOKS": "clients.openapi_hooks"}
        env = os.environ | own | {"PYTHONPATH": str(BENCHMARKS), "NO_PROXY": "127.0.0.1"}
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False
        )
        if not report.exists() or done.returncode not in (0, 1):
            raise RuntimeError(f"schemathesis failed: {(done.stdout + done.stderr)[-2000:]}")
        return _read(report.read_text().splitlines())


def _read(lines: list[str]) -> tuple[Counter[Kind], int]:
    found: Counter[Kind] = Counter()
    requests = 0
    for line in lines:
        event = json.loads(line)
        if "ScenarioFinished" in event:
            recorder = event["ScenarioFinished"]["recorder"]
            requests += len(recorder["interactions"])
            found.update(_failures(recorder))
        elif "NonFatalError" in event:
            error = event["NonFatalError"]
            found[Kind(error["value"]["type"], error["label"])] += 1
    return found, requests


def _failures(recorder: dict[str, Any]) -> Iterator[Kind]:
    for case, checks in recorder["checks"].items():
        response = (recorder["interactions"].get(case) or {}).get("response") or {}
        for check in checks:
            if check["status"] != "success":
                failure = check["failure_info"]["failure"]
                yield Kind(failure["code"], failure["operation"], response.get("status_code"))
