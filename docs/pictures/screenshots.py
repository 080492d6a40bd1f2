"""Make a report of each kind, and take pictures of it with Chromium, for docs/reports.md.

`make screenshots` runs it, for some minutes. `python docs/pictures/screenshots.py bench` makes only
the reports of these names. It needs the environments aiperf, llamacpp and sim, and Debian's
`chromium` and `poppler-utils`. A test compares the titles in the pictures with those of today.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

from pictures.browser import Page, browser  # noqa: E402

ROOT = FOLDER.parents[1]
PICTURES, TITLES = FOLDER / "reports", FOLDER / "reports.json"
PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]
QUICKSTART = "dynamo_graphs/quickstart-simulated.yaml"
GRAPHS = [f"dynamo_graphs/gpt-oss-120b-b200-{name}.yaml" for name in ("disagg", "throughput")]
CHAT = ["--workload", "short-chat"]
SLO = ["--ttft", "500ms", "--itl", "10ms"]
STARTED = ["--start", "--engine", "mocker", *CHAT]
SLOW_SLO = ["--ttft", "500ms", "--itl", "30ms"]
SLICES = ["--duration", "60s", "--slice", "3s", "--gap", "1s", "--fail-if", "ttft_mean > +50%"]
FAULTS = ["--faults", "kill:decode", "--count", "4", "--streams", "8", "--seed", "1"]
PLANNED = ["--model", "gpt-oss-120b", "--gpu", "b200", "--gpus", "8", "--replays", "12"]
# Name of the pictures → the command that writes the report.
REPORTS: Mapping[str, Sequence[str]] = {
    "bench": ["bench", QUICKSTART, *STARTED, "--rate", "2", "--requests", "200", *SLOW_SLO],
    "sweep": [
        *("bench", QUICKSTART, *STARTED, "--sweep", "1,2,4", "--gpus", "2"),
        *("--rate", "3", "--requests", "90", *SLOW_SLO),
    ],
    "compare": ["bench", QUICKSTART, QUICKSTART, *STARTED, "--rate", "8", *SLICES],
    "shadow": ["bench", "shadow", "URL", "URL_B", "--file", "REQUESTS"],
    "simulate": ["simulate", *GRAPHS, *CHAT, "--rate", "4", *SLO],
    "plan": ["plan", *PLANNED, *CHAT, "--rate", "4", *SLO],
    "drill": ["drill", QUICKSTART, "--set", "decode.replicas=2", *FAULTS],
    "verify": ["verify", "URL", "--graph", QUICKSTART],
}
RUNNING = {"URL", "URL_B"}  # of a graph that runs
SHORT_CONTEXT = 72  # tokens
VIEWS = ("1280", "1280-dark", "2560", "print")
QUALITY = 32  # of WebP
DPI = 60  # of the printed pages
NUMBER, LATENCY = re.compile(r"\d[\d.,]*"), re.compile("TTFT|ITL|end-to-end latency")
TITLE = re.compile(r"<(h2|figcaption)>(.*?)</\1>")


def titles(report: str) -> list[str]:
    """The titles of sections and charts, without what depends on the figures."""
    found = (LATENCY.sub("#", NUMBER.sub("#", match[2])) for match in TITLE.finditer(report))
    return list(dict.fromkeys(found))


def take(page: Page, report: Path, folder: Path) -> None:
    """Pictures of a report in all `VIEWS`, named after it."""
    for view in VIEWS[:-1]:
        width, _, scheme = view.partition("-")
        page.open(report.as_uri(), int(width), 900, is_dark=scheme == "dark")
        page.screenshot(folder / f"{report.stem}-{view}.webp", quality=QUALITY)
    page.open(report.as_uri(), 1280, 900)
    with tempfile.TemporaryDirectory() as scratch:
        pdf = Path(scratch) / "printed.pdf"
        page.print(pdf)
        command = ["pdftoppm", "-r", str(DPI), "-png", str(pdf), f"{scratch}/page"]
        subprocess.run(command, check=True)
        sheets = "".join(f"<img src='{one.name}'>" for one in sorted(pdf.parent.glob("page*.png")))
        style = "body { background: #888; display: flex; flex-wrap: wrap; gap: 8px }"
        contact = pdf.with_suffix(".html")
        contact.write_text(f"<style>{style}</style>{sheets}")
        page.open(contact.as_uri(), 1440, 500)
        page.screenshot(folder / f"{report.stem}-print.webp", quality=QUALITY)


def make(folder: Path, names: Collection[str]) -> None:
    """Write the reports of these names. CalledProcessError if a command fails."""
    for name in names:
        if not RUNNING & set(REPORTS[name]):
            _run(name, REPORTS[name], folder)
    if "verify" in names:
        _verify(folder)
    if "shadow" in names:
        _compare_responses(folder)


def _verify(folder: Path) -> None:
    from penstock.drill.graph_process import GraphProcess

    graph = folder / Path(QUICKSTART).name
    shutil.copy(ROOT / QUICKSTART, graph)
    with GraphProcess(graph, folder, ["--engine", "mocker"]) as process:
        _run_with("verify", folder, URL=process.wait_ready(300.0))


def _compare_responses(folder: Path) -> None:
    """B's context is shorter than some requests."""
    from penstock.drill.graph_process import GraphProcess
    from penstock.environments.packaged_models import SMOLLM2
    from penstock.local.ports import Ports

    lengths = Random(1)
    texts = (
        f"Which of these is a fruit: {'stone, ' * lengths.randrange(40)}apple?" for _ in range(60)
    )
    messages = ([{"role": "user", "content": text}] for text in texts)
    requests = folder / "requests.jsonl"
    requests.write_text(
        "\n".join(json.dumps({"messages": one, "max_tokens": 8}) for one in messages)
    )
    with ExitStack() as opened:
        urls = []
        for name, length in (("a", 512), ("b", SHORT_CONTEXT)):
            own = folder / name
            own.mkdir()
            graph = own / "graph.yaml"
            model = {"id": SMOLLM2, "context_length": length}
            content = {"model": model, "engine": {"kind": "llamacpp"}, "worker": {"replicas": 1}}
            graph.write_text(json.dumps(content))
            options = ["--port", str(Ports().free())]
            process = opened.enter_context(GraphProcess(graph, own, options))
            urls.append(process.wait_ready(300.0))
        _run_with("shadow", folder, URL=urls[0], URL_B=urls[1], REQUESTS=str(requests))


def _run_with(name: str, folder: Path, **words: str) -> None:
    """Run a command with values in place of the ``words``."""
    _run(name, [words.get(word, word) for word in REPORTS[name]], folder)


def _run(name: str, command: Sequence[str], folder: Path) -> None:
    report = folder / f"{name}.html"
    print(*command, flush=True)
    done = subprocess.run([*PENSTOCK, *command, "--report", str(report)], cwd=ROOT, check=False)
    # 20 and 21 are verdicts, and verify reports a failed probe with 3; the report is complete.
    if not report.is_file():
        raise subprocess.CalledProcessError(done.returncode, list(command))


def main(argv: Sequence[str]) -> None:
    names = argv or list(REPORTS)
    if unknown := set(names) - set(REPORTS):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(REPORTS)}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make(folder, names)
        picture_all(folder, names)


def picture_all(folder: Path, names: Collection[str]) -> None:
    """``folder``: with the reports of these names. Other pictures stay."""
    PICTURES.mkdir(exist_ok=True)
    shown = json.loads(TITLES.read_text()) if TITLES.exists() else {}
    with browser() as page:
        for name in names:
            report = folder / f"{name}.html"
            take(page, report, PICTURES)
            command = " ".join(REPORTS[name])
            shown[name] = {"command": command, "titles": titles(report.read_text("utf-8"))}
    ordered = {name: shown[name] for name in REPORTS if name in shown}
    TITLES.write_text(json.dumps(ordered, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
