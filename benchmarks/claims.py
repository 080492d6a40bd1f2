"""Compares the published figures that this project is based on with its predictions.

python benchmarks/claims.py [PART…]
    Predicts the figures of the parts (default: all) and writes them into results/claims.json after
    each part; the other parts keep their figures. Then writes docs/claims.md.
python benchmarks/claims.py report [--check]
    Writes docs/claims.md. With --check: fails if it is out of date.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.simulate.replay import Replays, environment_cache, require_environment
from published.interactivity import interactivity
from published.llm_d import end_to_end
from published.memory import memory
from published.page import with_claims
from published.rack import rack
from published.replays import ROOT
from published.single_user import with_eagle3, without_drafts
from report import RESULTS, update_page, write_result

RESULT, PAGE = RESULTS / "claims.json", ROOT / "docs" / "claims.md"
COMMAND = "python benchmarks/claims.py"
PARTS: Mapping[str, Callable[[Replays], dict[str, Any]]] = {
    "single-user": without_drafts,
    "eagle3": with_eagle3,
    "rack": rack,
    "memory": lambda _: memory(),
    "interactivity": interactivity,
    "llm-d": end_to_end,
}


def predict(parts: list[str]) -> None:
    with Replays(environment_cache(require_environment())) as replays:
        for part in parts:
            began = time.monotonic()
            found = PARTS[part](replays)
            known = results() | {part: found}
            ordered = {name: known[name] for name in PARTS if name in known}
            write_result("claims", COMMAND, {"claims": ordered}, show=False)
            print(f"{part}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def results() -> dict[str, Any]:
    """Of the parts that have been predicted."""
    if not RESULT.exists():
        return {}
    claims: dict[str, Any] = json.loads(RESULT.read_text())["claims"]
    return claims


def report(*, check: bool) -> int:
    known = results()
    if missing := [part for part in PARTS if part not in known]:
        print(f"no page without the parts {', '.join(missing)}; predict them", file=sys.stderr)
        return 1
    return update_page(PAGE, with_claims(PAGE.read_text(), known), check=check)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"report, {', '.join(PARTS)}")
    parser.add_argument("--check", action="store_true", help="with report: only compare the page")
    arguments = parser.parse_args()
    parts = arguments.parts or list(PARTS)
    if parts != ["report"]:
        if unknown := [part for part in parts if part not in PARTS]:
            parser.error(f"unknown part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
        predict(parts)
    return report(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
