"""Run the probes one after the other and judge the whole."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from penstock.verify.probes import PROBES
from penstock.verify.result import ProbeResult, Verdict, failed
from penstock.verify.target import NoResponseError, ProbeTarget, UnreachableError


@dataclass(frozen=True, kw_only=True)
class ProbeRun:
    """``required``: the graph lists the probe, so that "cannot tell" counts as a failure."""

    name: str
    result: ProbeResult
    seconds: float
    required: bool

    @property
    def ok(self) -> bool:
        verdict = self.result.verdict
        return verdict is Verdict.PASS or (verdict is Verdict.CANNOT_TELL and not self.required)


def run_probes(target: ProbeTarget, only: Collection[str] = ()) -> Iterator[ProbeRun]:
    """One result a probe, as each ends; ``only`` empty: all of them."""
    must_pass = target.expected.must_pass if target.expected is not None else frozenset()
    unreachable: UnreachableError | None = None
    for name, probe in PROBES.items():
        if only and name not in only:
            continue
        started = time.monotonic()
        try:
            if unreachable is not None:
                raise unreachable
            result = probe(target)
        except UnreachableError as error:
            unreachable = error if not target.has_responded else None
            result = failed(str(error))
        except NoResponseError as error:
            result = failed(str(error))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            # Every figure comes from JSON that somebody else wrote.
            result = failed(f"an answer is not what a Dynamo frontend sends: {error!r}")
        yield ProbeRun(
            name=name,
            result=result,
            seconds=time.monotonic() - started,
            required=name in must_pass,
        )
