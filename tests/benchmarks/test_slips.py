"""A slip is an error at every release, unless the release changes whether it is wrong."""

from __future__ import annotations

import pytest

from slips import FOLDER, Slip, findings, manifest, slips

# The others are in results/slips.json.
IN_CI = ("0.9.0", "1.3.0", "1.6.1", "1.7.0", "1.9.0")
BASES = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "slips")


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("tag", IN_CI)
def test_the_manifest_without_a_slip_is_right_at_every_release(base: str, tag: str) -> None:
    assert [(f.rule, f.message) for f in findings(manifest(base, tag), tag)] == []


@pytest.mark.parametrize("slip", slips(), ids=lambda slip: slip.id)
def test_a_slip_is_reported_at_every_release(slip: Slip) -> None:
    counts = {tag: len(slip.rules(tag)) for tag in IN_CI}
    if slip.differs:
        assert max(counts.values()) > 0
    else:
        assert 0 not in counts.values(), counts
        assert len(set(counts.values())) == 1, counts
