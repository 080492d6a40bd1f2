"""The engines of a replay from a rendered graph; the environment is not needed."""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.errors import SimulationError
from penstock.manifests.source import graph_source, open_source
from penstock.serving.understand import Hints
from penstock.simulate.acceptance import Acceptance
from penstock.simulate.model import InputLimit, Replayable
from penstock.simulate.replayable import replayable

pytestmark = pytest.mark.slow  # renders and checks production graphs

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"


@cache
def of(name: str, *sets: str, acceptance: Acceptance | None = None) -> Replayable:
    return replayable(open_source(GRAPHS / f"{name}.yaml", sets), Hints(), acceptance)


def engine(deployment: Replayable, pool: int = 0) -> dict[str, Any]:
    return dict(deployment.pools[pool].engine["engine"])


def timing(deployment: Replayable, pool: int = 0) -> dict[str, Any]:
    return dict(engine(deployment, pool)["timing_model"]["config"])


def test_a_disaggregated_graph() -> None:
    deployment = of("gpt-oss-120b-b200-disagg")
    assert deployment.shape == "4×1 prefill + 1×4 decode"
    assert (deployment.gpus, deployment.workers, deployment.is_random) == (8, 5, True)
    prefill, decode = engine(deployment), engine(deployment, 1)
    assert (prefill["worker_type"], decode["worker_type"]) == ("prefill", "decode")
    assert (prefill["max_num_seqs"], prefill["max_num_batched_tokens"]) == (64, 16384)
    assert (decode["max_num_seqs"], decode["max_num_batched_tokens"]) == (1280, 20000)
    assert prefill["kv_transfer_bandwidth"] == 100  # 800 Gb/s of the one GPU
    assert prefill["kv_transfer_bytes_per_token"] == 36 * 1024
    assert timing(deployment, 1) == {
        "model": "openai/gpt-oss-120b",
        "system": "b200_sxm",
        "backend": "trtllm",
        "worker_type": "decode",
        "tp": 4,
        "attention_dp": 1,
        "kvcache_quant_mode": "fp8",
        "moe_ep_size": 1,
        "moe_tp_size": 4,
        "moe_quant_mode": "w4a8_mxfp4_mxfp8",
    }
    assert deployment.router.settings is not None
    assert deployment.router.settings["overlap_score_credit"] == 1.0
    assert deployment.unscaled == ()


def test_attention_dp_is_ranks_with_caches_of_their_own() -> None:
    deployment = of("gpt-oss-120b-b200-throughput")
    assert deployment.shape == "3×2 worker"
    assert deployment.pools[0].engine["dp_size"] == 2
    assert (timing(deployment)["tp"], timing(deployment)["attention_dp"]) == (1, 2)
    assert (timing(deployment)["moe_tp_size"], timing(deployment)["moe_ep_size"]) == (1, 2)


def test_settings_of_the_graph_are_replayed() -> None:
    deployment = of(
        "gpt-oss-120b-b200-disagg",
        "prefill.config.max_batch_size=32",
        "engine.config.kv_cache_config.enable_block_reuse=false",
        "prefill.replicas=2",
        "hardware.fabric=none",
        "slo.ttft_ms=300",
        "hardware.gpu_hour_price=4",
        "router.mode=round-robin",
    )
    assert engine(deployment)["max_num_seqs"] == 32
    assert engine(deployment)["enable_prefix_caching"] is False
    assert deployment.pools[0].replicas == 2
    assert engine(deployment)["kv_transfer_bandwidth"] == 1.0
    assert deployment.assumed == ("KV transfer at 1 GB/s (TCP)",)
    assert (deployment.slo.ttft_ms, deployment.gpu_hour_price) == (300, 4)
    assert deployment.router.settings is None
    assert not deployment.is_random


def test_hopper_has_no_8_bit_activations() -> None:
    assert "moe_quant_mode" not in timing(of("gpt-oss-120b-h200-disagg"))


@pytest.mark.parametrize("name", ["gpt-oss-120b-b200-vllm", "gpt-oss-120b-h200-sglang"])
def test_other_engines(name: str) -> None:
    deployment = of(name)
    assert timing(deployment)["backend"] == name.rsplit("-", 1)[1]
    assert engine(deployment)["num_gpu_blocks"] > 1000


def test_speculation_counts_only_with_a_stated_acceptance() -> None:
    name = "gpt-oss-120b-b200-latency-eagle3"
    silent = of(name)
    assert any("--acceptance" in what for what in silent.not_simulated)
    assert "nextn" not in timing(silent)
    stated = of(name, acceptance=Acceptance((0.8, 0.6, 0.4)))
    assert timing(stated)["nextn"] == 3
    assert engine(stated)["aic_nextn_accept_rates"] == "0.8,0.6,0.4"
    assert timing(stated)["speculation"]["params"] == {"num_speculative_tokens": 3}
    assert any("a draft model of 1 layer" in what for what in stated.assumed)
    assert "the CPU time of drafting and verifying tokens (worker)" in stated.not_simulated


def test_a_step_has_as_many_draft_tokens_as_both_graph_and_rates() -> None:
    name = "gpt-oss-120b-b200-latency-eagle3"
    more = of(name, acceptance=Acceptance((0.8, 0.6, 0.4, 0.2)))
    assert engine(more)["aic_nextn_accept_rates"] == "0.8,0.6,0.4"
    fewer = of(name, acceptance=Acceptance((0.8, 0.6)))
    assert timing(fewer)["nextn"] == 2
    note = "3 draft tokens: using 2 draft tokens, as --acceptance has no more rates (worker)"
    assert note in fewer.not_simulated


def test_a_live_mocker_has_no_times_of_the_draft_model() -> None:
    acceptance = Acceptance((0.8, 0.6, 0.4), prices_draft=False)
    deployment = of("gpt-oss-120b-b200-latency-eagle3", acceptance=acceptance)
    assert "speculation" not in timing(deployment)
    assert "each draft token takes as long as one layer of the model" in deployment.assumed


@pytest.mark.parametrize(
    ("name", "sets", "words"),
    [
        ("quickstart-simulated", (), "runs the mocker"),
        ("gpt-oss-120b-b200-disagg", ("decode.replicas=0",), "no decode worker"),
        ("gpt-oss-120b-b200-disagg", ("prefill.replicas=0",), "no prefill worker"),
        ("gpt-oss-120b-b200-throughput", ("worker.replicas=0",), "no pool has a worker"),
        ("gpt-oss-120b-b200-disagg", ("model.id=acme/unknown-7b",), "shape is not known"),
    ],
)
def test_what_cannot_be_replayed_is_refused(name: str, sets: tuple[str, ...], words: str) -> None:
    with pytest.raises(SimulationError, match=words) as caught:
        of(name, *sets)
    assert caught.value.problems[0].fix


@pytest.mark.parametrize("id_", ["openai/gpt-oss-120b", "acme/gpt-oss-120b"])
def test_a_model_on_a_volume_of_the_cluster_is_predicted_by_its_id(id_: str) -> None:
    deployment = of("gpt-oss-120b-b200-disagg", "model.path=/models/weights", f"model.id={id_}")
    assert timing(deployment)["model"] == "openai/gpt-oss-120b"


def test_a_manifest_has_its_model_by_the_name_of_its_path_and_its_frontend_cpu(
    tmp_path: Path,
) -> None:
    sets = ("model.path=/models/gpt-oss-120b", "frontend.resources.cpu=1500m")
    text = open_source(GRAPHS / "gpt-oss-120b-b200-disagg.yaml", sets).text
    path = tmp_path / "manifest.yaml"
    path.write_text(text)
    deployment = replayable(open_source(path), Hints(gpu="b200"))
    assert timing(deployment)["model"] == "openai/gpt-oss-120b"
    assert deployment.frontends
    assert deployment.frontends.cores == 1.5


def test_a_model_without_a_known_id_is_predicted_by_the_given_folder(tmp_path: Path) -> None:
    packaged = files("penstock.models.data").joinpath("gpt-oss-120b.json").read_text("utf-8")
    (tmp_path / "config.json").write_text(packaged)
    sets = ("model.path=/models/tuned", "model.id=acme/tuned")
    source = open_source(GRAPHS / "gpt-oss-120b-b200-disagg.yaml", sets)
    assert timing(replayable(source, Hints(model_folder=tmp_path)))["model"] == str(tmp_path)
    with pytest.raises(SimulationError, match=r"no /models/tuned/config\.json.*Add --model DIR"):
        replayable(source, Hints())


def test_two_pools_of_a_role_are_one_to_replay(tmp_path: Path) -> None:
    """NVIDIA's manifests may have several; ours do not."""
    text = open_source(GRAPHS / "gpt-oss-120b-b200-disagg.yaml").text
    documents = list(yaml.safe_load_all(text))
    (graph,) = (d for d in documents if d["kind"] == "DynamoGraphDeployment")
    components = graph["spec"]["components"]
    second = next(c for c in components if c["name"] == "prefill") | {"name": "long"}
    graph["spec"]["components"] = [*components, second]
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    deployment = replayable(open_source(path), Hints())
    assert [pool.names for pool in deployment.pools] == [("prefill", "long"), ("decode",)]
    assert deployment.pools[0].replicas == 8


def test_a_request_limit_is_not_simulated() -> None:
    name = "gpt-oss-120b-b200-disagg"
    deployment = of(name, "decode.request_limit=4", "decode.queue_limit=2")
    ignored = "request_limit 4 and queue_limit: no request is refused (decode)"
    assert ignored in deployment.not_simulated
    assert not any("request_limit" in what for what in of(name).not_simulated)


MULTI = (
    "{kv_connector: MultiConnector, kv_role: kv_both, kv_connector_extra_config: {connectors: "
    "[{kv_connector: NixlConnector, kv_role: kv_both}, "
    "{kv_connector: LMCacheConnectorV1, kv_role: kv_both}]}}"
)


@pytest.mark.parametrize(
    ("kind", "config", "notes"),
    [
        ("vllm", "{}", ()),  # only NIXL
        (
            "vllm",
            f"{{kv-transfer-config: {MULTI}}}",
            ("KV offload with LMCacheConnectorV1 (decode)",),
        ),
        ("vllm", "{kv-offloading-size: 8}", ("KV offload (decode)",)),
        (
            "vllm",
            f"{{kv-offloading-size: 8, kv-transfer-config: {MULTI}}}",
            ("KV offload with LMCacheConnectorV1 (decode)",),
        ),
        ("sglang", "{enable-hierarchical-cache: true}", ("KV offload (decode)",)),
        ("trtllm", "{kv_cache_config: {host_cache_size: 1000}}", ("KV offload (decode)",)),
    ],
)
def test_kv_offload_is_not_simulated(kind: str, config: str, notes: tuple[str, ...]) -> None:
    text = (
        "model: {id: openai/gpt-oss-120b, context_length: 8192}\nhardware: {gpu: h100}\n"
        f"engine: {{kind: {kind}}}\nprefill: {{gpus: 2}}\ndecode: {{gpus: 2, config: {config}}}\n"
    )
    deployment = replayable(graph_source(text, "g.yaml"), Hints())
    assert tuple(n for n in deployment.not_simulated if "offload" in n) == notes


def test_what_no_pool_simulates_is_one_note() -> None:
    deployment = of("gpt-oss-120b-b200-disagg", "engine.config.kv_cache_config.host_cache_size=9")
    notes = [note for note in deployment.not_simulated if "offload" in note]
    assert notes == ["KV offload (prefill, decode)"]


def test_without_chunked_prefill_a_prompt_has_a_limit() -> None:
    assert of("gpt-oss-120b-b200-disagg").input_limit is None
    deployment = of("gpt-oss-120b-b200-disagg", "engine.config.enable_chunked_prefill=false")
    assert deployment.input_limit == InputLimit(pool="prefill", tokens=16384)


def test_replay_cuts_the_prompts_of_an_sglang_that_does_not() -> None:
    deployment = of("gpt-oss-120b-h200-sglang", "engine.config.chunked-prefill-size=-1")
    assert deployment.input_limit is None
    assert any("using chunked prefill instead" in what for what in deployment.not_simulated)
    assert engine(deployment)["enable_chunked_prefill"] is True


KEDA = ("owner=keda", "min=2", "max=6", "signal=prompt_tokens", "target=16000")
PROMETHEUS = "cluster.monitoring.pod_monitors=true"
PLANNER = ("planner.max_gpus=8", "planner.config.ttft_ms=500", "planner.config.itl_ms=20")


@pytest.mark.parametrize(
    ("autoscaling", "sets", "replicas", "text"),
    [
        (KEDA, (PROMETHEUS,), 2, "2 replicas; on a cluster a ScaledObject (2 to 6) scales it"),
        (
            KEDA,
            (PROMETHEUS, "platform=plain"),
            2,
            "2 replicas; on a cluster a ScaledObject (2 to 6) scales it",
        ),
        (("owner=external",), (), 1, "1 replica; on a cluster an autoscaler scales it"),
        (("owner=external",), ("platform=plain",), 1, "1 replica; on a cluster an autoscaler"),
        (
            ("owner=planner", "min=3"),
            PLANNER,
            3,
            "3 replicas; with --planner the planner scales it",
        ),
    ],
)
def test_an_autoscaled_pool_is_replayed_at_its_minimum_and_reported(
    autoscaling: tuple[str, ...], sets: tuple[str, ...], replicas: int, text: str
) -> None:
    sets_of_pool = (
        "prefill.replicas=null",
        *(f"prefill.autoscaling.{setting}" for setting in autoscaling),
    )
    deployment = of("gpt-oss-120b-b200-disagg", *sets_of_pool, *sets)
    assert deployment.pools[0].replicas == replicas
    assert deployment.pools[0].all_gpus == replicas
    (line,) = deployment.unscaled
    assert line.startswith(f"prefill has a fixed size of {text}")


def test_a_manifest_without_replicas_has_one_and_that_is_reported(tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all(open_source(GRAPHS / "gpt-oss-120b-b200-disagg.yaml").text))
    (graph,) = (d for d in documents if d["kind"] == "DynamoGraphDeployment")
    (prefill,) = (c for c in graph["spec"]["components"] if c["name"] == "prefill")
    del prefill["replicas"]
    path = tmp_path / "silent.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    deployment = replayable(open_source(path), Hints())
    assert deployment.unscaled == (
        "prefill has a fixed size of 1 replica, as the manifest does not set replicas",
    )
