"""Charts of a run over its time: latencies, requests, tokens and errors, each on its own axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

from penstock.bench.model import Bench, RequestLog
from penstock.reports.charts import over_time, percentile_curves, slo_limit
from penstock.reports.model import Band, Chart, Mark, Series
from penstock.reports.samples import bin_width, binned
from penstock.simulate.window import ServedRequest, tokens_between
from penstock.text.numbers import limit_text

SHARES = (0.5, 0.99)


def time_charts(bench: Bench) -> list[Chart]:
    """Empty without requests."""
    log = bench.log
    if log is None or not (log.records.served or log.records.failed):
        return []
    return list(_TimeCharts(bench, log).charts())


@dataclass(frozen=True)
class _TimeCharts:
    """Times are seconds since the start of the run, in bins of equal width."""

    bench: Bench
    log: RequestLog

    @cached_property
    def served(self) -> Sequence[ServedRequest]:
        return list(self.log.records.served.values())

    @cached_property
    def end_s(self) -> float:
        failed = (failed.sent_ms / 1000 for failed in self.log.records.failed)
        return max([*failed, *(request.ended_ms / 1000 for request in self.served)])

    @cached_property
    def width(self) -> float:
        return bin_width(self.end_s)

    @cached_property
    def bins(self) -> int:
        return max(1, ceil(self.end_s / self.width))

    @property
    def _frame(self) -> dict[str, Any]:
        """The time range of all charts, and the measured window, which they shade."""
        begin, end = (ms / 1000 for ms in self.log.window)
        window = [Band(begin=begin, end=end)] if end > begin else []
        return {"bands": window, "end_s": self.width * self.bins}

    def charts(self) -> Iterator[Chart]:
        slo = self.bench.slo
        ttft: list[float | None] = [request.ttft_ms for request in self.served]
        yield from self._latency("TTFT", ttft, slo.ttft_ms)
        yield from self._latency("ITL", [request.itl_ms for request in self.served], slo.itl_ms)
        sent = [request.arrived_ms / 1000 for request in self.served]
        sent += [failed.sent_ms / 1000 for failed in self.log.records.failed]
        completed = [request.ended_ms / 1000 for request in self.served]
        rates = [self._rate("sent", sent), self._rate("completed", completed)]
        yield over_time("Requests", "requests/s", rates, **self._frame)
        yield over_time("Output tokens", "tokens/s", [self._tokens()], **self._frame)
        if self.log.records.failed:
            yield self._errors()

    def _latency(
        self, name: str, values: Sequence[float | None], limit_ms: float | None
    ) -> Iterator[Chart]:
        """By the time at which a request was sent. Nothing if no request has the latency."""
        known = [
            (request.arrived_ms / 1000, value)
            for request, value in zip(self.served, values, strict=True)
            if value is not None
        ]
        if known:
            times, latencies = zip(*known, strict=True)
            curves = percentile_curves(times, latencies, SHARES, self.width, self.bins)
            yield over_time(
                f"{name} by the time sent",
                "ms",
                curves,
                name=name,
                limits=slo_limit(name, limit_ms),
                **self._frame,
            )

    def _rate(self, name: str, times: Sequence[float]) -> Series:
        counts = binned(times, times, self.width, self.bins)
        return self._steps(name, [len(count) / self.width for count in counts])

    def _steps(self, name: str, values: Sequence[float]) -> Series:
        begins = [number * self.width for number in range(self.bins)]
        return Series(name=name, x=begins, y=values, mark=Mark.STEPS)

    def _tokens(self) -> Series:
        begins = (1000 * self.width * number for number in range(self.bins))
        return self._steps("output tokens", [self._tokens_from(begin) for begin in begins])

    def _tokens_from(self, begin_ms: float) -> float:
        """Output tokens/s of the bin that begins then."""
        end_ms = begin_ms + self.width * 1000
        counts = (
            tokens_between(request, begin_ms, end_ms)
            for request in self.served
            if request.first_ms <= end_ms and request.ended_ms >= begin_ms
        )
        return sum(counts) / self.width

    def _errors(self) -> Chart:
        by_reason: dict[str, list[float]] = {}
        for failed in self.log.records.failed:
            by_reason.setdefault(failed.reason, []).append(failed.sent_ms / 1000)
        middles = [(number + 0.5) * self.width for number in range(self.bins)]
        bars = [
            Series(
                name=reason,
                x=middles,
                y=[len(count) for count in binned(times, times, self.width, self.bins)],
                mark=Mark.STACK,
            )
            for reason, times in by_reason.items()
        ]
        title = f"Failed requests by the time sent (per {limit_text(self.width)} s)"
        return over_time(title, "requests", bars, **self._frame)
