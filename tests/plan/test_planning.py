"""The progress of `penstock plan`."""

from __future__ import annotations

from penstock.plan.planning import counted


def test_progress_adds_up_the_replays_of_all_searches() -> None:
    steps: list[tuple[str, int, int]] = []
    count = counted(lambda *step: steps.append(step), budget=80, candidates=12)
    count("TP2: 90% within the SLO", 1)
    count("TP4: 99% within the SLO", 3)
    assert steps == [
        ("replaying the best of 12 candidates", 0, 80),
        ("1 of at most 80 replays: TP2: 90% within the SLO", 1, 80),
        ("4 of at most 80 replays: TP4: 99% within the SLO", 4, 80),
    ]
