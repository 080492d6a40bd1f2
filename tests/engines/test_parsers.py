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

from .launches import PLACE, checked, launch, rejection, settings


def test_the_substitutes_define_everything_that_the_parsers_import_from_the_engines() -> None:
    lines = ("dynamo.frontend", "dynamo.mocker", "dynamo.trtllm", "dynamo.vllm")
    for result in check_launches([(line, launch(line)) for line in lines]):
        assert isinstance(result, Parsed), f"a substitute lacks something: {result}"
        assert result.warnings == ()


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
    assert "--router-mode" in rejection("dynamo.frontend --routermode kv").partition("Fix:")[2]
    assert rejection("dynamo.trtllm --mdel m").endswith("Fix: Did you mean --model?")
    assert rejection("dynamo.vllm --block-sze 3").endswith("Fix: Did you mean --block-size?")


def test_an_unknown_flag_without_a_similar_one_has_the_fix_to_remove_it() -> None:
    assert rejection("dynamo.vllm --qqqqqq 3").endswith("Fix: Remove --qqqqqq.")


def test_a_bad_choice_is_refused_with_flag_value_and_choices() -> None:
    message = rejection("dynamo.trtllm --disaggregation-mode prefil")
    for part in ("--disaggregation-mode", "'prefil'", "'prefill'", "'decode'"):
        assert part in message


def test_a_flag_without_its_value_is_refused() -> None:
    for line in (
        "dynamo.trtllm --max-seq-len",
        "dynamo.vllm --max-model-len",
        "dynamo.mocker --block-size",
    ):
        assert "expected one argument" in rejection(line)


@pytest.mark.parametrize("module", ["frontend", "mocker", "trtllm", "vllm"])
@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_a_flag_that_only_prints_is_rejected(module: str, flag: str) -> None:
    message = rejection(f"dynamo.{module} {flag}")
    assert f"{flag}: it ends the process" in message
    assert message.endswith(f"Fix: Remove {flag}.")


def test_a_variable_sets_an_option() -> None:
    assert settings("dynamo.trtllm", env={"DYN_TRTLLM_MAX_SEQ_LEN": "77"})["max_seq_len"] == 77


def test_a_bad_value_in_the_environment_is_refused_with_its_variable() -> None:
    message = rejection("dynamo.trtllm", env={"DYN_TRTLLM_MAX_SEQ_LEN": "long"})
    assert "DYN_TRTLLM_MAX_SEQ_LEN='long'" in message
    assert "unknown router mode 'kvv'" in rejection(
        "dynamo.frontend", env={"DYN_ROUTER_MODE": "kvv"}
    )


def test_a_launch_does_not_see_the_environment_of_another() -> None:
    first = launch("dynamo.trtllm", env={"DYN_TRTLLM_MAX_SEQ_LEN": "77"})
    _, second = parse_launches([("a", first), ("b", launch("dynamo.trtllm"))])
    assert isinstance(second, Parsed)
    assert second.settings["max_seq_len"] is None


def test_variables_of_the_users_shell_are_ignored() -> None:
    with patch.dict(os.environ, {"DYN_TRTLLM_MAX_SEQ_LEN": "77", "DYN_CONNECTOR": "nixl"}):
        trtllm, _ = parse_launches([("a", launch("dynamo.trtllm")), ("b", launch("dynamo.vllm"))])
    assert isinstance(trtllm, Parsed)
    assert trtllm.settings["max_seq_len"] is None


def test_a_deprecated_flag_is_accepted_with_a_warning() -> None:
    result = checked("dynamo.trtllm --publish-events-and-metrics")
    assert isinstance(result, Parsed)
    assert "--publish-events-and-metrics is deprecated" in result.warnings[0]
    assert len(result.warnings) == 1
    assert result.settings["publish_kv_events"] is True


def test_a_file_of_the_image_is_unknown_and_not_rejected() -> None:
    template = "--custom-jinja-template /opt/templates/a.jinja"
    assert settings(f"dynamo.trtllm {template}")["custom_jinja_template"]
    assert settings(f"dynamo.vllm {template}")["custom_jinja_template"]
    assert settings("dynamo.frontend --model-path /models/gpt")["model_path"] == "/models/gpt"


def test_a_launch_whose_parser_reads_a_file_of_the_image_is_unchecked() -> None:
    result = checked("dynamo.vllm --config /opt/vllm.yaml")
    assert isinstance(result, NotParsed)
    assert "/opt/vllm.yaml" in result.reason


def test_a_file_in_the_manifests_is_read_by_the_parser() -> None:
    config = {"/etc/vllm.yaml": "block_size: 48\nno-such-flag: 1\n"}
    assert "--no-such-flag" in rejection("dynamo.vllm --config /etc/vllm.yaml", files=config)


def test_a_launch_with_a_value_that_only_the_cluster_knows_is_unchecked() -> None:
    line = "dynamo.trtllm --max-seq-len '$(LEN)'"
    result = checked(line, unresolved=("$(LEN) comes from a field of the pod",))
    assert isinstance(result, NotParsed)
    assert "$(LEN)" in result.reason


def test_a_launch_with_an_unresolved_value_after_an_equals_sign_is_unchecked() -> None:
    line = "dynamo.vllm --max-num-seqs=$SEQS"
    assert isinstance(checked(line, unresolved=("$SEQS is set nowhere",)), NotParsed)


def test_an_unresolved_value_does_not_hide_another_mistake() -> None:
    line = "dynamo.trtllm --model '$(MODEL)' --max-seq-len x"
    assert "'x'" in rejection(line, unresolved=("$(MODEL)",))


def test_sglang_is_reported_as_unchecked() -> None:
    result = checked("dynamo.sglang --no-such-flag")
    assert isinstance(result, NotParsed)
    assert "SGLang" in result.reason


def test_a_frontend_that_needs_vllms_parser_is_unchecked() -> None:
    assert isinstance(checked("dynamo.frontend --dyn-chat-processor vllm"), NotParsed)


def test_a_frontend_with_sglangs_processor_is_checked() -> None:
    flags = "--dyn-chat-processor sglang"
    assert settings(f"dynamo.frontend {flags} --tool-call-parser hermes")
    assert "--no-such-flag" in rejection(f"dynamo.frontend {flags} --no-such-flag")


def test_other_programs_are_unchecked() -> None:
    assert isinstance(checked("dynamo.planner --x"), NotParsed)


def test_a_child_that_does_not_respond_is_killed() -> None:
    with pytest.raises(MissingToolError, match=r"within 0\.01 s"):
        check_launches([("a", launch("dynamo.mocker"))], run=partial(run_child, time_limit_s=0.01))


def test_without_launches_no_child_starts() -> None:
    requested: list[object] = []

    def run(launches: Sequence[object]) -> list[Any]:
        requested.append(launches)
        return []

    assert check_launches([], run=run) == ()
    assert requested == []
