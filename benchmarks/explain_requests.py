"""Whether `penstock trace` names the stage that an injected delay made slow, on mockers.

    python benchmarks/explain_requests.py --seed 21 [--plants 50] [--causes queue ...]

Each cause has a graph of its own. Usual requests come first, then the delayed ones. The client's
times or the workers' metrics must show that a delay took effect (explain_plants.py). Otherwise it
is injected again, three times in total, and is then `not planted` and counts as not right.
Rules and delays were chosen with other seeds (1 to 3, 11, 12, 20).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from explain_plants import (
    LENGTHY,
    LONG,
    SHORT,
    Client,
    cold_prefix,
    preemption,
    queue,
    slow_client,
    slow_prefill,
    slow_transfer,
)
from penstock.drill.graph_process import GraphProcess
from penstock.local.state import StateDir
from penstock.local.tracing import folder
from penstock.tracing.explain import UnknownRequestError, explain
from penstock.tracing.requests import StageName, TracedRequest, load
from report import write_result

USUAL = 14  # requests before the planted ones
NOT_PLANTED = "not planted"
ATTEMPTS = 3  # to plant a cause that takes effect
EXPORT_S = 3.0  # Dynamo exports spans every second
GRAPH = """\
model: {id: openai/gpt-oss-20b, context_length: 131072}
engine:
  kind: mocker
  config: {engine: {backend: BACKEND, speedup_ratio: 1.0, num_gpu_blocks: 4096}}
prefill: {replicas: 1}
decode: {replicas: 1, config: {engine: {DECODE}}}
"""


@dataclass(frozen=True)
class Result:
    """One planted cause and what was named."""

    cause: str
    case: int
    expected: str
    stage: str
    named_cause: str

    @property
    def is_right(self) -> bool:
        return self.stage == self.expected


@dataclass(frozen=True)
class Planted:
    """A cause: how it is planted, and the stage that it makes slow."""

    plant: Callable[[Client, str], bool]
    """Whether the cause took effect."""
    stage: StageName
    tokens: int = 30
    backend: str = "trtllm"
    decode: str = ""
    usual: int = USUAL
    between: int = 2
    """Usual requests after each planted one."""
    prefill: str = ""
    words: int = 0
    """Words of a usual prompt; 0: the common prefix."""


TRANSFER = "kv_transfer_bandwidth: 0.04"
CAUSES = {
    "queue": Planted(queue, StageName.PREFILL),
    "cold prefix": Planted(cold_prefix, StageName.PREFILL),
    "slow prefill worker": Planted(slow_prefill, StageName.PREFILL),
    "slow KV transfer": Planted(
        slow_transfer,
        StageName.KV_TRANSFER,
        prefill=TRANSFER,
        decode=TRANSFER,
        words=LENGTHY,
    ),
    "decode preemption": Planted(
        preemption,
        StageName.DECODE,
        tokens=250,
        words=SHORT,
        backend="vllm",
        decode="num_gpu_blocks: 16, decode_speedup_ratio: 8.0",
    ),
    "slow client": Planted(
        slow_client,
        StageName.RESPONSE,
        tokens=LONG,
        decode="decode_speedup_ratio: 10.0",
    ),
}


def graph_text(planted: Planted) -> str:
    text = GRAPH.replace("BACKEND", planted.backend).replace("DECODE", planted.decode)
    own = f"prefill: {{replicas: 1, config: {{engine: {{{planted.prefill}}}}}}}"
    return text.replace("prefill: {replicas: 1}", own)


def run_cause(cause: str, cases: int, seed: int, tmp: Path) -> list[Result]:
    """Start the graph, send usual and planted requests, and explain the planted ones."""
    planted = CAUSES[cause]
    graph = tmp / f"{cause.lower().replace(' ', '-')}.yaml"
    graph.write_text(graph_text(planted))
    env = {"PENSTOCK_ENVIRONMENTS": str(tmp / "none")}  # no Envoy: it would read for a slow client
    with GraphProcess(graph, tmp, ["--port", "0", "--trace"], env) as process:
        process.wait_ready(120)
        os.environ["PENSTOCK_STATE_HOME"] = str(tmp / "state")
        state = StateDir(graph).read()
        assert state is not None
        client = Client(process, state.endpoint, random.Random(f"{seed} {cause}"))
        for number in range(planted.usual + 1):
            client.send_usual(f"usual-{number}", planted.words, planted.tokens)
        names = []
        for case in range(cases):
            names.append(plant(client, planted, case))
            for number in range(planted.between):
                client.send_usual(f"between-{case}-{number}", planted.words, planted.tokens)
        time.sleep(EXPORT_S)
        loaded = load(folder(StateDir(graph)))
    return [named(cause, case, name, loaded.requests) for case, name in enumerate(names)]


def plant(client: Client, planted: Planted, case: int) -> str:
    """The name of the planted request; empty if the cause took effect in no attempt."""
    for attempt in range(ATTEMPTS):
        name = f"planted-{case}-{attempt}"
        if planted.plant(client, name):
            return name
        print(f"{name} had no effect", file=sys.stderr)
    return ""


def named(cause: str, case: int, name: str, requests: Sequence[TracedRequest]) -> Result:
    if not name:
        return Result(cause, case, CAUSES[cause].stage, NOT_PLANTED, "")
    try:
        found = explain(requests, name)
    except UnknownRequestError:
        return Result(cause, case, CAUSES[cause].stage, "not recorded", "")
    stage = found.slow.stage.name if found.slow else "none"
    return Result(cause, case, CAUSES[cause].stage, stage, found.cause)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--plants", type=int, default=50, help="of all causes together")
    parser.add_argument("--causes", nargs="*", choices=list(CAUSES), default=list(CAUSES))
    parser.add_argument("--resume", type=Path, help="file that keeps the results of each cause")
    args = parser.parse_args()
    results: list[Result] = []
    if args.resume and args.resume.exists():
        results = [Result(**row) for row in json.loads(args.resume.read_text())]
    each, more = divmod(args.plants, len(args.causes))
    for number, cause in enumerate(args.causes):
        if any(result.cause == cause for result in results):
            continue
        with tempfile.TemporaryDirectory() as tmp:
            results += run_cause(cause, each + (number < more), args.seed, Path(tmp))
        for result in results:
            if result.cause == cause:
                print(result, file=sys.stderr)
        if args.resume:
            args.resume.write_text(json.dumps([asdict(result) for result in results], indent=1))
    by_cause = {
        cause: {
            "planted": sum(r.cause == cause for r in results),
            "right_stage": sum(r.cause == cause and r.is_right for r in results),
            "named_causes": dict(Counter(r.named_cause for r in results if r.cause == cause)),
        }
        for cause in args.causes
    }
    figures = {
        "seed": args.seed,
        "planted": len(results),
        "right_stage": sum(result.is_right for result in results),
        "by_cause": by_cause,
        "wrong": [asdict(result) for result in results if not result.is_right],
    }
    command = f"python benchmarks/explain_requests.py --seed {args.seed} --plants {args.plants}"
    write_result("explain_requests", command, figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
