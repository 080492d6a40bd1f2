"""The wheel's own parsers judge launches; one child process for a batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from penstock.engines.parsers import NotParsed, Parsed, check_launches, parse_launches, run_child
from penstock.errors import LaunchError, MissingToolError

from .launches import PLACE, judged, launch, refusal, settings


def test_the_substitutes_hold_all_that_the_wheels_parsers_take_from_the_engines() -> None:
    lines = ("dynamo.frontend", "dynamo.mocker", "dynamo.trtllm", "dynamo.vllm")
    for verdict in check_launches([(line, launch(line)) for line in lines]):
        assert isinstance(verdict, Parsed), f"a stand-in lacks something: {verdict}"
        assert verdict.warnings == ()


def test_every_bad_launch_is_reported_in_one_run() -> None:
    bad = ["dynamo.frontend --router-mode kvv", "dynamo.trtllm --mdel m", "dynamo.vllm --dtype f8"]
    with pytest.raises(LaunchError) as caught:
        parse_launches([("c", launch(line)) for line in [*bad, "dynamo.mocker"]])
    assert len(caught.value.problems) == 3
    assert {problem.place for problem in caught.value.problems} == {PLACE}


def test_results_come_in_the_order_of_the_launches() -> None:
    names = ["dynamo.vllm", "nginx", "dynamo.frontend", "dynamo.sglang", "dynamo.mocker"]
    assert [v.component for v in parse_launches([(n, launch(n)) for n in names])] == names


def test_an_unknown_flag_names_the_nearest_known_one() -> None:
    assert "--router-mode" in refusal("dynamo.frontend --routermode kv").partition("Fix:")[2]
    assert refusal("dynamo.trtllm --mdel m").endswith("Fix: Did you mean --model?")
    assert refusal("dynamo.vllm --block-sze 3").endswith("Fix: Did you mean --block-size?")


def test_an_unknown_flag_without_a_near_one_is_to_be_removed() -> None:
    assert refusal("dynamo.vllm --qqqqqq 3").endswith("Fix: Remove --qqqqqq.")


def test_a_bad_choice_is_refused_with_flag_value_and_choices() -> None:
    message = refusal("dynamo.trtllm --disaggregation-mode prefil")
    for part in ("--disaggregation-mode", "'prefil'", "'prefill'", "'decode'"):
        assert part in message


def test_a_flag_without_its_value_is_refused() -> None:
    for line in (
        "dynamo.trtllm --max-seq-len",
        "dynamo.vllm --max-model-len",
        "dynamo.mocker --block-size",
    ):
        assert "expected one argument" in refusal(line)


@pytest.mark.parametrize("module", ["frontend", "mocker", "trtllm", "vllm"])
@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_a_flag_that_only_prints_is_no_success(module: str, flag: str) -> None:
    message = refusal(f"dynamo.{module} {flag}")
    assert f"{flag}: it ends the process" in message
    assert message.endswith(f"Fix: Remove {flag}.")


def test_an_option_set_by_environment_decides_too() -> None:
    assert settings("dynamo.trtllm", env={"DYN_TRTLLM_MAX_SEQ_LEN": "77"})["max_seq_len"] == 77


def test_a_bad_value_in_the_environment_is_refused_with_its_variable() -> None:
    message = refusal("dynamo.trtllm", env={"DYN_TRTLLM_MAX_SEQ_LEN": "long"})
    assert "DYN_TRTLLM_MAX_SEQ_LEN='long'" in message
    assert "unknown router mode 'kvv'" in refusal("dynamo.frontend", env={"DYN_ROUTER_MODE": "kvv"})


def test_one_launchs_environment_is_not_seen_by_the_next() -> None:
    first = launch("dynamo.trtllm", env={"DYN_TRTLLM_MAX_SEQ_LEN": "77"})
    _, second = parse_launches([("a", first), ("b", launch("dynamo.trtllm"))])
    assert isinstance(second, Parsed)
    assert second.settings["max_seq_len"] is None


def test_the_users_own_shell_decides_nothing() -> None:
    with patch.dict(os.environ, {"DYN_TRTLLM_MAX_SEQ_LEN": "77", "DYN_CONNECTOR": "nixl"}):
        trtllm, _ = parse_launches([("a", launch("dynamo.trtllm")), ("b", launch("dynamo.vllm"))])
    assert isinstance(trtllm, Parsed)
    assert trtllm.settings["max_seq_len"] is None


def test_a_deprecated_flag_is_accepted_with_a_warning() -> None:
    verdict = judged("dynamo.trtllm --publish-events-and-metrics")
    assert isinstance(verdict, Parsed)
    assert "--publish-events-and-metrics is deprecated" in verdict.warnings[0]
    assert len(verdict.warnings) == 1
    assert verdict.settings["publish_kv_events"] is True


def test_a_file_of_the_image_is_unknown_and_no_refusal() -> None:
    template = "--custom-jinja-template /opt/templates/a.jinja"
    assert settings(f"dynamo.trtllm {template}")["custom_jinja_template"]
    assert settings(f"dynamo.vllm {template}")["custom_jinja_template"]
    assert settings("dynamo.frontend --model-path /models/gpt")["model_path"] == "/models/gpt"


def test_a_file_that_a_parser_must_read_but_only_the_image_has_leaves_the_launch_unchecked() -> (
    None
):
    verdict = judged("dynamo.vllm --config /opt/vllm.yaml")
    assert isinstance(verdict, NotParsed)
    assert "/opt/vllm.yaml" in verdict.reason


def test_a_file_in_the_manifests_is_read_by_the_parser() -> None:
    config = {"/etc/vllm.yaml": "block_size: 48\nno-such-flag: 1\n"}
    assert "--no-such-flag" in refusal("dynamo.vllm --config /etc/vllm.yaml", files=config)


def test_a_value_that_only_the_cluster_knows_leaves_the_launch_unchecked() -> None:
    line = "dynamo.trtllm --max-seq-len '$(LEN)'"
    verdict = judged(line, unresolved=("$(LEN) comes from a field of the pod",))
    assert isinstance(verdict, NotParsed)
    assert "$(LEN)" in verdict.reason


def test_an_unresolved_value_behind_an_equals_sign_leaves_the_launch_unchecked() -> None:
    line = "dynamo.vllm --max-num-seqs=$SEQS"
    assert isinstance(judged(line, unresolved=("$SEQS is set nowhere",)), NotParsed)


def test_an_unresolved_piece_does_not_excuse_another_mistake() -> None:
    line = "dynamo.trtllm --model '$(MODEL)' --max-seq-len x"
    assert "'x'" in refusal(line, unresolved=("$(MODEL)",))


def test_sglang_is_said_to_be_unchecked() -> None:
    verdict = judged("dynamo.sglang --no-such-flag")
    assert isinstance(verdict, NotParsed)
    assert "SGLang" in verdict.reason


def test_a_frontend_that_asks_vllms_parser_is_unchecked() -> None:
    assert isinstance(judged("dynamo.frontend --dyn-chat-processor vllm"), NotParsed)


def test_a_frontend_with_sglangs_processor_is_checked() -> None:
    flags = "--dyn-chat-processor sglang"
    assert settings(f"dynamo.frontend {flags} --tool-call-parser hermes")
    assert "--no-such-flag" in refusal(f"dynamo.frontend {flags} --no-such-flag")


def test_other_programs_are_unchecked() -> None:
    assert isinstance(judged("dynamo.planner --x"), NotParsed)


def test_a_child_that_does_not_answer_is_ended() -> None:
    with pytest.raises(MissingToolError, match=r"within 0\.01 s"):
        check_launches([("a", launch("dynamo.mocker"))], run=partial(run_child, time_limit_s=0.01))


def test_no_launch_starts_no_child() -> None:
    requested: list[object] = []

    def run(launches: Sequence[object]) -> list[Any]:
        requested.append(launches)
        return []

    assert check_launches([], run=run) == ()
    assert requested == []
