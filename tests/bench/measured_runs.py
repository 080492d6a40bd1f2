"""A run of `penstock bench` and its figures, for tests of reports."""

from penstock.bench.aiperf import Endpoint
from penstock.bench.measurement import Bench, Failures, Measurement, Percentiles, RequestLog
from penstock.bench.records import Records
from penstock.graph.slo import Slo
from penstock.simulate.window import Steadiness
from penstock.workload import find_workload

URL = "http://127.0.0.1:8000"
STEADY = Steadiness(window_s=60.0, request_s=2.0, offered_rate=5.0, served_rate=5.0)
LATENCIES = Percentiles(p50=20.04, p90=30.0, p99=40.0)
MEASURED = Measurement(
    failures=Failures(sent=500, reasons={}),
    unsent=0,
    counted=400,
    window_s=60.0,
    ttft_ms=LATENCIES,
    first_output_ms=LATENCIES,
    reasoning=0,
    reasoning_only=0,
    itl_ms=LATENCIES,
    chunk_gap_ms=LATENCIES,
    e2e_ms=LATENCIES,
    in_one_piece=0,
    user_rate=49.9,
    output_rate=1234.56,
    request_rate=5.0,
    goodput=None,
    prefix_hit_rate=0.25,
    input_ratio=1.01,
    steadiness=STEADY,
    late_p99_ms=1.0,
    cpu_share=0.5,
)
NOTHING = Records(
    start_ms=0.0, served={}, failed=(), unsent=0, late_ms=(), chunk_gaps_ms=(), requested_tokens=0
)
BENCH = Bench(
    endpoint=Endpoint(url=URL, model="a-model"),
    workload=find_workload("short-chat"),
    slo=Slo(),
    attain=0.95,
    seed=3,
    timeout_s=1.0,
    log=RequestLog(requests={}, records=NOTHING),
    measurement=MEASURED,
)
