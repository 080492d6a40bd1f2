"""Prometheus metrics of all components."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Metrics:
    samples: tuple[Sample, ...]

    def find(self, name: str, **labels: str) -> Iterator[Sample]:
        for sample in self.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                yield sample

    def gauge(self, name: str, **labels: str) -> float | None:
        """The value if all components that export it agree, else None."""
        values = {sample.value for sample in self.find(name, **labels)}
        return values.pop() if len(values) == 1 else None

    def total(self, names: Iterable[str], **labels: str) -> float | None:
        """The sum over all series of all ``names``; None when no component has any of them."""
        values = [s.value for name in names for s in self.find(name, **labels)]
        return sum(values) if values else None


def parse(text: str) -> list[Sample]:
    """The samples of a scrape; ValueError when it is not in the Prometheus text format."""
    # Importing it takes 0.1 s, also of commands that read no metrics.
    from prometheus_client.parser import text_string_to_metric_families

    return [
        Sample(sample.name, dict(sample.labels), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
