"""Run the probes one after the other."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from penstock.verify.expected import Expectations
from penstock.verify.probes import PROBES
from penstock.verify.result import ProbeResult, Verdict, cannot_tell, failed
from penstock.verify.target import NoResponseError, NotReportedError, ProbeTarget, UnreachableError


@dataclass(frozen=True, kw_only=True)
class ProbeRun:
    """One probe and its result."""

    name: str
    result: ProbeResult
    seconds: float
    required: bool
    """The graph lists it in `verify.must_pass`: "cannot tell" is a failure."""

    @property
    def ok(self) -> bool:
        verdict = self.result.verdict
        return verdict is Verdict.PASS or (verdict is Verdict.CANNOT_TELL and not self.required)


def run_probes(target: ProbeTarget, only: Collection[str] = ()) -> Iterator[ProbeRun]:
    """Yield one result per probe as each ends; ``only``: names of probes, empty for all."""
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
        except NotReportedError as error:
            result = cannot_tell(str(error))
        except NoResponseError as error:
            result = failed(str(error))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            # Everything read here is JSON from another program.
            result = failed(f"a response is not that of a Dynamo frontend: {error!r}")
        yield ProbeRun(
            name=name,
            result=_with_hint(result, target.expected),
            seconds=time.monotonic() - started,
            required=name in must_pass,
        )


def _with_hint(result: ProbeResult, expected: Expectations | None) -> ProbeResult:
    """With the likely cause of a failure: pools that the graph declares without replicas."""
    empty = expected.empty_pools if expected is not None else ()
    if not empty or result.verdict is not Verdict.FAIL:
        return result
    pools, sets = ", ".join(empty), " ".join(f"{pool}=1" for pool in empty)
    hint = f"The graph declares 0 replicas of {pools}. Start one: `penstock scale GRAPH {sets}`."
    return replace(result, hint=hint)
