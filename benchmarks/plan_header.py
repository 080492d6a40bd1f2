"""Replays what the header of a planned graph claims, with `penstock simulate`.

python benchmarks/plan_header.py [CASE…]
Writes results/plan_header.json; without names, only cases without a result are run.

The claims are taken from the JSON output, which has the values of the header's sentences: the
figures of the recommended graph, the scales at which it meets and misses the SLO, and whether it
meets the SLO after the loss of a worker. The router's evidence, the margin, and the comparison of
the best aggregated with the best disaggregated graph are not replayed. `simulate` reads the written
graph, and lengthens its replays until the state is steady, so a claim of a replay that was too
short shows here.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from penstock.cli.main import main as penstock
from plan_cases import ATTAIN, CASES, Case, chosen_cases, known_cases
from report import write_result

FIGURES = ("user_rate", "gpu_rate", "ttft_p50_ms", "itl_p50_ms")
POOL_KEYS = {"aggregated": "worker", "prefill": "prefill", "decode": "decode"}
FIGURE_MARGIN = 0.1  # between a figure of the header and its replay
SHARE_MARGIN = 0.02  # between shares of requests that meet the SLO


@dataclass(frozen=True, kw_only=True)
class Claim:
    what: str
    claimed: float | str
    replayed: float
    holds: bool


def arguments_of(case: Case, scale: float = 1.0) -> list[str]:
    return ["--workload", case.source, "--scale", str(case.scale * scale)]


def printed(*arguments: str) -> dict[str, Any]:
    """The JSON that a command prints."""
    output = io.StringIO()
    with redirect_stdout(output):
        code = penstock([*arguments, "--json", "-q"])
    assert code == 0, arguments
    return dict(json.loads(output.getvalue()))


def planned(case: Case) -> dict[str, Any]:
    limits = case.slo.model_dump(exclude_none=True)
    latencies = [f"--{name.removesuffix('_ms')}={ms:g}ms" for name, ms in limits.items()]
    own = ["--model", case.model, "--gpu", case.gpu, "--gpus", str(case.gpus)]
    objective = ["--objective", str(case.objective)]
    return printed("plan", *own, *objective, *latencies, *arguments_of(case))


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A planned graph, and how `simulate` sees it."""

    case: Case
    file: Path

    def figures(self, scale: float, graph: str | None = None) -> dict[str, float]:
        """The medians. ``graph``: YAML of another graph than the planned one."""
        file = self.file
        if graph is not None:
            file = self.file.with_name("changed.yaml")
            file.write_text(graph)
        (one,) = printed("simulate", str(file), *arguments_of(self.case, scale))["graphs"]
        return {name: spread["median"] for name, spread in one["figures"].items()}


def claims(plan: dict[str, Any], replayed: Replayed) -> Iterator[Claim]:
    base = plan["planned_scale"]
    own = replayed.figures(base)
    yield Claim(
        what=f"the SLO is met for {ATTAIN:.0%} of requests",
        claimed="yes",
        replayed=round(own["goodput"], 4),
        holds=own["goodput"] >= ATTAIN,
    )
    for name in FIGURES:
        figure = plan["graphs"][0]["figures"][name]["median"]
        is_near = abs(figure / own[name] - 1) <= FIGURE_MARGIN if own[name] else not figure
        yield Claim(
            what=name, claimed=round(figure, 2), replayed=round(own[name], 2), holds=is_near
        )
    yield from _scale_claims(plan, replayed, base)
    yield from _loss_claims(plan, replayed, base)


def _scale_claims(plan: dict[str, Any], replayed: Replayed, base: float) -> Iterator[Claim]:
    steps = plan["scale_headroom"]
    for name, verb in (("sustained", "meets"), ("failing", "misses")):
        if (step := steps[name]) is not None:
            share = replayed.figures(base * step)["goodput"]
            limit = ATTAIN + (-SHARE_MARGIN if verb == "meets" else SHARE_MARGIN)
            yield Claim(
                what=f"{verb} the SLO at scale × {step:.3g}",
                claimed="yes",
                replayed=round(share, 4),
                holds=share >= limit if verb == "meets" else share < limit,
            )


def _loss_claims(plan: dict[str, Any], replayed: Replayed, base: float) -> Iterator[Claim]:
    """Whether the SLO is met with one worker fewer, which is what an operator decides on."""
    for pool, claim in plan["after_loss"].items():
        graph = yaml.safe_load(plan["graph"])
        graph[POOL_KEYS[pool]]["replicas"] -= 1
        share = replayed.figures(base, yaml.safe_dump(graph))["goodput"]
        if (claimed := claim.get("meets_slo")) is not None:
            yield Claim(
                what=f"meets the SLO with one {pool} worker fewer",
                claimed="yes" if claimed else "no",
                replayed=round(share, 4),
                holds=(share >= ATTAIN - SHARE_MARGIN)
                if claimed
                else (share < ATTAIN + SHARE_MARGIN),
            )


def verified(case: Case) -> dict[str, Any]:
    plan = planned(case)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "planned.yaml"
        file.write_text(plan["graph"])
        found = list(claims(plan, Replayed(case=case, file=file)))
    return {
        "case": case.described,
        "recommended": plan["recommended"],
        "steady": plan["graphs"][0]["is_steady"],
        "reason": plan["reason"],
        "router": plan["router"]["reason"],
        "claims": [asdict(one) for one in found],
        "false": [one.what for one in found if not one.holds],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[*CASES, []])
    args = parser.parse_args()
    for name, case in list(chosen_cases(args.cases, known_cases("plan_header"))):
        result = verified(case)
        print(name, json.dumps(result, ensure_ascii=False), file=sys.stderr, flush=True)
        known = known_cases("plan_header") | {name: result}
        cases = {name: known[name] for name in CASES if name in known}
        count = sum(len(one["claims"]) for one in cases.values())
        false = sum(len(one["false"]) for one in cases.values())
        figures = {"claims": count, "false": false, "cases": cases}
        write_result("plan_header", "python benchmarks/plan_header.py", figures, show=False)


if __name__ == "__main__":
    main()
