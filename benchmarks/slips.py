"""Slips in manifests, checked at image tags from 0.9.0 to one that does not exist yet.

    python benchmarks/slips.py

A release that does not change whether a slip is wrong must not change the number of errors.
slips/slips.yaml has the slips and slips/*.yaml the manifests, which have none. The first row is
docs/examples/dgd.yaml, the example of docs/check.md. Writes results/slips.json.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from penstock.checks.finding import Finding, Level
from penstock.checks.run import check_file
from penstock.serving.understand import Hints
from report import write_result

FOLDER = Path(__file__).with_name("slips")
EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "dgd.yaml"
TAGS = (
    *("0.9.0", "1.3.0", "1.4.2", "1.5.1", "1.5.0-kimi-k3-dev.1", "1.6.1", "1.6.2", "1.7.0"),
    "1.9.0",
)
# vLLM's worker of Dynamo before 1.0 had a flag for each role.
ROLES = {
    "PREFILL_MODE": ("--disaggregation-mode=prefill", "--is-prefill-worker"),
    "DECODE_MODE": ("--disaggregation-mode=decode", "--is-decode-worker"),
}


@dataclass(frozen=True, kw_only=True)
class Slip:
    id: str
    base: str
    changes: tuple[tuple[str, str], ...]
    level: Level
    # Why the number of findings depends on the release; empty: it must not.
    differs: str = ""

    def text(self, tag: str) -> str:
        """The manifest with the slip; ValueError if it lacks the text that the slip replaces."""
        text = manifest(self.base, tag)
        for right, wrong in self.changes:
            if right not in text:
                raise ValueError(f"{self.id}: {self.base}.yaml has no {right!r}")
            text = text.replace(right, wrong, 1)
        return text

    def rules(self, tag: str) -> list[str]:
        """The rules of the findings that only the manifest with the slip has."""
        right = Counter(_rules(findings(manifest(self.base, tag), tag, self.level)))
        wrong = Counter(_rules(findings(self.text(tag), tag, self.level)))
        return sorted((wrong - right).elements())


def slips() -> Iterator[Slip]:
    for one in yaml.safe_load((FOLDER / "slips.yaml").read_text("utf-8")):
        changes = tuple((part["line"], part["wrote"]) for part in (one, *one.get("also", ())))
        yield Slip(
            id=one["id"],
            base=one["base"],
            changes=changes,
            level=Level(one.get("level", "error")),
            differs=one.get("differs", ""),
        )


def manifest(base: str, tag: str) -> str:
    text = (FOLDER / f"{base}.yaml").read_text("utf-8")
    for name, (since_1, before) in ROLES.items():
        text = text.replace(name, before if tag.startswith("0.") else since_1)
    return text


def findings(text: str, tag: str, level: Level = Level.ERROR) -> list[Finding]:
    """The findings of one level for a manifest whose images have the tag."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "manifest.yaml")
        path.write_text(text.replace("TAG", tag), "utf-8")
        found = check_file(path, Hints())
    return [f for f in found if f.level is level and not f.suppressed]


def rows() -> dict[str, dict[str, list[str]]]:
    """The rules of the findings of each slip at each tag."""
    example = EXAMPLE.read_text("utf-8").replace(":1.6.1", ":TAG")
    found = {"docs/examples/dgd.yaml": {tag: _rules(findings(example, tag)) for tag in TAGS}}
    for slip in slips():
        found[slip.id] = {tag: slip.rules(tag) for tag in TAGS}
    return found


def _rules(found: list[Finding]) -> list[str]:
    return sorted(finding.rule for finding in found)


def main() -> None:
    found = rows()
    for name, by_tag in found.items():
        print(f"{name:36}", *(f"{len(by_tag[tag]):>3}" for tag in TAGS))
    reported: dict[str, Any] = {tag: sum(bool(row[tag]) for row in found.values()) for tag in TAGS}
    print(f"{'reported, of ' + str(len(found)):36}", *(f"{reported[tag]:>3}" for tag in TAGS))
    equal = Counter(len({len(rules) for rules in row.values()}) == 1 for row in found.values())
    result = {
        "tags": list(TAGS),
        "reported": reported,
        "slips": len(found),
        "same_number_of_findings_at_every_tag": equal[True],
        "rules": found,
    }
    write_result("slips", "python benchmarks/slips.py", result, show=False)


if __name__ == "__main__":
    main()
