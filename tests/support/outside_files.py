"""Files that are not part of this repository: published recipes, CRDs, recordings, a trace.

`PENSTOCK_DYNAMO_CHECKOUT` names a checkout of ai-dynamo/dynamo for the recipes and CRDs.
`PENSTOCK_LLMD_CHECKOUT` names a checkout of llm-d/llm-d-benchmark for the schema of its reports.
`PENSTOCK_SHARED` names the folder with everything else (default: ../shared), which has the recipes
and CRDs too. CONTRIBUTING.md describes both.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECKOUT = "PENSTOCK_DYNAMO_CHECKOUT"
LLMD_CHECKOUT = "PENSTOCK_LLMD_CHECKOUT"
LLMD_SCHEMA = Path("llmdbenchmark/analysis/benchmark_report/br_v0_2_1_json_schema.json")
CRDS = Path("deploy") / "operator" / "config" / "crd" / "bases"
# The recipes that the tests have results for.
LISTED = re.compile(r"^\| (\S+\.yaml) \|", re.MULTILINE)


def shared() -> Path:
    """The folder with recordings, traces and facts; it may be missing."""
    return Path(os.environ.get("PENSTOCK_SHARED") or ROOT.parent / "shared")


def recordings() -> Path:
    """The recordings of real API servers; the folder may be missing."""
    return shared() / "real-cluster"


def crds() -> Path:
    """The folder with Dynamo's CRDs; it may be missing."""
    checkout = os.environ.get(CHECKOUT)
    return Path(checkout) / CRDS if checkout else shared() / "facts" / "crds"


def graph_crd() -> Path:
    """Dynamo's CRD of graphs; it may be missing."""
    return crds() / "nvidia.com_dynamographdeployments.yaml"


def trace() -> Path:
    """Mooncake's trace of conversations; it may be missing."""
    return shared() / "traces" / "mooncake_conversation.jsonl"


def llmd_schema() -> Path | None:
    """The JSON schema of llm-d's Benchmark Report 0.2.1; None without a checkout."""
    checkout = os.environ.get(LLMD_CHECKOUT)
    return Path(checkout) / LLMD_SCHEMA if checkout else None


@cache
def recipes() -> Path:
    """The folder with published recipes, named by their paths with `_`; it may be missing."""
    checkout = os.environ.get(CHECKOUT)
    if not checkout:
        return shared() / "recipes"
    listed = LISTED.findall((ROOT / "tests" / "corpus" / "recipes.md").read_text())
    folder = Path(tempfile.mkdtemp(prefix="penstock-recipes-"))
    link_recipes(Path(checkout).resolve(), listed, folder)
    return folder


def link_recipes(checkout: Path, names: Iterable[str], folder: Path) -> None:
    """Link the files of a checkout into ``folder`` under the names of `recipes`."""
    files = {
        path.relative_to(checkout).as_posix().replace("/", "_"): path
        for top in ("components", "deploy", "examples", "recipes")
        for path in (checkout / top).rglob("*.yaml")
    }
    for name in names:
        if name in files:
            (folder / name).symlink_to(files[name])
