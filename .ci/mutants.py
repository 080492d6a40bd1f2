"""Compare two test suites by the mutants that they kill.

python .ci/mutants.py record old FOLDER     which lines each test of a checkout executes
python .ci/mutants.py record new FOLDER
python .ci/mutants.py run [--mutants N] [--part I/N]
python .ci/mutants.py report                writes benchmarks/results/mutants.json

A mutant is one small change in a line that both checkouts have and that a test of the old suite
executes, or in a table of a module that such a test executes. Each suite runs the tests that
execute the line, in its own checkout, until one fails, and again when it is repeated, or up to
MOST_S; the old suite begins with the test that failed in the new one. Results are kept in
.penstock/mutants; an interrupted run resumes. Tests of the groups "servers" and "engines", and
those with the markers cluster, e2e, long or nightly, are in neither suite: lines that other
processes execute are not recorded.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import json
import os
import pickle
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".penstock" / "mutants"
RESULT = ROOT / "benchmarks" / "results" / "mutants.json"
PACKAGE = "components/src/penstock/"
SEED, MOST_IN_TABLES = 42, 20
# Of the recorded time of a mutant's tests: the quickest files come first.
MOST_S = 90.0
TEST_S, ALL_S = 60, 900  # a mutant that never ends is killed
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPARED = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
COMPUTED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


@dataclass(frozen=True)
class Mutant:
    """``line`` is that of the old checkout; the replaced source has one line."""

    file: str
    line: int
    column: int
    before: str
    after: str
    in_table: bool


# --- mutants ---------------------------------------------------------------------------------


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """All small changes of expressions; none of docstrings, annotations and messages' parts."""
    tree = ast.parse(text)
    lines = text.splitlines()
    inner = {n for f in ast.walk(tree) if isinstance(f, FUNCTIONS) for n in ast.walk(f)}
    ignored = {n for a in _ignored(tree) for n in ast.walk(a)}
    for node in ast.walk(tree):
        if node in ignored or not isinstance(node, ast.expr) or node.lineno != node.end_lineno:
            continue
        before = ast.get_source_segment(text, node)
        if before is None or not lines[node.lineno - 1].isascii():
            continue  # columns are in bytes
        for changed in _changes(node):
            after = f"({ast.unparse(changed)})"
            yield Mutant(file, node.lineno, node.col_offset, before, after, node not in inner)


def _ignored(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value  # a docstring
        elif isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom):
            yield node
        for name in ("annotation", "returns"):
            if (annotation := getattr(node, name, None)) is not None:
                yield annotation


def _changes(node: ast.expr) -> Iterator[ast.expr]:
    made: Any = copy.deepcopy(node)
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARED:
            made.ops = [COMPARED[type(operator)]()]
            yield made
        case ast.BoolOp():
            made.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield made
        case ast.BinOp() if type(node.op) in COMPUTED:
            made.op = COMPUTED[type(node.op)]()
            yield made
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.IfExp():
            made.body, made.orelse = made.orelse, made.body
            yield made
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(node.value + 1)
        case ast.Constant(value=str()) if node.value:
            yield ast.Constant(node.value + "~")


def changed_text(text: str, line: int, mutant: Mutant) -> str:
    lines = text.splitlines(keepends=True)
    old = lines[line - 1]
    assert old[mutant.column :].startswith(mutant.before), (mutant, old)
    rest = old[mutant.column + len(mutant.before) :]
    lines[line - 1] = old[: mutant.column] + mutant.after + rest
    return "".join(lines)


def sample(old: Path, new: Path, executed: dict[tuple[str, int], Any], count: int) -> list[Mutant]:
    """From all mutants in executed lines, one a line; at most MOST_IN_TABLES in tables."""
    found: list[Mutant] = []
    files = {file for file, _ in executed}
    for path in sorted((old / PACKAGE).rglob("*.py")):
        file = path.relative_to(old / PACKAGE).as_posix()
        if not (new / PACKAGE / file).exists():
            continue
        text = path.read_text("utf-8")
        kept = same_lines(text, (new / PACKAGE / file).read_text("utf-8"))
        # A table is executed when its module is imported, which no test records.
        found += [
            m
            for m in mutants_of(file, text)
            if m.line in kept and (file in files if m.in_table else (file, m.line) in executed)
        ]
    random.Random(SEED).shuffle(found)
    chosen: list[Mutant] = []
    lines: set[tuple[str, int]] = set()
    for mutant in found:
        tables = sum(m.in_table for m in chosen)
        place = (mutant.file, mutant.line)
        if place in lines or (mutant.in_table and tables == MOST_IN_TABLES):
            continue
        lines.add(place)
        chosen.append(mutant)
    return chosen[:count]


def same_lines(old: str, new: str) -> dict[int, int]:
    """Line of the old text → the equal line of the new one."""
    matcher = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
    return {
        block.a + i + 1: block.b + i + 1
        for block in matcher.get_matching_blocks()
        for i in range(block.size)
    }


# --- suites ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Suite:
    """A checkout; the tests of each executed line, and the seconds of each test."""

    checkout: Path
    tests: dict[tuple[str, int], list[str]]
    seconds: dict[str, float]

    @classmethod
    def read(cls, name: str) -> Suite:
        folder = FOLDER / name
        tests: dict[tuple[str, int], list[str]] = {}
        seconds: dict[str, float] = {}
        for path in sorted(folder.glob("*.pickle.z")):
            places, recorded = pickle.loads(zlib.decompress(path.read_bytes()))  # noqa: S301
            for test, taken, has_passed, lines in recorded:
                if not has_passed:
                    continue
                seconds[test] = taken
                for number in lines:
                    tests.setdefault(tuple(places[number]), []).append(test)
        return cls(Path((folder / "checkout").read_text()), tests, seconds)

    def tests_of(self, mutant: Mutant, line: int) -> tuple[list[str], bool]:
        """Quick files first; whether some were left out because of MOST_S.

        A table is executed when it is imported: all tests of its module's functions.
        """
        chosen = set(self.tests.get((mutant.file, line), ()))
        if mutant.in_table:
            chosen = {t for (f, _), tests in self.tests.items() if f == mutant.file for t in tests}
        by_file: dict[str, list[str]] = {}
        for test in sorted(chosen, key=lambda t: self.seconds[t]):
            by_file.setdefault(test.partition("::")[0], []).append(test)
        files = sorted(by_file.values(), key=lambda ts: sum(self.seconds[t] for t in ts) / len(ts))
        found: list[str] = []
        left = MOST_S
        for test in (test for tests in files for test in tests):
            left -= self.seconds[test]
            if left > 0 or not found:
                found.append(test)
        return found, len(found) < len(chosen)


def record(name: str, checkout: Path) -> int:
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "checkout").write_text(str(checkout.resolve()))
    package = f"{(checkout / PACKAGE).resolve()}/"
    environment = _environment(checkout) | {"LINES_OUT": str(folder), "LINES_OF": package}
    argv = ["-n", "2", "-q", "-m", "", "-p", "executed_lines"]
    begun = time.monotonic()
    code = subprocess.run(_pytest(*argv), cwd=checkout, env=environment, check=False).returncode
    (folder / "seconds").write_text(str(round(time.monotonic() - begun)))
    return code if code != 1 else 0  # failed tests are not used


def _pytest(*argv: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *argv]


def _environment(checkout: Path) -> dict[str, str]:
    paths = [checkout / "components" / "src", ROOT / ".ci"]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(p.resolve()) for p in paths)}


def outcome(suite: Suite, line: int, mutant: Mutant, work: Path, first: str = "") -> dict[str, Any]:
    """Run the tests of the line in a copy of the checkout that has the mutant.

    ``first``: the test to begin with.
    """
    tests, is_cut = suite.tests_of(mutant, line)
    if first in suite.seconds:
        tests = [first, *(t for t in tests if t != first)]
    path = work / PACKAGE / mutant.file
    text = path.read_text("utf-8")
    begun = time.monotonic()
    path.write_text(changed_text(text, line, mutant), "utf-8")
    try:
        code, by = failure(work, tests)
        while code == 1 and by in tests and failure(work, [by])[0] != 1:
            tests.remove(by)  # it fails randomly
            code, by = failure(work, tests)
    finally:
        path.write_text(text, "utf-8")
    return {
        "killed": code == 1,
        "by": by,
        "exit_code": code,
        "tests": len(tests),
        "is_cut": is_cut,
        "seconds": round(time.monotonic() - begun, 1),
    }


def failure(work: Path, tests: list[str]) -> tuple[int, str]:
    """pytest's exit code, and the first of the tests that fails."""
    chosen = work / ".penstock" / "tests.json"
    chosen.parent.mkdir(exist_ok=True)
    chosen.write_text(json.dumps(tests))
    files = sorted({test.partition("::")[0] for test in tests})
    options = f"-n0 -x -q --timeout {TEST_S} -p executed_lines".split()
    try:
        done = subprocess.run(
            _pytest(*options, "-m", "", *files),
            cwd=work,
            env=_environment(work) | {"TESTS_ONLY": str(chosen)},
            capture_output=True,
            text=True,
            timeout=ALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, "timeout"
    failed = [x for x in done.stdout.splitlines() if x.startswith(("FAILED ", "ERROR "))]
    return done.returncode, failed[0].split(" - ")[0].split(" ", 1)[1] if failed else ""


# --- the comparison --------------------------------------------------------------------------


def run(count: int, part: int, parts: int) -> int:
    old, new = Suite.read("old"), Suite.read("new")
    file = FOLDER / f"results-{part}.jsonl"
    done = (
        {json.loads(x)["place"] for x in file.read_text().splitlines()} if file.exists() else set()
    )
    works = {n: copied(s.checkout, f"{n}-{part}") for n, s in (("old", old), ("new", new))}
    chosen = sample(old.checkout, new.checkout, old.tests, count)
    for mutant in chosen[part::parts]:
        place = f"{mutant.file}:{mutant.line}:{mutant.column}"
        if place in done or not imports(works["old"], mutant):
            continue
        texts = [(works[n] / PACKAGE / mutant.file).read_text("utf-8") for n in works]
        line = same_lines(*texts)[mutant.line]
        of_new = outcome(new, line, mutant, works["new"])
        of_old = outcome(old, mutant.line, mutant, works["old"], of_new["by"])
        entry = {"place": place, "before": mutant.before, "after": mutant.after}
        entry |= {"in_table": mutant.in_table, "old": of_old, "new": of_new}
        with file.open("a") as output:
            output.write(json.dumps(entry) + "\n")
        print(
            place, mutant.before, "→", mutant.after, of_old["killed"], of_new["killed"], flush=True
        )
    return 0


def copied(checkout: Path, name: str) -> Path:
    """The tracked files of a checkout, in a folder of their own next to it, as ../shared is."""
    work = checkout.parent / f"mutants-{name}"
    if not work.exists():
        subprocess.run(["git", "clone", "-q", str(checkout), str(work)], check=True)
    subprocess.run(["git", "checkout", "-q", "."], cwd=work, check=True)
    return work


def imports(work: Path, mutant: Mutant) -> bool:
    """Whether the module with the mutant can be imported."""
    path = work / PACKAGE / mutant.file
    text = path.read_text("utf-8")
    name = "penstock." + mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    path.write_text(changed_text(text, mutant.line, mutant), "utf-8")
    try:
        argv = [sys.executable, "-c", f"import {name}"]
        return not subprocess.run(
            argv, env=_environment(work), capture_output=True, check=False
        ).returncode
    finally:
        path.write_text(text, "utf-8")


def report() -> int:
    entries = [
        json.loads(x) for f in sorted(FOLDER.glob("*.jsonl")) for x in f.read_text().splitlines()
    ]
    killed = Counter((e["old"]["killed"], e["new"]["killed"]) for e in entries)
    of_old = killed[True, True] + killed[True, False]
    content = {
        "command": "python .ci/mutants.py run",
        "seed": SEED,
        "machine": {"cpus": os.cpu_count(), "system": platform.platform()},
        "mutants": len(entries),
        "in_tables": sum(e["in_table"] for e in entries),
        "killed_by_both": killed[True, True],
        "killed_by_old_only": killed[True, False],
        "killed_by_new_only": killed[False, True],
        "killed_by_none": killed[False, False],
        "share_of_old": round(killed[True, True] / of_old, 4) if of_old else None,
        "hours": round(sum(e[s]["seconds"] for e in entries for s in ("old", "new")) / 3600, 2),
        "lost": [e for e in entries if e["old"]["killed"] and not e["new"]["killed"]],
        "entries": sorted(entries, key=lambda e: str(e["place"])),
    }
    RESULT.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(json.dumps({k: v for k, v in content.items() if k != "entries"}, indent=2))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="compare two test suites by mutants")
    verbs = parser.add_subparsers(dest="verb", required=True)
    recorded = verbs.add_parser("record")
    recorded.add_argument("name", choices=["old", "new"])
    recorded.add_argument("checkout", type=Path)
    ran = verbs.add_parser("run")
    ran.add_argument("--mutants", type=int, default=120)
    ran.add_argument("--part", default="0/1", help="I/N: every N-th mutant, from the I-th on")
    verbs.add_parser("report")
    options = parser.parse_args()
    # A shell starts background programs with SIGINT ignored: tests that send it would fail.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if options.verb == "record":
        return record(options.name, options.checkout)
    if options.verb == "report":
        return report()
    part, _, parts = options.part.partition("/")
    return run(options.mutants, int(part), int(parts))


if __name__ == "__main__":
    sys.exit(main())
