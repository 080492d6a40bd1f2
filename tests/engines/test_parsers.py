"""The parsers of the installed Dynamo judge launches; one child process for a batch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from penstock.engines.parsers import NotParsed, Parsed, Rejected, check_launches, run_child
from penstock.errors import MissingToolError

from .launches import PLACE, checked, launch, rejection, settings

NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
TRTLLM, VLLM, FRONTEND = "dynamo.trtllm", "dynamo.vllm", "dynamo.frontend"
ENGINE_FILE = f"{TRTLLM} --extra-engine-args /c/e.yaml"


def test_the_substitutes_define_everything_that_the_parsers_import_from_the_engines() -> None:
    lines = (FRONTEND, "dynamo.mocker", TRTLLM, VLLM)
    for result in check_launches([(line, launch(line)) for line in lines]):
        assert isinstance(result, Parsed), f"a substitute lacks something: {result}"
        assert result.warnings == ()


def test_every_bad_launch_is_reported_in_one_run() -> None:
    bad = [f"{FRONTEND} --router-mode kvv", f"{TRTLLM} --mdel m", f"{VLLM} --dtype f8"]
    results = check_launches([("c", launch(line)) for line in [*bad, "dynamo.mocker"]])
    rejected = [result for result in results if isinstance(result, Rejected)]
    assert len(rejected) == 3
    assert {result.problem.place for result in rejected} == {PLACE}


def test_results_come_in_the_order_of_the_launches() -> None:
    names = [VLLM, "nginx", FRONTEND, "dynamo.sglang", "dynamo.mocker"]
    assert [v.component for v in check_launches([(n, launch(n)) for n in names])] == names


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (f"{FRONTEND} --routermode kv", ["Fix: Did you mean `--router-mode`?"]),
        (f"{TRTLLM} --mdel m", ["Fix: Did you mean `--model`?"]),
        (f"{VLLM} --block-sze 3", ["Fix: Did you mean `--block-size`?"]),
        (f"{VLLM} --qqqqqq 3", ["Fix: Remove --qqqqqq."]),
        (
            f"{TRTLLM} --disaggregation-mode prefil",
            ["--disaggregation-mode", "'prefil'", "'prefill'", "'decode'"],
        ),
        (f"{TRTLLM} --max-seq-len", ["expected one argument"]),
        (f"{VLLM} --max-model-len", ["expected one argument"]),
        ("dynamo.mocker --block-size", ["expected one argument"]),
        ("dynamo.mocker --block-size 1", ["block_size must be at least two"]),
        ("dynamo.mocker --engine-type foo", ["unknown variant `foo`"]),
        *(
            (f"dynamo.{module} {flag}", [f"{flag}: it ends the process", f"Fix: Remove {flag}."])
            for module in ("frontend", "mocker", "trtllm", "vllm")
            for flag in ("--help", "--version")
        ),
        (f"{FRONTEND} --dyn-chat-processor sglang --no-such-flag", ["--no-such-flag"]),
        (f"{TRTLLM} --disaggregation-mode prefill_and_decode", ["'prefill_and_decode'"]),
        (f"{TRTLLM} --trtllm.a.b 1 --override-engine-args '{{\"a\": 1}}'", ["mutually exclusive"]),
        (f"{TRTLLM} --override-engine-args '{{x'", ["is not JSON"]),
        (f"{TRTLLM} --override-engine-args 3", ["not a JSON object"]),
        (f"{VLLM} --disaggregation-mode prefill", ["--kv-transfer-config"]),
        (f"{VLLM} --connector nixl", ["--kv-transfer-config"]),
        (f"{VLLM} --block-size x", ["invalid int value: 'x'"]),
        (f"{VLLM} --dtype fp7", ["invalid choice: 'fp7'"]),
        (f"{VLLM} --kv-transfer-config '{{broken'", ["'{broken' is not JSON"]),
        (f"{VLLM} --kv-transfer-config '{{\"kv_conector\": 1}}'", ["unknown key kv_conector"]),
        (f'{VLLM} --kv-transfer-config \'{{"kv_connector": "X"}}\'', ["needs a kv_role"]),
        (f'{VLLM} --kv-events-config \'{{"publisher": "nats"}}\'', ["publisher: 'nats' is none"]),
        (f"{VLLM} --speculative-config nonsense", ["is not JSON"]),
        (f"{VLLM} --max-model-len 1.5K", ["Decimals are not allowed"]),
        (f"{VLLM} --config /c.json", ["must be of a yaml/yml type"]),
    ],
)
def test_a_wrong_flag_is_rejected(line: str, parts: Sequence[str]) -> None:
    message = rejection(line)
    assert [part for part in parts if part not in message] == []


@pytest.mark.parametrize(
    ("line", "env", "part"),
    [
        (TRTLLM, {"DYN_TRTLLM_MAX_SEQ_LEN": "long"}, "DYN_TRTLLM_MAX_SEQ_LEN='long'"),
        (TRTLLM, {"DYN_TRTLLM_DISAGGREGATION_MODE": "prefill_and_decode"}, "no longer supported"),
        (FRONTEND, {"DYN_ROUTER_MODE": "kvv"}, "unknown router mode 'kvv'"),
        (VLLM, {"DYN_CONNECTOR": "none"}, "--connector"),
    ],
)
def test_a_bad_value_in_the_environment_is_rejected(
    line: str, env: Mapping[str, str], part: str
) -> None:
    assert part in rejection(line, env=env)


@pytest.mark.parametrize(
    ("line", "text", "part"),
    [
        (ENGINE_FILE, "- a\n- b\n", "--extra-engine-args: /c/e.yaml"),
        (ENGINE_FILE, "", "--extra-engine-args: /c/e.yaml"),
        (ENGINE_FILE, "a: [\n", "--extra-engine-args: /c/e.yaml"),
        (f"{VLLM} --config /c/e.yaml", "block_size: 48\nno-such-flag: 1\n", "--no-such-flag"),
    ],
)
def test_a_wrong_file_of_the_manifests_is_rejected(line: str, text: str, part: str) -> None:
    assert part in rejection(line, files={"/c/e.yaml": text})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            f"{TRTLLM} --trtllm.kv_cache_config.max_tokens 640",
            {"override_engine_args": '{"kv_cache_config": {"max_tokens": 640}}'},
        ),
        (f"{TRTLLM} --custom-jinja-template /opt/a.jinja", {}),
        (f"{VLLM} --custom-jinja-template /opt/a.jinja", {}),
        (f"{FRONTEND} --model-path /models/gpt", {"model_path": "/models/gpt"}),
        (f"{FRONTEND} --dyn-chat-processor sglang --tool-call-parser hermes", {}),
        (f"{VLLM} --disaggregation-mode prefill --kv-transfer-config '{NIXL}'", {}),
    ],
)
def test_a_launch_is_accepted(line: str, expected: Mapping[str, Any]) -> None:
    assert settings(line).items() >= expected.items()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--max_model_len 4096 --served_model_name a_b", {"max_model_len": 4096}),
        *((flag, {"optimization_level": "3"}) for flag in ("-O3", "-O=3", "-O 3")),
        ("--optimization-level 3", {"optimization_level": "3"}),
        ("--no-enable-prefix-caching", {"enable_prefix_caching": False}),
        ("--enable-prefix-caching", {"enable_prefix_caching": True}),
        ("--max-model-len 4096", {"max_model_len": 4096}),
        ("--max-model-len 10k", {"max_model_len": 10_000}),
        ("--max-model-len 25.6k", {"max_model_len": 25_600}),
        ("--max-model-len 8K", {"max_model_len": 8192}),
        ("--max-model-len auto", {"max_model_len": -1}),
    ],
)
def test_the_spellings_of_vllms_flags(flags: str, expected: Mapping[str, Any]) -> None:
    values: Any = settings(f"{VLLM} {flags}")["engine_args"]
    assert values.items() >= expected.items()


def test_dotted_flags_of_vllm_are_one_json_value() -> None:
    values: Any = settings(
        f"{VLLM} --compilation_config.mode 3 --kv-events-config.enable_kv_cache_events true"
        " --kv-events-config.publisher=zmq --compilation-config.cudagraph_capture_sizes+ 1,2"
        " --compilation-config.cudagraph_capture_sizes+ 4"
    )["engine_args"]
    assert values["compilation_config"]["mode"] == 3
    assert values["compilation_config"]["cudagraph_capture_sizes"] == ["1", "2", "4"]
    assert values["kv_events_config"]["enable_kv_cache_events"] is True
    assert values["kv_events_config"]["publisher"] == "zmq"


def test_vllms_command_line_overrides_the_flags_of_a_yaml_file() -> None:
    yaml = "block_size: 32\nmax-num-seqs: 7\nenforce-eager: true\nenable-prefix-caching: false\n"
    line = f"{VLLM} --config /c.yaml --block-size 64"
    values: Any = settings(line, files={"/c.yaml": yaml})["engine_args"]
    assert (values["block_size"], values["max_num_seqs"]) == (64, 7)
    assert (values["enforce_eager"], values["enable_prefix_caching"]) == (True, False)


@pytest.mark.parametrize(
    ("line", "unresolved", "reason"),
    [
        (f"{VLLM} --config /opt/vllm.yaml", (), "/opt/vllm.yaml"),
        (f"{TRTLLM} --max-seq-len '$(LEN)'", ("$(LEN) is a field of the pod",), "$(LEN)"),
        (f"{VLLM} --max-num-seqs=$SEQS", ("$SEQS is set nowhere",), "$SEQS"),
        ("dynamo.sglang --no-such-flag", (), "SGLang"),
        (f"{FRONTEND} --dyn-chat-processor vllm", (), ""),
        ("dynamo.planner --x", (), "dynamo.planner"),
    ],
)
def test_a_launch_that_cannot_be_parsed_here_is_unchecked(
    line: str, unresolved: tuple[str, ...], reason: str
) -> None:
    result = checked(line, unresolved=unresolved)
    assert isinstance(result, NotParsed)
    assert reason in result.reason


def test_an_unresolved_value_does_not_hide_another_mistake() -> None:
    line = f"{TRTLLM} --model '$(MODEL)' --max-seq-len x"
    assert "'x'" in rejection(line, unresolved=("$(MODEL)",))


def test_only_the_variables_of_a_launch_set_its_options() -> None:
    """Neither those of another launch nor those of the user's shell."""
    variable = {"DYN_TRTLLM_MAX_SEQ_LEN": "77"}
    with patch.dict(os.environ, {"DYN_TRTLLM_MAX_SEQ_LEN": "78", "DYN_CONNECTOR": "nixl"}):
        first, second, _ = check_launches(
            [("a", launch(TRTLLM, env=variable)), ("b", launch(TRTLLM)), ("c", launch(VLLM))]
        )
    assert isinstance(first, Parsed)
    assert isinstance(second, Parsed)
    assert (first.settings["max_seq_len"], second.settings["max_seq_len"]) == (77, None)


def test_a_deprecated_flag_is_accepted_with_a_warning() -> None:
    result = checked(f"{TRTLLM} --publish-events-and-metrics")
    assert isinstance(result, Parsed)
    (warning,) = result.warnings
    assert "--publish-events-and-metrics is deprecated" in warning
    assert result.settings["publish_kv_events"] is True


def test_a_child_that_does_not_respond_is_killed() -> None:
    with pytest.raises(MissingToolError, match=r"within 0\.01 s"):
        check_launches([("a", launch("dynamo.mocker"))], run=partial(run_child, time_limit_s=0.01))


def test_without_launches_no_child_starts() -> None:
    def run(launches: Sequence[object]) -> list[Any]:
        raise AssertionError("it starts")

    assert check_launches([], run=run) == ()
