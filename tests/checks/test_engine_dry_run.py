"""What `check --engine-dry-run` makes of an engine's response."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.checks.finding import Finding, Level
from penstock.checks.run import check_file
from penstock.engines.dry_run.model_folders import copied_folder
from penstock.engines.dry_run.protocol import (
    Accepted,
    Configuration,
    Outcome,
    Refused,
    Resolved,
    Undecided,
)
from penstock.errors import MissingToolError
from penstock.manifests.deployment import Engine
from penstock.serving.understand import Hints
from tests.checks.support import (
    VLLM_DISAGG,
    graph,
    sglang_agg,
    trtllm_agg,
    vllm_agg,
    vllm_agg_dgd,
    vllm_disagg,
)

DRY_RUN = ("PS186", "PS187", "PS188")
ARGS = "dgd/spec/components/worker/podTemplate/spec/containers/main/args"


class Engines:
    """Responds with the same outcome, or one for each pool by its number of GPUs."""

    def __init__(
        self,
        folder: Path,
        outcome: Outcome | Mapping[int, Outcome] | MissingToolError,
        installed: Sequence[Engine] = (Engine.VLLM, Engine.SGLANG),
    ) -> None:
        self.folder, self._outcome, self._installed = folder, outcome, installed
        self.asked: list[Configuration] = []

    def has(self, engine: Engine) -> bool:
        return engine in self._installed

    def version(self, engine: Engine) -> str:
        return {Engine.VLLM: "0.31.0", Engine.SGLANG: "0.5.21"}[engine]

    def ask(self, engine: Engine, configuration: Configuration) -> Outcome:
        self.asked.append(configuration)
        if isinstance(self._outcome, MissingToolError):
            raise self._outcome
        if isinstance(self._outcome, Mapping):
            return self._outcome[configuration.hardware.count]
        return self._outcome


def findings(text: str, engines: Engines, gpu: str | None = None) -> list[Finding]:
    path = engines.folder / "file.yaml"
    path.write_text(text)
    findings = check_file(path, Hints(gpu=gpu), engines=engines)
    return [finding for finding in findings if finding.rule in DRY_RUN]


def refused(folder: Path, text: str, sentence: str) -> list[Finding]:
    return findings(text, Engines(folder, Refused(message=sentence)))


def vllm(**config: Any) -> str:
    base = {f"engine/config/{key.replace('_', '-')}": value for key, value in config.items()}
    return vllm_agg(base)


@pytest.mark.parametrize(
    ("config", "sentence", "place"),
    [
        ({"numa_bind_nodes": [0]}, "numa_bind_nodes require numa_bind=True", "numa-bind-nodes"),
        ({"decode_context_parallel_size": 1}, "decode context parallel for GQA", "decode-context"),
        ({"enable_eplb": False}, "EPLB requires two", "enable-eplb"),
        ({"load_format": "auto"}, "--load-format (auto) is not supported", "load-format"),
        ({"max_num_batched_tokens": 512}, "max_num_batched_tokens < max_num_seqs", "max-num-batch"),
        ({"kv_events_config": {"publisher": "x"}}, "the publisher x", "kv-events-config"),
    ],
)
def test_the_finding_is_at_the_setting_that_the_sentence_names(
    tmp_path: Path, config: dict[str, Any], sentence: str, place: str
) -> None:
    (finding,) = refused(tmp_path, vllm(**config), sentence)
    assert finding.rule == "PS186"
    assert finding.level is Level.ERROR
    assert finding.place.startswith(f"engine.config.{place}")
    assert f'"{sentence}"' in finding.message


def test_a_sentence_without_a_setting_is_about_the_worker(tmp_path: Path) -> None:
    (finding,) = refused(tmp_path, vllm(), "it does not work")
    assert finding.place == "worker.args"
    assert finding.component == "worker"


def test_an_error_of_a_rule_at_the_same_place_is_reported_once(tmp_path: Path) -> None:
    text = vllm(max_num_batched_tokens=128)  # below max-num-seqs: PS124
    assert not refused(tmp_path, text, "max_num_batched_tokens (128) must be >= max_num_seqs")
    assert not refused(tmp_path, text, "it does not work")
    # Another setting of the same worker is another problem.
    other = vllm(max_num_batched_tokens=128, numa_bind_nodes=[0])
    assert refused(tmp_path, other, "numa_bind_nodes require numa_bind=True")


@pytest.mark.parametrize(
    ("image", "note"),
    [
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.5.1", "the image has 0.28.0"),
        ("registry.example/vllm:mine", "the image states no version"),
    ],
)
def test_another_version_of_the_image_is_a_warning_with_a_note(
    tmp_path: Path, image: str, note: str
) -> None:
    path = "dgd/spec/components/worker/podTemplate/spec/containers/main/image"
    (finding,) = refused(tmp_path, vllm_agg_dgd({path: image}), "it does not work")
    assert finding.level is Level.WARNING
    assert f"(code of vLLM 0.31.0; {note})" in finding.message


def test_a_setting_that_only_the_image_may_know_is_undecided(tmp_path: Path) -> None:
    path = "dgd/spec/components/worker/podTemplate/spec/containers/main/image"
    text = vllm_agg_dgd({path: "registry.example/vllm:mine"})
    (finding,) = refused(tmp_path, text, "unrecognized arguments: --new-flag")
    assert (finding.rule, finding.level) == ("PS187", Level.NOTE)
    assert "--new-flag" in finding.message
    (finding,) = refused(tmp_path, vllm(), "unrecognized arguments: --new-flag")
    assert finding.rule == "PS186"


ACCEPTED = Accepted(resolved=Resolved())


@pytest.mark.parametrize(
    ("text", "outcome", "reason", "asked"),
    [
        (vllm_agg({"worker/args": ["--max-num-seqs", "$(MOST)"]}), ACCEPTED, "of $(MOST)", 0),
        (vllm_agg({"model/id": "my/model"}), ACCEPTED, "not know the config.json of my/model", 0),
        (trtllm_agg(), ACCEPTED, "TensorRT-LLM is only in its image", 0),
        (vllm_agg(), Undecided(reason="it reads /opt/x"), "it reads /opt/x", 1),
        (vllm_agg(), MissingToolError("it does not start: x"), "it does not start: x", 1),
    ],
)
def test_what_cannot_be_decided_is_a_note_with_the_reason(
    tmp_path: Path, text: str, outcome: Outcome | MissingToolError, reason: str, asked: int
) -> None:
    engines = Engines(tmp_path, outcome)
    (finding,) = findings(text, engines)
    assert (finding.rule, finding.level) == ("PS187", Level.NOTE)
    assert reason in finding.message
    assert len(engines.asked) == asked


def test_a_missing_environment_is_a_note_with_the_command(tmp_path: Path) -> None:
    engines = Engines(tmp_path, ACCEPTED, installed=())
    (finding,) = findings(sglang_agg(), engines)
    assert "penstock tools env install sglang-check" in finding.message


def test_the_engine_gets_the_graphs_gpus(tmp_path: Path) -> None:
    engines = Engines(tmp_path, ACCEPTED)
    assert findings(vllm(), engines) == []
    (asked,) = engines.asked
    assert (asked.hardware.name, asked.hardware.sm, asked.hardware.count) == ("b200", 100, 2)


def test_without_a_gpu_a_refusal_counts_if_hopper_and_blackwell_refuse(tmp_path: Path) -> None:
    text = vllm_agg_dgd().replace("NVIDIA-B200", "another")
    engines = Engines(tmp_path, Refused(message="no"))
    assert [finding.rule for finding in findings(text, engines)] == ["PS186"]
    assert [asked.hardware.name for asked in engines.asked] == ["h200", "b200"]


def test_no_engine_is_asked_without_the_option(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(trtllm_agg())
    assert not {finding.rule for finding in check_file(path, Hints())} & set(DRY_RUN)


PREFILL, DECODE = 1, 4  # GPUs of the pools of VLLM_DISAGG


def pools(folder: Path, text: str, prefill: Resolved, decode: Resolved) -> list[Finding]:
    outcomes = {PREFILL: Accepted(resolved=prefill), DECODE: Accepted(resolved=decode)}
    return findings(text, Engines(folder, outcomes))


def without_block_size() -> dict[str, Any]:
    return {**VLLM_DISAGG, "engine": {"kind": "vllm", "config": {"max-num-seqs": 256}}}


@pytest.mark.parametrize(
    ("prefill", "decode", "message", "level"),
    [
        (
            Resolved(attention_backend="FLASH_ATTN"),
            Resolved(attention_backend="FLASHINFER"),
            "decode gets the attention backend FLASHINFER, but prefill gets FLASH_ATTN",
            Level.ERROR,
        ),
        (
            Resolved(block_size=1056),
            Resolved(block_size=528),
            "decode gets the KV block size 528, but prefill gets 1056",
            Level.WARNING,
        ),
        (
            Resolved(kv_dtype="auto"),
            Resolved(kv_dtype="fp8"),
            "decode gets the KV cache type fp8, but prefill gets auto",
            Level.ERROR,
        ),
    ],
)
def test_pools_for_which_the_engine_chooses_other_layouts(
    tmp_path: Path, prefill: Resolved, decode: Resolved, message: str, level: Level
) -> None:
    (finding,) = pools(tmp_path, graph(without_block_size()), prefill, decode)
    assert (finding.rule, finding.level, finding.message) == ("PS188", level, message)


def test_block_sizes_that_vllm_converts_are_no_problem(tmp_path: Path) -> None:
    text = graph(without_block_size())
    assert not pools(tmp_path, text, Resolved(block_size=16), Resolved(block_size=64))


def test_what_both_pools_set_is_left_to_the_rules(tmp_path: Path) -> None:
    text = vllm_disagg()  # block-size is set
    assert not pools(tmp_path, text, Resolved(block_size=64), Resolved(block_size=48))


def test_the_routers_block_size_is_compared_with_the_engines_choice(tmp_path: Path) -> None:
    router = {"frontend/args": ["--kv-cache-block-size", "64"]}
    text = graph(without_block_size(), router)
    same = Resolved(block_size=16)
    (finding,) = pools(tmp_path, text, same, same)
    assert finding.message == "--kv-cache-block-size is 64, but prefill gets a KV block size of 16"
    assert finding.level is Level.NOTE
    right = Resolved(block_size=64)
    assert not pools(tmp_path, text, right, right)


def test_code_in_a_models_folder_is_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    config = {"model_type": "llama", "auto_map": {"AutoConfig": "configuration_own.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    engines = Engines(tmp_path, ACCEPTED)
    text = vllm_agg_dgd({f"{ARGS}/2": f"--model={folder}"})
    path = tmp_path / "file.yaml"
    path.write_text(text)
    (finding,) = (
        finding
        for finding in check_file(path, Hints(model_folder=folder), engines=engines)
        if finding.rule in DRY_RUN
    )
    assert finding.rule == "PS187"
    assert "has code of its own, which is not run" in finding.message
    assert engines.asked == []


def test_an_engine_gets_a_copy_of_the_config_of_a_models_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (folder / "modeling_own.py").write_text("raise SystemExit")
    copied = copied_folder(folder, tmp_path)
    assert isinstance(copied, Path)
    assert [path.name for path in copied.iterdir()] == ["config.json"]
    other = tmp_path / "other" / "model"
    other.mkdir(parents=True)
    (other / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    assert copied_folder(other, tmp_path) != copied


@pytest.mark.parametrize(
    ("argument", "name"),
    [
        ("--worker-cls=acme.workers.Worker", "--worker-cls"),
        ("--tool-parser-plugin=/data/parser.py", "--tool-parser-plugin"),
        ("--distributed-executor-backend=acme.executor", "acme.executor"),
        ('--kv-transfer-config={"kv_connector_module_path":"acme"}', "kv_connector_module_path"),
    ],
)
def test_a_module_that_the_file_names_is_not_imported(
    tmp_path: Path, argument: str, name: str
) -> None:
    engines = Engines(tmp_path, ACCEPTED)
    (finding,) = findings(vllm_agg_dgd({f"{ARGS}/2": argument}), engines)
    assert finding.rule == "PS187"
    assert f"{name} names Python code, which is not run" in finding.message
    assert engines.asked == []


@pytest.mark.parametrize("hidden", ["", "PS124"])
def test_a_refusal_is_hidden_only_by_a_finding_that_is_shown(tmp_path: Path, hidden: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(vllm(max_num_batched_tokens=100))
    sentence = "max_num_batched_tokens (100) must be at least max_num_seqs"
    engines = Engines(tmp_path, Refused(message=sentence))
    findings = check_file(path, Hints(), engines=engines, is_shown=lambda rule: rule != hidden)
    assert ("PS186" in {finding.rule for finding in findings}) is bool(hidden)


def test_an_error_of_dynamos_worker_is_not_called_one_of_the_engine(tmp_path: Path) -> None:
    sentence = "--connector is deprecated"
    engines = Engines(tmp_path, Refused(message=sentence, is_of_dynamo=True))
    image = {"engine/image": "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.0.2"}
    (finding,) = findings(vllm_agg(image), engines)
    assert finding.message.startswith("dynamo.vllm refuses the configuration of worker")
    assert "(code of Dynamo for vLLM 0.31.0; the image has 0.16.0)" in finding.message
    assert finding.fix == "Change the settings as the error of dynamo.vllm requires."
