"""Errors for a graph that did not start: the process, its exit code, its last log lines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from penstock.errors import Problem, StartError
from penstock.local.process import last_lines
from penstock.local.reconcile import ReplicaState
from penstock.local.replica import Replica

# Rust prints the reason of a panic far above the Python traceback that ends the log.
_CAUSE = re.compile(r"panicked at|Caused by|^\w*(Error|Exception): |Model materialization failed")
# The frontend cannot serve a model, and retries; the reason is at the end of a long line.
_NOT_SERVED = re.compile(r'(Model materialization failed).*\berror="(.*)"$')
_ACCESS = "http response sent status=200"  # of the readiness probes, several per second
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
LOOK_BACK = 2000
WIDTH = 240


def exited_during_startup(replica: Replica) -> StartError:
    code = replica.child.exit_code()
    reason = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return StartError(_problem(replica, f"exited during startup ({reason})", last=12))


def not_ready_in_time(replicas: Iterable[Replica], timeout_s: float) -> StartError:
    """Names at most four processes: more do not fit a screen, and wait for the same thing."""
    waiting = [r for r in replicas if r.state is not ReplicaState.READY]
    message = f"is not ready after {timeout_s:.0f} s, the limit of --start-timeout-s"
    problems = [
        _problem(r, f"{message} (pid {r.child.pid} is running)", last=5) for r in waiting[:4]
    ]
    more = [f"{len(waiting) - 4} more processes are not ready"] if len(waiting) > 4 else []
    return StartError(*problems, *more)


def _problem(replica: Replica, message: str, last: int) -> Problem:
    tail = "".join(f"\n    {line}" for line in relevant_lines(replica.child.log, last))
    return Problem(
        place=replica.name,
        message=f"{message}. Last log lines:{tail}\n  Log: {replica.child.log}",
    )


def relevant_lines(log: Path, last: int) -> list[str]:
    """The ``last`` lines of the log, preceded by up to four earlier lines that name a cause."""
    plain = [_COLOR.sub("", line) for line in last_lines(log, LOOK_BACK) if _ACCESS not in line]
    lines = [_NOT_SERVED.sub(r"\1: \2", line)[:WIDTH] for line in plain]
    above, tail = lines[:-last], lines[-last:]
    causes: list[str] = []
    for index, line in enumerate(above):
        if _CAUSE.search(line):
            causes += above[index : index + 2]  # a panic names the place, the next line the reason
    unique = list(dict.fromkeys(causes))[-4:]
    return [*unique, *(["…"] if unique else []), *tail]
