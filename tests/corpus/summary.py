"""Write recipes.md: what `penstock check` finds in each published recipe.

uv run python -m tests.corpus.summary FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.checks.finding import Level
from penstock.checks.run import check_file
from penstock.serving.understand import Hints
from tests.checks.test_recipes import rules_of

SUMMARY = Path(__file__).with_name("recipes.md")
SAMPLE = Path(__file__).with_name("recipes-sample.md")


def main(folder: Path) -> None:
    rows = ["| recipe | errors | warnings | notes |", "|---|---|---|---|"]
    total = dict.fromkeys(Level, 0)
    for path in sorted(folder.glob("*.yaml")):
        found = check_file(path, Hints())
        cells = [" ".join(rules_of(found, level)) for level in Level]
        rows.append(f"| {path.name} | {' | '.join(cells)} |")
        for level in Level:
            total[level] += sum(f.level is level for f in found)
    about = (
        "# What the checks find in NVIDIA's published recipes\n\n"
        "Made by `python -m tests.corpus.summary`; `tests/checks/test_recipes.py` holds it to the "
        f"checks. {len(rows) - 2} files: {total[Level.ERROR]} errors, {total[Level.WARNING]} "
        f"warnings, {total[Level.NOTE]} notes. PS004: fragments, placeholders and overlays; PS901: "
        "the placeholder tag `my-tag`. Why a sample of them is right: "
        "[recipes-sample.md](recipes-sample.md).\n"
    )
    SUMMARY.write_text(about + "\n" + "\n".join(rows) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
