"""Make the reports that the documents show, and take pictures of them with Chromium.

`make screenshots` runs it: a minute. It needs the environment sim and Debian's `chromium`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]
GRAPHS = [f"dynamo_graphs/gpt-oss-120b-b200-{name}.yaml" for name in ("disagg", "throughput")]
SLO = ["--ttft", "500ms", "--itl", "10ms"]
FAULTS = ["--faults", "kill:decode", "--count", "4", "--streams", "8", "--seed", "1"]
# Picture → the command that writes its report, and the height in pixels.
REPORTS = {
    "simulate": (["simulate", *GRAPHS, "--workload", "short-chat", "--rate", "4", *SLO], 860),
    "drill": (
        ["drill", "dynamo_graphs/quickstart-simulated.yaml", "--set", "decode.replicas=2", *FAULTS],
        680,
    ),
}


def take(report: Path, picture: Path, height: int) -> None:
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    size = f"--window-size=1000,{height}"
    subprocess.run([*command, f"--screenshot={picture}", size, report.as_uri()], check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, (command, height) in REPORTS.items():
            report = Path(folder) / f"{name}.html"
            subprocess.run([*PENSTOCK, *command, "--report", str(report)], cwd=ROOT, check=True)
            take(report, FOLDER / f"{name}.png", height)


if __name__ == "__main__":
    main()
