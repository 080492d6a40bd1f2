"""The derived configuration of each engine, which the configured values override."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import ChartError
from tests.support.charts import Chart, Values, graph_values

MODEL = {"id": "openai/gpt-oss-120b", "context_length": 131072, "revision": "abc"}
EAGLE = {"method": "eagle3", "draft_model": "x/draft"}


def graph(kind: str, config: Values | None = None, **sections: Any) -> Values:
    engine = {"kind": kind, "config": config or {}}
    return graph_values(kind, model=MODEL, engine=engine, **sections)


def test_trtllm_chunks_prompts_only_where_they_exceed_a_step(chart: Chart) -> None:
    def config(pool: str, config_of_prefill: dict[str, object]) -> object:
        values = graph("trtllm", prefill={"gpus": 2, "config": config_of_prefill})
        return chart.config(values, pool).get("enable_chunked_prefill")

    assert config("prefill", {"max_num_tokens": 131072}) is None
    assert config("prefill", {"enable_chunked_prefill": False}) is False
    assert config("decode", {}) is None


def test_aggregated_trtllm_has_no_kv_transfer(chart: Chart) -> None:
    config = chart.config(graph("trtllm", shape="agg"), "worker")
    assert "cache_transceiver_config" not in config
    assert config["kv_cache_config"] == {"enable_block_reuse": True}


@pytest.mark.parametrize(
    ("context", "block", "buffer"), [(131072, 32, 131072), (9000, 32, 9024), (9000, 64, 9024)]
)
def test_trtllm_buffer_is_the_context_in_whole_blocks(
    chart: Chart, context: int, block: int, buffer: int
) -> None:
    values = graph("trtllm", {"kv_cache_config": {"tokens_per_block": block}})
    values["model"]["context_length"] = context
    assert (
        chart.config(values, "decode")["cache_transceiver_config"]["max_tokens_in_buffer"] == buffer
    )


def test_trtllm_buffer_follows_a_sequence_length_the_user_set(chart: Chart) -> None:
    values = graph("trtllm", {"max_seq_len": 9000})
    assert chart.config(values, "prefill")["max_seq_len"] == 9000
    assert (
        chart.config(values, "prefill")["cache_transceiver_config"]["max_tokens_in_buffer"] == 9024
    )


def test_trtllm_buffer_with_an_incomplete_block_is_refused(chart: Chart) -> None:
    with pytest.raises(
        ChartError, match=r"kv_transfer\.buffer_tokens: is 9000, .* Fix: Set it to 9024\."
    ):
        chart.render(graph("trtllm", kv_transfer={"buffer_tokens": 9000}))


@pytest.mark.parametrize("method", ["eagle3", "mtp", "ngram"])
def test_trtllm_speculation_is_the_same_in_both_pools(chart: Chart, method: str) -> None:
    speculation = EAGLE if method == "eagle3" else {"method": method, "draft_tokens": 2}
    values = graph("trtllm", speculation=speculation)
    prefill, decode = (chart.config(values, n)["speculative_config"] for n in ("prefill", "decode"))
    assert prefill == decode
    assert (
        decode
        == {
            "eagle3": {
                "decoding_type": "Eagle3",
                "max_draft_len": 3,
                "speculative_model": "x/draft",
            },
            "mtp": {"decoding_type": "MTP", "max_draft_len": 2},
            "ngram": {"decoding_type": "NGram", "max_draft_len": 2},
        }[method]
    )


def test_vllm_on_several_nodes_passes_its_parallelism_as_arguments(chart: Chart) -> None:
    values = graph("vllm", decode={"gpus": 8, "nodes": 2})
    args = chart.args(values, "decode")
    assert args[args.index("--tensor-parallel-size") + 1] == "16"
    assert "--tensor-parallel-size" not in chart.args(values, "prefill")
    assert chart.component(values, "decode")["multinode"] == {"nodeCount": 2}


def test_sglang_attention_data_parallelism_needs_no_extra_gpus(chart: Chart) -> None:
    configured = {"dp-size": 8, "enable-dp-attention": True}
    values = graph("sglang", configured, shape="agg", worker={"gpus": 8})
    assert chart.config(values, "worker")["tp-size"] == 8
    values = graph("sglang", {"dp-size": 4}, shape="agg", worker={"gpus": 8})
    assert chart.config(values, "worker")["tp-size"] == 2


def test_sglang_over_mooncake_without_rdma(chart: Chart) -> None:
    values = graph("sglang", kv_transfer={"backend": "mooncake", "transport": "tcp"})
    assert chart.config(values, "decode")["disaggregation-transfer-backend"] == "mooncake_tcp"


@pytest.mark.parametrize(
    ("shape", "pool", "worker_type"),
    [
        ("disagg", "prefill", "prefill"),
        ("disagg", "decode", "decode"),
        ("agg", "worker", "aggregated"),
    ],
)
def test_mocker(chart: Chart, shape: str, pool: str, worker_type: str) -> None:
    values = graph_values(shape=shape, model={"id": "a/b", "context_length": 8192})
    assert chart.config(values, pool) == {
        "engine": {"worker_type": worker_type, "max_model_len": 8192},
        "dynamo": {"enable_local_indexer": True},
    }


@pytest.mark.parametrize("kind", ["trtllm", "vllm", "sglang"])
def test_parallelism_that_does_not_divide_the_gpus_is_refused(chart: Chart, kind: str) -> None:
    key = {
        "trtllm": "pipeline_parallel_size",
        "vllm": "pipeline-parallel-size",
        "sglang": "pp-size",
    }
    with pytest.raises(ChartError, match=r"decode\.gpus: a replica has 4 GPUs, .* divisible by 3"):
        chart.render(graph(kind, decode={"gpus": 4, "config": {key.get(kind, "pp-size"): 3}}))


@pytest.mark.parametrize(
    ("kind", "configured"),
    [
        ("trtllm", {"tensor_parallel_size": 2}),
        ("trtllm", {"disable_overlap_scheduler": False}),
        ("trtllm", {"max_seq_len": None}),
        ("trtllm", {"revision": None}),
        ("vllm", {"enable-prefix-caching": False}),
        ("vllm", {"max-model-len": 5}),
        ("sglang", {"tp-size": 2}),
        ("sglang", {"host": "127.0.0.1"}),
        ("mocker", {"engine": {"max_model_len": 5}}),
    ],
)
def test_configured_values_override_derived_ones(
    chart: Chart, kind: str, configured: Values
) -> None:
    values = graph(kind, {**configured} if kind != "mocker" else configured)
    (key,) = configured
    got = chart.config(values, "prefill")[key]
    assert got == configured[key] or got["max_model_len"] == 5


def test_a_pools_config_wins_over_the_engines_and_merges_deep(chart: Chart) -> None:
    values = graph(
        "trtllm",
        {"kv_cache_config": {"dtype": "fp8", "enable_partial_reuse": True}, "x": 1},
        prefill={"config": {"kv_cache_config": {"enable_partial_reuse": False}, "x": 0}},
    )
    assert chart.config(values, "prefill")["kv_cache_config"] == {
        "dtype": "fp8",
        "enable_partial_reuse": False,
        "enable_block_reuse": True,
    }
    assert chart.config(values, "prefill")["x"] == 0
    assert chart.config(values, "decode")["kv_cache_config"]["enable_partial_reuse"] is True


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_null_removes_a_key_from_a_file_of_flags(chart: Chart, kind: str) -> None:
    values = graph(kind, {"max_num_seqs": 64}, decode={"config": {"max-num-seqs": None, "x": 1}})
    assert "max-num-seqs" in chart.config(values, "prefill")
    assert {"max-num-seqs", "x"} & set(chart.config(values, "decode")) == {"x"}


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_underscores_become_dashes(chart: Chart, kind: str) -> None:
    values = graph(kind, {"some_flag": False, "a_map": {"inner_key": 1}})
    config = chart.config(values, "decode")
    assert config["some-flag"] is False
    assert config["a-map"] == {"inner_key": 1}


def test_both_spellings_of_one_key_are_refused(chart: Chart) -> None:
    with pytest.raises(ChartError, match=r"decode\.config: max-model-len is set twice"):
        chart.render(graph("vllm", decode={"config": {"max-model-len": 1, "max_model_len": 2}}))


def test_sglang_aliases_are_resolved(chart: Chart) -> None:
    config = chart.config(graph("sglang", {"tensor_parallel_size": 4}), "decode")
    assert config["tp-size"] == 4
    assert "tensor-parallel-size" not in config


def test_llamacpp_gets_the_context_and_its_role(chart: Chart) -> None:
    engine = {"kind": "llamacpp", "image": "own/image:1", "config": {"n_parallel": 8}}
    values = graph_values(
        "llamacpp", model=MODEL, engine=engine, prefill={"config": {"n_batch": 64}}
    )
    assert chart.config(values, "prefill") == {"n_ctx_seq": 131072, "n_parallel": 8, "n_batch": 64}
    assert chart.config(values, "decode") == {"n_ctx_seq": 131072, "n_parallel": 8}
    for pool in ("prefill", "decode"):
        args = chart.args(values, pool)
        assert args[args.index("--disaggregation-mode") + 1] == pool
        assert args[args.index("--model") + 1] == "openai/gpt-oss-120b"
        assert chart.main(values, pool)["image"] == "own/image:1"


def test_an_aggregated_llamacpp_worker_has_no_role(chart: Chart) -> None:
    engine = {"kind": "llamacpp", "image": "own/image:1"}
    values = graph_values("llamacpp", shape="agg", engine=engine)
    assert "prefill" not in chart.args(values, "worker")
    assert chart.main(values, "worker")["command"][-1] == "penstock.llamacpp"
