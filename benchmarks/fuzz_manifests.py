"""Runs `check` and `explain` on 2,000 mutated manifests, and records CPU time and peak memory.

    python benchmarks/fuzz_manifests.py [--count N] [--first SEED] [--recipes FOLDER]

Each seed takes one of the recipes and changes it in one to four places: values of other types,
control characters, long and nested values, removed, renamed, repeated and moved parts, or corrupted
text. Writes results/fuzz_manifests.json after each batch, and continues there when run again.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from report import RESULTS, write_result

RECIPES = Path(__file__).parents[2] / "shared" / "recipes"
RESULT = RESULTS / "fuzz_manifests.json"
BATCH = 50
MOST_S, MOST_MIB = 2.0, 300
UNEXPECTED = 70  # the exit code of an internal error
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**31, 2**63, 10**30, 1.5, float("inf"), float("nan")),
    *("", " ", "-", "--", "--x=y", "$(X)", "$(A)$(A)", "${X:-${X}}", "no", "12:30", "1e3"),
    *("\x00", "\x1b[2J", "\u202e", "ü" * 300, "x" * 100_000, "/" * 5000, "a/" * 2000),
    *([], [None], [[]] * 1000, {}, {"": ""}, {1: 2}, {"a": {"b": {"c": []}}}),
    *("bash -c '$(yes)'", "while :; do :; done", "{1..99999999}", "python3 -m dynamo.vllm &"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="fuzz check and explain with mutated manifests")
    parser.add_argument("--count", type=int, default=2000, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--recipes", type=Path, default=RECIPES, help="folder of sound manifests")
    parser.add_argument("--batch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.batch:
        print(
            json.dumps(batch(range(options.first, options.first + options.count), options.recipes))
        )
        return 0
    done: dict[str, Any] = {}
    if RESULT.exists():
        done = json.loads(RESULT.read_text("utf-8")).get("batches", {})
    for first in range(options.first, options.first + options.count, BATCH):
        if str(first) not in done:
            done[str(first)] = run_batch(first, options.recipes)
            write(done)
    return int(any(row["violations"] for row in done.values()))


def write(batches: dict[str, Any]) -> None:
    """The figures of all batches, and each batch for the next run."""
    rows = batches.values()
    codes: dict[str, int] = {}
    for row in rows:
        for code, count in row["exit_codes"].items():
            codes[code] = codes.get(code, 0) + count
    figures = {
        "limits": {"seconds": MOST_S, "mib": MOST_MIB},
        "manifests": len(batches) * BATCH,
        "exit_codes": dict(sorted(codes.items())),
        "slowest_s": max(row["slowest_s"] for row in rows),
        "largest_mib": max(row["mib"] for row in rows),
        "violations": [v for row in rows for v in row["violations"]],
        "batches": batches,
    }
    command = "python benchmarks/fuzz_manifests.py"
    write_result("fuzz_manifests", command, figures, show=False)
    print(json.dumps({k: v for k, v in figures.items() if k != "batches"}), flush=True)


def run_batch(first: int, recipes: Path) -> dict[str, Any]:
    """In a process of its own, whose peak memory is that of the batch."""
    command = [sys.executable, __file__, "--batch", "--first", str(first), "--count", str(BATCH)]
    done = subprocess.run(
        [*command, "--recipes", str(recipes)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {
            "exit_codes": {},
            "slowest_s": 0,
            "mib": 0,
            "violations": [f"seeds from {first}: the process died: {done.stderr[-2000:]}"],
        }
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def batch(seeds: range, recipes: Path) -> dict[str, Any]:
    sound = [path.read_text("utf-8") for path in sorted(recipes.glob("*.yaml"))]
    codes: dict[str, int] = {}
    slowest = 0.0
    violations = []
    for seed in seeds:
        text = mutated(random.Random(seed), sound)
        for command in ("check", "explain"):
            before = _peak_mib()
            code, seconds, output = run(command, text)
            codes[f"{command} {code}"] = codes.get(f"{command} {code}", 0) + 1
            slowest = max(slowest, seconds)
            problem = _problem(code, seconds, output)
            if _peak_mib() > MOST_MIB >= before:
                problem = f"{_peak_mib()} MiB"
            if problem:
                violations.append(f"seed {seed}, {command}: {problem}")
    return {
        "exit_codes": codes,
        "slowest_s": round(slowest, 2),
        "mib": _peak_mib(),
        "violations": violations,
    }


def _problem(code: int, seconds: float, output: str) -> str:
    if code == UNEXPECTED or "Traceback" in output:
        return f"exit code {code}: {output[-500:]}"
    if any(ord(char) < 32 and char not in "\n\t" for char in output):
        return "a control character in the output"
    return f"{seconds:.1f} s" if seconds > MOST_S else ""


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def run(command: str, text: str) -> tuple[int, float, str]:
    """Exit code, seconds of CPU time, and everything that was printed."""
    from penstock.cli.main import main as penstock

    output = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.yaml"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        began = time.process_time()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            try:
                code = penstock([command, str(path)])
            except SystemExit as exit_:
                code = int(exit_.code or 0)
    return code, time.process_time() - began, output.getvalue()


def mutated(choose: random.Random, sound: list[str]) -> str:
    text = choose.choice(sound)
    if choose.random() < 0.15:
        return _damaged(choose, text)
    documents = list(yaml.safe_load_all(text))
    for _ in range(choose.choice((1, 1, 1, 2, 3, 4))):
        _mutate(choose, documents)
    dumped = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True)
    return _damaged(choose, dumped) if choose.random() < 0.1 else dumped


def _mutate(choose: random.Random, documents: list[Any]) -> None:
    places = list(_places(documents))
    if not places:
        return
    parent, key = choose.choice(places)
    kind = choose.choice(("value", "value", "text", "remove", "rename", "repeat", "move"))
    if kind == "remove":
        del parent[key]
    elif kind == "rename" and isinstance(parent, dict):
        parent[choose.choice((f"{key}x", key[:-1] if isinstance(key, str) else "x", ""))] = (
            parent.pop(key)
        )
    elif kind == "repeat" and isinstance(parent, list):
        parent.extend(copy.deepcopy(parent[key]) for _ in range(choose.choice((1, 2000))))
    elif kind == "move":
        other, name = choose.choice(places)
        parent[key] = copy.deepcopy(other[name])
    elif kind == "text" and isinstance(parent[key], str):
        odd = choose.choice([value for value in ODD if isinstance(value, str)])
        at = choose.randint(0, len(parent[key]))
        parent[key] = parent[key][:at] + odd + parent[key][at:]
    else:
        parent[key] = copy.deepcopy(choose.choice(ODD))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container with each of its keys, at any depth."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def _damaged(choose: random.Random, text: str) -> str:
    """Text that was cut, joined or overwritten, so that it may not be YAML."""
    at = choose.randrange(len(text) + 1)
    kind = choose.choice(("cut", "insert", "delete", "repeat"))
    if kind == "cut":
        return text[:at]
    if kind == "insert":
        odd = ("\x00", "\x1b]0;x\x07", "\ufeff", "\t", "&a [*a]", "{", ": ", "- ", "---\n", "!!x ")
        return text[:at] + choose.choice(odd) + text[at:]
    end = at + choose.randint(1, 200)
    return text[:at] + text[end:] if kind == "delete" else text[:end] + text[at:]


if __name__ == "__main__":
    sys.exit(main())
