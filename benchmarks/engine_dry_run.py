"""Lets the engines' own code build the configuration of every graph and published manifest.

python benchmarks/engine_dry_run.py [FILE|FOLDER… | --rules]

Writes results/engine_dry_run.json: what vLLM and SGLang say about each worker, and how long it
takes. Without arguments: dynamo_graphs, and the recipes of tests/support/outside_files.py. If a
manifest does not state its GPU, its file name counts, as in agg-h200-agentic. TensorRT-LLM is left
out, because its Python code is only in its image.

--rules: the bad cases of the tests of each error about vLLM or SGLang, and whether the engine
refuses what the rule reports. Writes results/engine_dry_run_rules.json (decision 32).
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.checks.engine_dry_run import (
    ASKED,
    ENVIRONMENTS,
    REFUSED,
    installed_engines,
    outcome_of,
    refusal,
)
from penstock.checks.finding import Level
from penstock.checks.registry import RULES
from penstock.engines.dry_run.process import EngineProcesses
from penstock.engines.dry_run.protocol import Accepted, Refused, Undecided
from penstock.errors import PenstockError
from penstock.hardware import GPUS
from penstock.manifests.source import sources_of
from penstock.serving.understand import Hints, understand
from report import write_result

ROOT = Path(__file__).parents[1]
GPU = re.compile(rf"(?<![a-z0-9])({'|'.join(sorted(GPUS, key=len, reverse=True))})(?![a-z0-9])")


def files(arguments: Sequence[str]) -> Iterator[Path]:
    if not arguments:
        sys.path.insert(0, str(ROOT))
        from tests.support.outside_files import recipes

        yield from sorted((ROOT / "dynamo_graphs").glob("*.yaml"))
        arguments = [str(recipes())]
    for path in map(Path, arguments):
        yield from sorted(path.rglob("*.y*ml")) if path.is_dir() else [path]


def workers(file: Path, engines: EngineProcesses) -> Iterator[dict[str, Any]]:
    """The outcome of each worker of a file that vLLM or SGLang runs."""
    named = GPU.search(file.name)
    try:
        sources = sources_of(file.read_text(), str(file), ())
    except (PenstockError, UnicodeDecodeError):
        return  # nothing to deploy
    for source in sources:
        deployment = understand(source, Hints())
        if deployment.gpu is None and named:
            deployment = understand(source, Hints(gpu=named[1]))
        for worker in deployment.one_worker_per_component:
            if worker.engine not in ASKED:
                continue
            begun = time.monotonic()
            outcome = outcome_of(deployment, worker, engines)
            row = {
                "file": file.name,
                "worker": worker.name,
                "engine": str(worker.engine),
                "gpu": deployment.gpu.name if deployment.gpu else "not stated",
                "seconds": round(time.monotonic() - begun, 2),
            }
            if isinstance(outcome, Accepted):
                found = {k: v for k, v in vars(outcome.resolved).items() if v}
                yield {**row, "outcome": "accepted", "resolved": found}
            elif isinstance(outcome, Refused):
                rule = refusal(deployment, worker, outcome, engines).rule
                is_refused = "refused" if rule is REFUSED else "not decidable"
                yield {**row, "outcome": is_refused, "text": outcome.message}
            elif isinstance(outcome, Undecided):
                yield {**row, "outcome": "not decidable", "text": outcome.reason}


def outcomes(text: str, gpu: str | None, engines: EngineProcesses) -> set[str]:
    """What the engines say about the workers of a manifest or graph."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{gpu or 'case'}.yaml"
        file.write_text(text)
        return {row["outcome"] for row in workers(file, engines)}


def repeated_rules() -> None:
    """Compare the rules with the dry run on their own cases."""
    sys.path.insert(0, str(ROOT))
    from tests.checks.all_cases import cases

    found: dict[str, list[str]] = {}
    with installed_engines() as engines:
        for rule in RULES:
            if rule.level is not Level.ERROR or not {*rule.applies_to} & {*ASKED}:
                continue
            for case in cases()[rule.id]:
                bad, near = (outcomes(text, case.gpu, engines) for text in (case.bad, case.near))
                is_repeated = "refused" in bad and "refused" not in near
                outcome = "refused" if is_repeated else " or ".join(sorted(bad)) or "not asked"
                found.setdefault(rule.id, []).append(outcome)
            print(rule.id, found[rule.id], flush=True)
    in_every_case = [rule for rule, each in found.items() if {*each} == {"refused"}]
    partly = [
        rule for rule, each in found.items() if "refused" in each and rule not in in_every_case
    ]
    measured = {
        "rules": len(found),
        "refused_in_every_case": in_every_case,
        "refused_in_some_cases": partly,
        "outcomes_of_cases": dict(Counter(one for each in found.values() for one in each)),
        "cases": found,
    }
    command = "python benchmarks/engine_dry_run.py --rules"
    write_result("engine_dry_run_rules", command, measured, show=False)
    print(len(found), len(in_every_case), len(partly), measured["outcomes_of_cases"])


def main() -> None:
    if sys.argv[1:] == ["--rules"]:
        repeated_rules()
        return
    rows: list[dict[str, Any]] = []
    begun = time.monotonic()
    with installed_engines() as engines:
        for file in files(sys.argv[1:]):
            for row in workers(file, engines):
                rows.append(row)
                print(*(row[key] for key in ("file", "worker", "outcome", "seconds")), flush=True)
        versions = {str(engine): engines.version(engine) for engine in ENVIRONMENTS}
    counts = Counter(f"{row['engine']}: {row['outcome']}" for row in rows)
    seconds = sorted(row["seconds"] for row in rows)
    measured = {
        "engines": versions,
        "outcomes": dict(sorted(counts.items())),
        "seconds": round(time.monotonic() - begun, 1),
        "median_seconds_per_worker": seconds[len(seconds) // 2],
        "workers": rows,
    }
    command = "python benchmarks/engine_dry_run.py"
    write_result("engine_dry_run", command, measured, show=False)
    print(dict(counts))


if __name__ == "__main__":
    main()
