"""A program in place of agentperf-local: it reads the context, and writes the files that the test
chooses. `FAKE_AGENTPERF` says what it does."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.environments.harmony import CACHED_AS, FILE

PROGRAM = """#!{python}
import json, os, sys, time, urllib.request
from pathlib import Path

arguments = sys.argv
value = lambda name: arguments[arguments.index(name) + 1]
does = os.environ["FAKE_AGENTPERF"]
output = Path(value("--output-dir"))
output.mkdir()
(output / "called.json").write_text(
    json.dumps({{"argv": arguments, "cache": os.environ["TIKTOKEN_CACHE_DIR"]}})
)
if does == "hang":
    time.sleep(60)
if does == "refuse":
    print("error: server ignores ignore_eos", file=sys.stderr)
    sys.exit(1)
with urllib.request.urlopen(value("--base-url") + "/models") as response:
    entry = json.load(response)["data"][0]
observed = entry.get("max_model_len")
context = {{
    "requested_tokens": 65536,
    "observed_tokens": observed,
    "observed_reason": "reported" if observed else "context-not-reported",
    "full_benchmark_tokens": 65536,
    "reduced": not observed or observed < 65536,
}}
failed = 2 if does == "fail-turns" else 0
latencies = {{"count": 6, "mean": 30.0, "p50": 20.0, "p95": 40.0}}
summary = {{
    "output_tokens_per_second": 400.0,
    "end_to_end_output_tokens_per_second": 350.0,
    "latency_distributions_ms": {{"e2e": latencies, "time_to_first_token": latencies}},
    "totals": {{
        "turns": 6,
        "failed_turns": failed,
        "successful_turns": 6 - failed,
        "total_server_prompt_tokens": 5000,
        "total_server_cached_prompt_tokens": 3000,
        "total_server_output_tokens": 1536,
    }},
}}
(output / "summary.json").write_text(json.dumps(summary))
files = {{"summary": str(output / "summary.json")}}
print(json.dumps({{"success": not failed, "context": context, "artifacts": files}}))
print("note: no GPU", file=sys.stderr)
if failed:
    print("2/6 turns failed. First error: HTTP 400: too long", file=sys.stderr)
    sys.exit(1)
"""


def install(environments: Path) -> None:
    """Into a folder of environments, with that of the vocabulary."""
    program = environments / "agentperf" / "bin" / "agentperf-local"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    vocabulary = environments / "harmony" / "cache" / CACHED_AS
    vocabulary.parent.mkdir(parents=True)
    vocabulary.write_text("")
    encodings = environments / "harmony" / "encodings"
    encodings.mkdir()
    (encodings / FILE).symlink_to(vocabulary)
    for name in ("agentperf", "harmony"):
        (environments / name / "installed.txt").write_text("")
