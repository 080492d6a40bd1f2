from __future__ import annotations

from pathlib import Path

from penstock.local.start_errors import relevant_lines


def test_the_last_lines_are_shown_without_colours(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"\x1b[31mline {n}\x1b[0m\n" for n in range(30)))
    assert relevant_lines(log, 3) == ["line 27", "line 28", "line 29"]


def test_a_cause_far_above_comes_along(tmp_path: Path) -> None:
    log = tmp_path / "log"
    trace = "".join(f"  frame {n}\n" for n in range(40))
    log.write_text(f"thread panicked at src/x.rs:1:\nno such file: /no/trace\n{trace}the end\n")
    assert relevant_lines(log, 2) == [
        "thread panicked at src/x.rs:1:",
        "no such file: /no/trace",
        "…",
        "  frame 39",
        "the end",
    ]


def test_a_log_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert relevant_lines(tmp_path / "none", 3) == []
