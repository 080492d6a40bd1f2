"""Make the reports that the documents show, and take pictures of them with Chromium.

`make screenshots` runs it: a minute. It needs the environment sim and Debian's `chromium`. A
picture records the command and the texts of its report; a test compares them with a new report.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zlib
from html.parser import HTMLParser
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]
GRAPHS = [f"dynamo_graphs/gpt-oss-120b-b200-{name}.yaml" for name in ("disagg", "throughput")]
SLO = ["--ttft", "500ms", "--itl", "10ms"]
FAULTS = ["--faults", "kill:decode", "--count", "4", "--streams", "8", "--seed", "1"]
WIDTH = 1000  # pixels, of every picture
# Picture → the command that writes its report, and the height in pixels.
REPORTS = {
    "simulate": (["simulate", *GRAPHS, "--workload", "short-chat", "--rate", "4", *SLO], 890),
    "drill": (
        ["drill", "dynamo_graphs/quickstart-simulated.yaml", "--set", "decode.replicas=2", *FAULTS],
        680,
    ),
}
# The chunk of a PNG with international text, without compression and language.
START = b"iTXtpenstock" + bytes(5)
# Of a PNG: the signature and the chunk IHDR, which has width and height at 16.
HEADER_BYTES = 33
# Not visible, or a command, which is recorded.
HIDDEN = ("code", "script", "style", "title")


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in HIDDEN:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if not self._open:
            self.found += data.splitlines()


def texts(report: str) -> list[str]:
    """The lines of text in a report, without their numbers, which depend on the machine."""
    parser = _Texts()
    parser.feed(report)
    lines = (" ".join(re.sub(r"\d[\d.,]*", "#", line).split()) for line in parser.found)
    return [line for line in lines if re.search("[A-Za-z]", line)]


def size(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG in pixels."""
    header = picture.read_bytes()[:HEADER_BYTES]
    return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")


def recorded(picture: Path) -> list[str]:
    """The command and the texts that `record` wrote; empty for another picture."""
    image = picture.read_bytes()[HEADER_BYTES:]
    chunk = image[4 : 8 + int.from_bytes(image[:4], "big")]
    return chunk[len(START) :].decode("utf-8").splitlines() if chunk.startswith(START) else []


def record(picture: Path, lines: list[str]) -> None:
    """Write lines into a PNG, as an uncompressed chunk of international text."""
    chunk = START + "\n".join(lines).encode("utf-8")
    length, check = (number.to_bytes(4, "big") for number in (len(chunk) - 4, zlib.crc32(chunk)))
    image = picture.read_bytes()
    picture.write_bytes(image[:HEADER_BYTES] + length + chunk + check + image[HEADER_BYTES:])


def take(report: Path, picture: Path, command: list[str], height: int) -> None:
    """Take a picture of a report that the command wrote."""
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    browser += ["--virtual-time-budget=2000"]  # ms: without it, the end of a page can be missing
    shot = [f"--screenshot={picture}", f"--window-size={WIDTH},{height}", report.as_uri()]
    subprocess.run([*browser, *shot], check=True, capture_output=True)
    record(picture, [" ".join(command), *texts(report.read_text("utf-8"))])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, (command, height) in REPORTS.items():
            report = Path(folder) / f"{name}.html"
            subprocess.run([*PENSTOCK, *command, "--report", str(report)], cwd=ROOT, check=True)
            take(report, FOLDER / f"{name}.png", command, height)


if __name__ == "__main__":
    main()
