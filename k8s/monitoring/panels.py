"""The building blocks of dashboards: rows of panels with PromQL queries, and common expressions.

operators.py and pools.py define the panels; dashboards.py writes them as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass

GRAPH = 'namespace=~"$namespace", app_kubernetes_io_instance=~"$graph"'
POOL = f'{GRAPH}, app_kubernetes_io_component=~"$pool"'
NAME = "{{namespace}}/{{app_kubernetes_io_instance}}"


@dataclass(frozen=True)
class Query:
    expression: str
    legend: str = NAME

    def labeled(self, name: str) -> Query:
        """The same query with ``name`` appended to its legend."""
        return Query(self.expression, f"{NAME} {name}")


@dataclass(frozen=True)
class Panel:
    """One time series panel."""

    title: str
    # By Grafana's name.
    unit: str
    # How to interpret the panel.
    text: str
    queries: tuple[Query, ...]
    width: int = 8


@dataclass(frozen=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def by_graph(function: str, *labels: str) -> str:
    return f"{function} by ({', '.join(('namespace', 'app_kubernetes_io_instance', *labels))})"


def quantiles(metric: str, matchers: str, *labels: str) -> tuple[Query, ...]:
    """The 50th, 95th and 99th percentile of a histogram."""
    legend = " ".join((NAME, *(f"{{{{{label}}}}}" for label in labels)))
    buckets = f"rate({metric}_bucket{{{matchers}}}[$__rate_interval])"
    return tuple(
        Query(
            f"histogram_quantile({q / 100}, {by_graph('sum', 'le', *labels)} ({buckets}))",
            f"{legend} p{q}",
        )
        for q in (50, 95, 99)
    )


def rate(metric: str, matchers: str, *labels: str) -> Query:
    legend = " ".join((NAME, *(f"{{{{{label}}}}}" for label in labels)))
    return Query(
        f"{by_graph('sum', *labels)} (rate({metric}{{{matchers}}}[$__rate_interval]))", legend
    )


def ratio(numerator: str, denominator: str, matchers: str, *labels: str) -> Query:
    """The quotient of two rates."""
    query = rate(numerator, matchers, *labels)
    return Query(
        f"{query.expression} / {rate(denominator, matchers, *labels).expression}", query.legend
    )


def total(metric: str, matchers: str, *labels: str, function: str = "sum") -> Query:
    legend = " ".join((NAME, *(f"{{{{{label}}}}}" for label in labels)))
    return Query(f"{by_graph(function, *labels)} ({metric}{{{matchers}}})", legend)
