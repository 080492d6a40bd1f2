"""Today's tests of the cluster verbs on the code before issue 17, and on today's.

    python benchmarks/cluster_before.py [PART…] [--before COMMIT]

The package and the chart of the older commit, today's tests and today's emulated cluster are put
together in a temporary folder. Parts: `items` (the tests named after the items of "Does not" in
../shared/facts/real-cluster.md), `contract` (the life of a release), `rejections` (each recorded
rejection of a real API server, injected). Each result is written at once to
results/cluster_before.json, and what is there for the same code is not run again.
`before` and `now` of a test: `passed`, or how it failed: `outcome` (exit codes, objects, pods over
time, or a wait until the timeout), `message` (the text of the output), `not comparable` (the test
calls a function that did not exist).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from report import RESULTS, write_result

NAME = "cluster_before"
ROOT = Path(__file__).parents[1]
BEFORE = "a01ef42a36abf298e8a82af0cedd457ad652e586"  # the last commit without work on issue 17
OF_PACKAGE = ("components/src/penstock", "helm", "dynamo_graphs")
CLUSTER = "tests/kubernetes/cluster"
ITEMS = range(1, 15)
OF_ITEM = re.compile(r"^def test_\d+_", re.MULTILINE)
# Selected tests of each part: files, and an expression of pytest's -k.
PARTS: Mapping[str, tuple[str, str]] = {
    "items": (CLUSTER, " or ".join(f"test_{number}_" for number in ITEMS)),
    "contract": (f"{CLUSTER}/test_contract.py", "not real"),
    "rejections": (f"{CLUSTER}/test_rejections.py", ""),
}
Results = dict[str, dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART")
    parser.add_argument("--before", default=BEFORE, metavar="COMMIT")
    args = parser.parse_args()
    before, now = commit_of(args.before), commit_of("HEAD")
    stored = read_stored()
    with tempfile.TemporaryDirectory(prefix="penstock-before-") as folder:
        for side, commit in {"before": before, "now": None}.items():
            tree = assemble(Path(folder) / side / "checkout", commit)
            for part in args.parts:
                key = fingerprint(tree, part)
                if stored.get(part, {}).get(side, {}).get("code") == key:
                    print(f"{part}, {side}: there already", file=sys.stderr)
                    continue
                found = run(tree, part)
                stored.setdefault(part, {})[side] = {"code": key, "tests": found}
                write(stored, before, now, args.parts)


def commit_of(name: str) -> str:
    return git("rev-parse", name).strip()


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


def assemble(tree: Path, commit: str | None) -> Path:
    """A checkout with the package of the commit, or of the working tree, and today's tests."""
    tree.mkdir(parents=True)
    if commit:
        archive = subprocess.run(
            ["git", "archive", commit, *OF_PACKAGE], cwd=ROOT, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    else:
        for name in OF_PACKAGE:
            shutil.copytree(ROOT / name, tree / name, ignore=ignore)
    for name in ("tests", "k8s/rbac"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tree)
    graph = "dynamo_graphs/quickstart-simulated.yaml"  # of the tests; had another name before
    shutil.copy(ROOT / graph, tree / graph)
    if (ROOT.parent / "shared").exists():
        (tree.parent / "shared").symlink_to((ROOT.parent / "shared").resolve())
    return tree


ignore = shutil.ignore_patterns("__pycache__", "*.pyc")


def fingerprint(tree: Path, part: str) -> str:
    """Of all that decides the results of the part."""
    digest = hashlib.sha256()
    folders = [tree / name for name in (*OF_PACKAGE, "tests/support")]
    files = {f for folder in folders for f in folder.rglob("*") if f.is_file()}
    for file in sorted({*files, *test_files(tree, part)}):
        digest.update(str(file.relative_to(tree)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def test_files(tree: Path, part: str) -> list[Path]:
    """Of the items, those with a test that is named after one."""
    place = tree / PARTS[part][0]
    if place.is_file():
        return [place]
    return [f for f in place.glob("test_*.py") if OF_ITEM.search(f.read_text())]


def run(tree: Path, part: str) -> Results:
    """The outcome of each test of the part, by its name."""
    files, selected = PARTS[part]
    report = tree.parent / f"{part}.jsonl"
    report.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tree / "components" / "src"), str(ROOT / "benchmarks")]),
        "PENSTOCK_BEFORE_REPORT": str(report),
    }
    argv = [sys.executable, "-m", "pytest", "-p", "before_plugin", "-p", "no:cacheprovider", "-q"]
    argv += ["-n", "0", "--timeout", "120", "-m", "not cluster", "-k", selected, files]
    print(f"{part}: {tree}", file=sys.stderr)
    done = subprocess.run(argv, cwd=tree, env=environment, check=False, stdout=subprocess.PIPE)
    if done.returncode not in (0, 1) or not report.exists():
        raise SystemExit(done.stdout.decode()[-3000:])
    return read_report(report.read_text())


def read_report(text: str) -> Results:
    """Lines of the plugin as results by test; a failure outside of the test itself counts too."""
    found: Results = {}
    for line in text.splitlines():
        entry = json.loads(line)
        name = short_name(entry.pop("test"))
        if entry["outcome"] != "skipped" and found.get(name, {}).get("outcome") != "failed":
            entry["error"] = without_paths(entry.get("error", ""))
            found[name] = {key: value for key, value in entry.items() if value != ""}
    return found


def short_name(test: str) -> str:
    return test.removeprefix(f"{CLUSTER}/")


def without_paths(text: str) -> str:
    """Without folders, ports and random names, which differ in every run."""
    text = re.sub(r"/[^\s:']*/", "", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    return re.sub(r"contract-[0-9a-f]{8}", "contract-ID", text)


def read_stored() -> dict[str, dict[str, Any]]:
    file = RESULTS / f"{NAME}.json"
    return dict(json.loads(file.read_text())["parts"]) if file.exists() else {}


def write(stored: Mapping[str, Any], before: str, now: str, parts: Iterable[str]) -> None:
    command = f"python benchmarks/{NAME}.py {' '.join(parts)}"
    commits = {"before": before, "now": now}
    figures = {"commits": commits, "summary": summary(stored), "parts": stored}
    write_result(NAME, command, figures, show=False)


def summary(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Per item, scenario and kind of rejection: how many tests, and how they end."""
    groups: dict[str, dict[str, Any]] = {}
    for part, sides in stored.items():
        for side, content in sides.items():
            for name, result in content["tests"].items():
                group = groups.setdefault(group_of(part, name), {})
                group.setdefault(side, Counter())[verdict(result)] += 1
    found = {name: counted(stored, name) for name in ("contract", "rejections") if name in stored}
    ordered = sorted(groups.items(), key=lambda entry: natural(entry[0]))
    return found | {name: {side: dict(counts) for side, counts in g.items()} for name, g in ordered}


def counted(stored: Mapping[str, Any], part: str) -> dict[str, Any]:
    """How many scenarios or rejections fail in at least one of their tests, and which do not."""
    result: dict[str, Any] = {}
    for side, content in stored[part].items():
        failing: dict[str, bool] = {}
        for name, test in content["tests"].items():
            function, _, case = name.partition("::")[2].partition("[")
            which = function if part == "contract" else case.rstrip("]")
            if part == "contract" or ": " in which:
                failing[which] = failing.get(which, False) or test["outcome"] == "failed"
        passing = [name for name, fails in failing.items() if not fails]
        result[side] = {"all": len(failing), "failing": len(failing) - len(passing)}
        if side == "before":
            result[side]["passing"] = passing
    return result


def verdict(result: Mapping[str, Any]) -> str:
    return str(result["kind"] if result["outcome"] == "failed" else result["outcome"])


def group_of(part: str, test: str) -> str:
    function, _, case = test.partition("::")[2].partition("[")
    if part == "items":
        return f"item {function.split('_')[1]}"
    if part == "contract":
        return f"contract: {function}"
    return f"rejections: {case.partition(':')[0]}" if ": " in case else f"rejections: {function}"


def natural(text: str) -> list[tuple[int, str]]:
    return [(int(p), "") if p.isdigit() else (0, p) for p in re.split(r"(\d+)", text)]


if __name__ == "__main__":
    main()
