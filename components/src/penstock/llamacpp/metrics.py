"""The worker's own metrics: requests, prefix cache and KV transfers.

Names, units and types follow Prometheus; Dynamo adds its labels.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Info

from penstock.llamacpp.slots import Slots


class Metrics:
    def __init__(self, slots: Slots) -> None:
        self.registry = CollectorRegistry()
        self.total_blocks = 0
        self._prompt = self._counter("prompt_tokens", "Prompt tokens.")
        self._cached = self._counter(
            "cached_tokens", "Prompt tokens found in the prefix cache of a slot."
        )
        self.output = self._counter("generated_tokens", "Tokens generated.")
        self.bytes = self._counter("kv_transfer_bytes", "Bytes of KV read from prefill workers.")
        self.seconds = self._counter("kv_transfer_seconds", "Seconds spent on KV transfers.")
        self.lost = self._counter("kv_transfer_failures", "KV transfers that failed.")
        running = Gauge("llamacpp_requests_running", "Busy slots.", registry=self.registry)
        running.set_function(lambda: slots.running)
        waiting = Gauge(
            "llamacpp_requests_waiting", "Requests that wait for a slot.", registry=self.registry
        )
        waiting.set_function(lambda: slots.waiting)
        info = Info("llamacpp_config", "Configuration of the worker.", registry=self.registry)
        info.info({"block_size": str(slots.block_size), "n_parallel": str(slots.count)})
        self._prompt_total = self._cached_total = 0

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"llamacpp_{name}", text, registry=self.registry)

    @property
    def hit_rate(self) -> float | None:
        """Prefix-cache hit rate since the start; None before the first request."""
        return self._cached_total / self._prompt_total if self._prompt_total else None

    def count_prompt(self, tokens: int, cached: int) -> None:
        self._prompt.inc(tokens)
        self._cached.inc(cached)
        self._prompt_total += tokens
        self._cached_total += cached
