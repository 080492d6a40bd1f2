"""Which errors of an engine's code are refusals."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from penstock.engines.container import NotInManifests
from penstock.engines.dry_run.decide_child import Build, clean, outcome, variables

ASKED = {"arguments": [], "hardware": {}, "files": {}, "cwd": "/", "folders": [], "env": {}}


def raising(error: BaseException) -> Build:
    def build(*_: object) -> dict[str, object]:
        raise error

    return build


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("heads (64) must\n be divisible by 3"), "heads (64) must be divisible by 3"),
        (AssertionError("no page size"), "no page size"),
        (TypeError("f() got an unexpected keyword argument 'x'"), "f() got an unexpected keyword"),
    ],
)
def test_the_engines_own_errors_are_refusals(error: Exception, text: str) -> None:
    line = outcome(ASKED, raising(error))
    assert line["outcome"] == "refused"
    assert text in line["text"]


@pytest.mark.parametrize(
    "error",
    [
        ImportError("No module named 'x'"),
        AttributeError("x"),
        AssertionError("Torch not compiled with CUDA enabled"),
        ValueError("Model architectures ['X'] failed to be inspected"),
        ValueError(""),
        NotInManifests("/opt/file"),
    ],
)
def test_what_is_missing_here_is_undecided(error: BaseException) -> None:
    assert outcome(ASKED, raising(error))["outcome"] == "undecided"


def test_an_assertion_without_words_is_quoted_as_code(tmp_path: Path) -> None:
    module = tmp_path / "hook.py"  # pytest gives words to the assertions of a test
    module.write_text("def check(tp, dp):\n    assert tp % dp == 0\n")
    check = runpy.run_path(str(module))["check"]
    line = outcome(ASKED, lambda *_: check(4, 3))
    assert line == {"outcome": "refused", "text": "hook.py: assert tp % dp == 0"}


def test_a_message_of_pydantic_is_reduced_to_the_engines_sentence() -> None:
    text = (
        "argument --kv-transfer-config: 1 validation error for KVTransferConfig\n  Value error, "
        "Please specify kv_role [type=value_error, input_value={'a': 'b'}, input_type=dict]\n"
        "    For further information visit https://errors.pydantic.dev/2.13/v/value_error"
    )
    assert clean(text) == "argument --kv-transfer-config: Please specify kv_role"


def test_the_launchs_variables_do_not_select_hosts_caches_or_gpus() -> None:
    env = {
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        "CUDA_VISIBLE_DEVICES": "3",
        "HF_HUB_OFFLINE": "0",
        "POD_IP": "$(IP)",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.1",
    }
    assert variables(env) == {"VLLM_USE_V2_MODEL_RUNNER": "0"}


@pytest.mark.parametrize(("package", "is_of_dynamo"), [("dynamo", True), ("vllm", False)])
def test_the_package_that_raises_a_refusal(
    tmp_path: Path, package: str, is_of_dynamo: bool
) -> None:
    module = tmp_path / package / "args.py"
    module.parent.mkdir()
    module.write_text("def parse():\n    raise ValueError('no connector')\n")
    parse = runpy.run_path(str(module))["parse"]
    refusal = outcome(ASKED, lambda *_: parse())
    assert (refusal["text"], refusal["is_of_dynamo"]) == ("no connector", is_of_dynamo)
