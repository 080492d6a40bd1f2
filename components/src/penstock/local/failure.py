"""Why a graph did not start: which process, how it ended, its last words, its log."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import Problem, StartError
from penstock.local.decide import State
from penstock.local.process import last_lines
from penstock.local.replica import Replica


def ended_at_start(replica: Replica) -> StartError:
    code = replica.child.exit_code()
    how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return StartError(_problem(replica, f"ended at start with {how}"))


def did_not_get_ready(replicas: Iterable[Replica]) -> StartError:
    waiting = [r for r in replicas if r.state is not State.READY]
    return StartError(*(_problem(r, f"is not ready (pid {r.child.pid} runs)", 5) for r in waiting))


def _problem(replica: Replica, message: str, lines: int = 12) -> Problem:
    tail = "".join(f"\n    {line[:240]}" for line in last_lines(replica.child.log, lines))
    return Problem(
        place=replica.name,
        message=f"{message}. Its last lines:{tail}\n  Log: {replica.child.log}",
    )
