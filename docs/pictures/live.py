"""Take pictures of `penstock top` and `penstock trace`, for the documentation.

`make screenshots` runs it, for four minutes. The pictures of top and page show a graph of mockers
under load while it is scaled. The page shows the path of its slowest request. The picture of trace
shows a request with a long prompt to mockers with slow prefill; `python docs/pictures/live.py
trace` takes only this one. It needs the environment page, and Debian's `chromium`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from penstock.live.source import LiveGraph

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

from pictures.browser import browser  # noqa: E402

ROOT = FOLDER.parents[1]
PICTURES = FOLDER / "live"
QUICKSTART = ROOT / "dynamo_graphs" / "quickstart-simulated.yaml"
PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]
USERS, PAUSE_S = 8, 1.0  # seconds between two requests of a user, on average
SHARED = "The pressure at the gate rises with the level of the lake behind it. " * 40
WIDTHS = (80, 160)  # columns of the terminal
LINES = 26
# The outlier of trace: one long prompt, on mockers whose prefill takes about 50 s for it.
OUTLIER = [
    *("--set", "model.context_length=131072"),
    *("--set", "prefill.config.engine.speedup_ratio=0.03"),
]
OUTLIER_PROMPT = "lake " * 40_000  # two tokens each
OUTLIER_COLUMNS = 100
RECORDED_S = 4.0  # until the receiver has the spans of a request
HEIGHT = 1080  # pixels, about those of the page
WINDOW_S = 8.0  # longer than the window of the rates
CHARTS_S = 30.0  # that the charts of the page show at least
QUALITY = 60  # of WebP
CHANGED = "new Event('change', {bubbles: true})"
FIRST = "document.querySelector('#recorded tbody button')"  # of the listed requests
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # loads a font from another host
NUMBERED = re.compile(r"terminal-\d+-")


async def take_top(source: LiveGraph, width: int, picture: Path) -> None:
    """The screen of `penstock top` in a terminal of this width, as SVG."""
    from penstock.live.top import Top

    app = Top(source.snapshot)
    try:
        async with app.run_test(size=(width, LINES)) as pilot:
            await pilot.pause(WINDOW_S)
            title = f"penstock top {QUICKSTART.name}"
            picture.write_text(cleaned(app.export_screenshot(title=title, simplify=True)), "utf-8")
    finally:
        await source.close()


def cleaned(svg: str) -> str:
    """Without remote fonts, and with the same names in each run."""
    return NUMBERED.sub("terminal-", FONT.sub("", svg)).rstrip() + "\n"


def take_trace(picture: Path) -> None:
    """What `penstock trace` prints of a request with a long prompt, as SVG."""
    from penstock.drill.graph_process import GraphProcess

    with tempfile.TemporaryDirectory() as scratch:
        graph = Path(scratch) / QUICKSTART.name
        shutil.copy(QUICKSTART, graph)
        options = ["--engine", "mocker", "--port", "0", "--trace", *OUTLIER]
        with GraphProcess(graph, graph.parent, options) as process:
            with httpx.Client(base_url=process.wait_ready(300.0), timeout=300.0) as client:
                model = client.get("models").json()["data"][0]["id"]
                messages = [{"role": "user", "content": OUTLIER_PROMPT}]
                body = {"model": model, "messages": messages, "max_tokens": 4}
                reply = client.post("chat/completions", json=body).raise_for_status()
            time.sleep(RECORDED_S)
            done = process.penstock("trace", str(graph), reply.json()["id"], *OUTLIER)
            done.check_returncode()
    title = f"penstock trace {QUICKSTART.name} {reply.json()['id']}"
    picture.write_text(terminal(done.stdout, title), "utf-8")


def terminal(text: str, title: str) -> str:
    """A terminal with this text, as SVG."""
    screen = Console(record=True, width=OUTLIER_COLUMNS, file=io.StringIO(), highlight=False)
    screen.print(Text(text.rstrip()))
    return cleaned(screen.export_svg(title=title, unique_id="terminal"))


def take_page(url: str, folder: Path) -> None:
    """The complete page in light and in dark colors."""
    for name, is_dark in (("page", False), ("page-dark", True)):
        with browser() as page:
            page.open(url, 1280, HEIGHT, is_dark=is_dark)
            page.wait_for("document.querySelectorAll('#workers tbody tr').length > 0")
            page.wait_for("document.querySelectorAll('.chart svg path').length > 0")
            page.evaluate("order.value = 'slowest'")  # an element's ID is a global name
            page.evaluate(f"order.dispatchEvent({CHANGED})")
            time.sleep(2.0)  # the list of the newest is there already
            page.evaluate(f"{FIRST}.click()")
            page.wait_for("!path.hidden")
            for _ in range(2):  # the first one makes a headless browser lay out all parts
                time.sleep(1.5)
                page.screenshot(folder / f"{name}.webp", quality=QUALITY)


@contextlib.contextmanager
def _serving_page(graph: Path) -> Iterator[str]:
    """The URL of `penstock top --web`."""
    command = [*PENSTOCK, "top", "--web", str(graph)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[1]
        finally:
            process.terminate()


@contextlib.contextmanager
def _load(endpoint: str) -> Iterator[None]:
    """Users who ask one question after the other about the same text."""
    ended = threading.Event()

    def ask(number: int) -> None:
        draw = random.Random(number)
        with httpx.Client(base_url=endpoint, timeout=60.0) as client:
            model = client.get("models").json()["data"][0]["id"]
            while not ended.wait(draw.expovariate(1 / PAUSE_S)):
                prompt = f"{SHARED} What is {draw.randrange(10_000)}?"
                messages = [{"role": "user", "content": prompt}]
                body = {"model": model, "messages": messages}
                tokens = {"max_tokens": draw.randrange(100, 400)}
                client.post("chat/completions", json=body | tokens)

    with ThreadPoolExecutor(USERS) as pool:
        asked = [pool.submit(ask, number) for number in range(USERS)]
        try:
            yield
        finally:
            ended.set()
    for one in asked:
        one.result()  # raises what a request has raised


def take_live() -> None:
    """The pictures of top and page."""
    from penstock.drill.graph_process import GraphProcess
    from penstock.live.source import LiveGraph

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        graph = folder / QUICKSTART.name
        shutil.copy(QUICKSTART, graph)
        os.environ["PENSTOCK_STATE_HOME"] = str(folder / "state")
        with GraphProcess(
            graph, folder, ["--engine", "mocker", "--port", "0", "--trace"]
        ) as process:
            endpoint = process.wait_ready(300.0)
            with _serving_page(graph) as url, _load(endpoint):
                time.sleep(CHARTS_S)
                subprocess.run([*PENSTOCK, "scale", str(graph), "decode=2"], check=True)
                process.wait_counts(decode=2)
                for width in WIDTHS:
                    source = LiveGraph(graph)
                    asyncio.run(take_top(source, width, PICTURES / f"top-{width}.svg"))
                take_page(url, PICTURES)


def main(argv: Sequence[str]) -> None:
    PICTURES.mkdir(exist_ok=True)
    if "trace" not in argv:
        take_live()
    take_trace(PICTURES / "trace.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
