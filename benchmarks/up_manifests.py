"""Runs `penstock up` on published manifests, sends each a chat completion, and stops it.

python benchmarks/up_manifests.py FILE|FOLDER… [--result FILE] [--again NAME…]

Writes results/up_manifests.json after each file, and continues from there: files with a result are
skipped, except those named after --again. Engines run as mockers. A manifest that `penstock check`
refuses is started with --skip-check too. One graph is up at a time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from penstock.cli.main import INTERRUPTED, UNEXPECTED
from penstock.drill.graph_process import PENSTOCK
from penstock.errors import CheckError, StartError
from report import RESULTS, write_result

START_TIMEOUT_S = 60
QUICK_S = 15.0  # of a refusal, which starts no process of the graph
KIND = re.compile(r"^kind: *[\"']?DynamoGraphDeployment\b", re.MULTILINE)
DIFFERENCE = re.compile(r": (not started|ignoring|using (?!mocker|the packaged)|the step times)")
READY = re.compile(r"^ready: (?P<url>\S+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one manifest."""

    # "serves", "refused" (before any process of the graph starts) or "failed"
    outcome: str
    exit_code: int
    seconds: float
    # The error, or what a graph that is up does not run or runs differently.
    output: tuple[str, ...]
    # The exit code of `up` without --skip-check, if that was refused.
    check_exit_code: int = 0


def manifests(paths: Iterable[Path]) -> dict[str, Path]:
    """The files with a DynamoGraphDeployment, each content once."""
    found: dict[str, Path] = {}
    for path in paths:
        for file in sorted(path.rglob("*.y*ml")) if path.is_dir() else [path]:
            content = file.read_bytes()
            if KIND.search(content.decode(errors="replace")):
                found.setdefault(hashlib.sha256(content).hexdigest(), file)
    return {_name(file): file for file in found.values()}


def _name(file: Path) -> str:
    """The name of the file, or below a folder of a public repository also that."""
    return "/".join(file.parts[-3:]) if "+" in file.parts[-3] else file.name


def run(*arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [*PENSTOCK, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def outcome_of(file: Path, env: Mapping[str, str], *options: str) -> Outcome:
    """Start the manifest, send a completion, and stop it."""
    timeout = ("--start-timeout-s", str(START_TIMEOUT_S))
    begun = time.monotonic()
    up = ("up", str(file), "--engine", "mocker", "--detach", "--port", "0", *timeout, *options)
    started = run(*up, "--quiet", env=env)
    seconds = round(time.monotonic() - begun, 1)
    lines = _lines(started.stderr or started.stdout, file)
    if started.returncode != 0:
        has_started = started.returncode in (StartError.exit_code, UNEXPECTED, INTERRUPTED)
        what = "failed" if has_started or seconds > QUICK_S else "refused"
        return Outcome(
            outcome=what, exit_code=started.returncode, seconds=seconds, output=tuple(lines)
        )
    try:
        ready = READY.search(started.stdout)
        problem = _completion(ready["url"]) if ready else "no URL in the output of `up`"
    finally:
        run("down", str(file), env=env)
    if problem:
        return Outcome(outcome="failed", exit_code=0, seconds=seconds, output=(problem,))
    notes = tuple(line for line in lines if DIFFERENCE.search(line))
    return Outcome(outcome="serves", exit_code=0, seconds=seconds, output=notes)


def _completion(url: str) -> str:
    """Empty if the model answers with five tokens."""
    models = httpx.get(f"{url}/models", timeout=30).json()["data"]
    response = httpx.post(
        f"{url}/chat/completions",
        json={
            "model": models[0]["id"],
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 5,
        },
        timeout=60,
    )
    if response.status_code != 200:
        return f"{response.status_code}: {response.text}"
    tokens = response.json()["usage"]["completion_tokens"]
    return "" if tokens == 5 else f"{tokens} tokens instead of 5"


def _lines(text: str, file: Path) -> list[str]:
    """Without the folders and ports of this run."""
    text = text.replace(str(file), file.name).replace(tempfile.gettempdir(), "TMP")
    return [re.sub(r":\d{5}\b", ":PORT", line) for line in text.splitlines() if line.strip()]


def measured(file: Path, env: Mapping[str, str]) -> Outcome:
    first = outcome_of(file, env)
    if first.exit_code != CheckError.exit_code:
        return first
    second = outcome_of(file, env, "--skip-check")
    return Outcome(**{**asdict(second), "check_exit_code": first.exit_code})


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", metavar="FILE|FOLDER", nargs="+", type=Path)
    parser.add_argument("--result", type=Path, default=RESULTS / "up_manifests.json")
    parser.add_argument("--again", metavar="NAME", nargs="*", default=[])
    return parser.parse_args(argv)


def main() -> None:
    args = options()
    known: dict[str, Any] = {}
    if args.result.exists():
        known = json.loads(args.result.read_text())["manifests"]
    with tempfile.TemporaryDirectory() as state:
        env = {**os.environ, "PENSTOCK_STATE_HOME": state}
        for name, file in manifests(args.paths).items():
            if name in known and name not in args.again:
                continue
            outcome = measured(file, env)
            known[name] = asdict(outcome)
            print(f"{outcome.outcome:8} {outcome.seconds:5} s  {name}", flush=True)
            _write(args.result, known)


def _write(result: Path, known: Mapping[str, Any]) -> None:
    counts = Counter(outcome["outcome"] for outcome in known.values())
    figures = {"outcomes": dict(counts), "manifests": dict(sorted(known.items()))}
    command = "python benchmarks/up_manifests.py FOLDER"
    write_result(result.stem, command, figures, show=False, folder=result.parent)


if __name__ == "__main__":
    main()
