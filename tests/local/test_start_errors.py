from __future__ import annotations

from pathlib import Path

from penstock.local.replica import relevant_lines


def test_the_last_lines_are_shown_without_color_codes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"\x1b[31mline {n}\x1b[0m\n" for n in range(30)))
    assert relevant_lines(log, 3) == ["line 27", "line 28", "line 29"]


def test_an_earlier_line_that_names_a_cause_is_included(tmp_path: Path) -> None:
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


def test_a_missing_log_has_no_lines(tmp_path: Path) -> None:
    assert relevant_lines(tmp_path / "none", 3) == []


def test_the_reason_why_a_frontend_serves_no_model_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    group = 'group=["M","' + "x" * 300 + '"] attempt=7'
    failed = f'WARN controller: Model materialization failed; scheduling retry {group} error="no X"'
    access = "INFO service_v2: http response sent status=200 latency_ms=0"
    log.write_text("\n".join([failed, *[access] * 500, "last"]))
    reason = "WARN controller: Model materialization failed: no X"
    assert relevant_lines(log, 2) == [reason, "last"]
