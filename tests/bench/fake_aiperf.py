"""A program in place of AIPerf, whose records and end the test chooses: no run takes 10 s.

`FAKE_AIPERF` says what it does.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Files of a program that hangs: it does, and it has ignored an interrupt.
HANGS, IGNORES = "hangs", "ignores"
PROGRAM = """#!{python}
import json, os, signal, subprocess, sys, time
from pathlib import Path

arguments = sys.argv
folder = Path(arguments[arguments.index("--artifact-dir") + 1])
trace = Path(arguments[arguments.index("--input-file") + 1])
does = os.environ["FAKE_AIPERF"]


def value(name, default):
    return float(arguments[arguments.index(name) + 1]) if name in arguments else default


def start_ms(number, line):
    # With a fixed concurrency, each request takes the 50 ms of its latency.
    return line.get("timestamp", number // value("--concurrency", 1.0) * 50.0)


def record(number, line):
    start = 10**18 + int(start_ms(number, line) * 1e6)
    metadata = {{"conversation_id": line["session_id"], "turn_index": 0}}
    tokens, outputs = len(line["payload"]["prompt"]), line["payload"]["max_tokens"]
    ttft, took = 20.0, 50.0
    if does == "succeed-by-length":
        ttft = 150.0 + 0.03 * tokens
        took = ttft + 6.0 * (outputs - 1)
    values = {{
        "time_to_first_token": ttft,
        "request_latency": took,
        "inter_chunk_latency": [10.0, 10.0, 10.0],
        "usage_prompt_tokens": tokens,
        "usage_completion_tokens": outputs,
    }}
    if does == "time-out":
        metadata["request_start_ns"] = start
        return {{"metadata": metadata, "metrics": {{}}, "error": {{"type": "TimeoutError"}}}}
    metrics = {{name: {{"value": value}} for name, value in values.items()}}
    return {{"metadata": {{**metadata, "request_start_ns": start}}, "metrics": metrics}}


if does == "hang":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # also of the child
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    signal.signal(signal.SIGINT, lambda *_: (folder / "{ignores}").touch())
    (folder / "{hangs}").touch()
    time.sleep(60)
lines = trace.read_text().splitlines()
if does == "fail-in-mid-run":
    lines = lines[: len(lines) // 2]
if does not in ("fail", "fail-with-box"):
    sent = list(enumerate(map(json.loads, lines)))
    end_ms = 1000 * value("--benchmark-duration", float("inf"))
    sent = [(number, line) for number, line in sent if start_ms(number, line) < end_ms]
    records = (json.dumps(record(number, line)) + "\\n" for number, line in sent)
    (folder / "profile_export.jsonl").write_text("".join(records))
if does == "fail-with-box":
    print("╭─ Error Running AIPerf System ───────────────╮")
    print("│ 1 validation error for AIPerfConfig         │")
    print("│   a field is missing                        │")
    print("╰─────────────────────────────────────────────╯")
    sys.exit(3)
if does == "time-out":
    sys.exit(1)  # as AIPerf does if no request was served
if not does.startswith("succeed"):
    print("INFO as always")
    print("ERROR the load generator broke")
    sys.exit(3)
"""


def install(environments: Path) -> None:
    """Into a folder of environments."""
    program = environments / "aiperf" / "bin" / "python"  # which starts AIPerf
    program.parent.mkdir(parents=True)
    text = PROGRAM.format(python=sys.executable, hangs=HANGS, ignores=IGNORES)
    program.write_text(text)
    program.chmod(0o755)
    (environments / "aiperf" / "installed.txt").write_text("")
