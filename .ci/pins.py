"""Write the exact version of every installed package into pyproject.toml's constraints.

A lock file would do the same and record download addresses too; `make pins` runs this.
"""

from __future__ import annotations

import re
from importlib.metadata import distributions
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
BLOCK = re.compile(r"constraint-dependencies = \[.*?\]", re.DOTALL)
OWN = {"penstock"}


def main() -> None:
    names = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in distributions()}
    lines = [f'    "{name}=={names[name]}",' for name in sorted(names) if name not in OWN]
    block = "\n".join(["constraint-dependencies = [", *lines, "]"])
    text = PROJECT.read_text()
    PROJECT.write_text(BLOCK.sub(block, text, count=1))
    print(f"{len(lines)} versions pinned")


if __name__ == "__main__":
    main()
