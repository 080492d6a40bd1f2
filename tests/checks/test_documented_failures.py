"""Forms of a setting that failed for users, and similar ones that work."""

from __future__ import annotations

import pytest

from penstock.checks.finding import Level
from tests.checks.support import (
    REMOVE,
    TRTLLM_AGG,
    VLLM_AGG,
    check,
    levels,
    manifest,
    trtllm_disagg,
    vllm_agg_dgd,
)
from tests.checks.test_versions import with_image

WORKER = "dgd/spec/components/worker"


@pytest.mark.parametrize(
    ("operator", "opts_out", "expected"),
    [
        ("1.3.0", True, ["error"]),
        ("1.2.0", True, []),  # without the field
        ("1.3.0", False, []),  # not yet deprecated
        ("1.6.1", False, ["warning"]),
    ],
)
def test_min_available_without_grove_is_rejected(
    operator: str, opts_out: bool, expected: list[str]
) -> None:
    value = {"nvidia.com/enable-grove": "false"} if opts_out else {}
    changes = {f"{WORKER}/minAvailable": 1, "dgd/metadata/annotations": value}
    findings = check(vllm_agg_dgd(changes), only="PS760", operator=operator)
    assert [str(finding.level) for finding in findings] == expected


@pytest.mark.parametrize(
    ("operator", "expected"), [("1.0", Level.WARNING), ("1.1.1", Level.NOTE), ("1.6", Level.NOTE)]
)
def test_operators_before_1_1_do_not_shorten_names(operator: str, expected: Level) -> None:
    changes = {
        "dgd/metadata/name": "a" * 36,
        "dgd/metadata/annotations": {},
        f"{WORKER}/multinode": {"nodeCount": 2},
    }
    (finding,) = check(vllm_agg_dgd(changes), only="PS752", operator=operator)
    assert finding.level is expected


@pytest.mark.parametrize(
    ("gpus", "address_type", "expected"),
    [(8, "eth", ["warning"]), (1, "eth", ["note"]), (8, "ib_local", ["note"])],
)
def test_all_devices_fail_on_roce_nodes_with_many_gpus(
    gpus: int, address_type: str, expected: list[str]
) -> None:
    variables = {"UCX_NET_DEVICES": "all", "UCX_IB_ADDR_TYPE": address_type}
    changes = {f"decode/env/{name}": value for name, value in variables.items()}
    text = trtllm_disagg({**changes, "decode/gpus": gpus})
    assert levels(text, "PS436") == expected


@pytest.mark.parametrize(
    ("mode", "replicas", "expected"),
    [(None, 2, ["warning"]), ("round-robin", 2, ["note"]), (None, 1, ["note"])],
)
def test_events_of_several_workers_without_a_selected_router_are_a_mistake(
    mode: str | None, replicas: int, expected: list[str]
) -> None:
    frontend = "dgd/spec/components/frontend/podTemplate/spec/containers/main"
    events = {"publisher": "zmq", "endpoint": "tcp://*:5557", "enable_kv_cache_events": True}
    base = {
        **VLLM_AGG,
        "router": {"mode": "round-robin"},
        "worker": {
            **VLLM_AGG["worker"],
            "replicas": replicas,
            "config": {"kv-events-config": events},
        },
    }
    selected = ["--router-mode", mode] if mode else []
    changes = {f"{frontend}/args": ["-m", "dynamo.frontend", *selected]}
    assert levels(manifest(base, changes), "PS503") == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"worker/enable_chunked_prefill": False, "worker/max_seq_len": 32768}, ["warning"]),
        ({"worker/enable_chunked_prefill": REMOVE, "worker/max_seq_len": 32768}, ["warning"]),
        ({"worker/enable_chunked_prefill": False, "worker/max_seq_len": REMOVE}, ["warning"]),
        ({"worker/enable_chunked_prefill": True, "worker/max_seq_len": 32768}, []),
        (
            {
                "worker/enable_chunked_prefill": REMOVE,
                "worker/max_seq_len": REMOVE,
                "worker/max_num_tokens": REMOVE,
            },
            ["note"],
        ),
    ],
)
@pytest.mark.parametrize("tag", ["0.7.0", "1.6.1"])
def test_a_prompt_may_be_longer_than_a_step_without_chunks(
    changes: dict[str, object], expected: list[str], tag: str
) -> None:
    changes = {"worker/max_num_tokens": 8192, **changes}
    assert levels(with_image(TRTLLM_AGG, tag, changes), "PS121") == expected
