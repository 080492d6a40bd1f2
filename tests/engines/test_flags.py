"""Flag tables: as the installed parsers have them, and read as they read."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from typing import Any

import pytest

from penstock.checks.rules.responses import REASONING_FLAG, TOOL_FLAG, parsers
from penstock.engines.flags import flag_table
from tests.support.command_line import ROOT


def values(module: str, *arguments: str) -> dict[str, Any]:
    table = flag_table(module)
    assert table is not None
    return {g.flag.name if g.flag else g.spelling: g.value for g in table.read(arguments)}


def test_the_table_of_dynamos_flags_is_what_its_parsers_have() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "dump_dynamo_flags.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    stored = files("penstock.engines.data").joinpath("dynamo_flags.json").read_text("utf-8")
    assert json.loads(done.stdout) == json.loads(stored)


def test_the_response_parsers_are_those_of_the_installed_dynamo() -> None:
    names = (
        "import json, dynamo._core as c;"
        "print(json.dumps([c.get_reasoning_parser_names(), c.get_tool_parser_names()]))"
    )
    done = subprocess.run([sys.executable, "-c", names], capture_output=True, text=True, check=True)
    reasoning, tool_call = json.loads(done.stdout)
    assert (set(reasoning), set(tool_call)) == (
        set(parsers(REASONING_FLAG).since),
        set(parsers(TOOL_FLAG).since),
    )


@pytest.mark.parametrize(
    ("module", "arguments", "expected"),
    [
        ("dynamo.vllm", ["--max-model-len", "8k"], {"max-model-len": 8000}),
        ("dynamo.vllm", ["--max_model_len=8192"], {"max-model-len": 8192}),
        ("dynamo.vllm", ["-tp", "4"], {"tensor-parallel-size": 4}),
        ("dynamo.vllm", ["--no-enable-prefix-caching"], {"enable-prefix-caching": False}),
        ("dynamo.vllm", ["--enforce-eager", "--seed", "1"], {"enforce-eager": True, "seed": 1}),
        ("dynamo.vllm", ["--served-model-name", "a", "b"], {"served-model-name": ["a", "b"]}),
        ("dynamo.sglang", ["--tp", "4"], {"tp-size": 4}),
        ("dynamo.sglang", ["--context-length", "32k"], {"context-length": 32000}),
        ("dynamo.trtllm", ["--free-gpu-memory-fraction", "0.8"], {"free-gpu-memory-fraction": 0.8}),
        ("dynamo.frontend", ["--router-mode", "kv"], {"router-mode": "kv"}),
        ("dynamo.frontend", ["--router-replica-sync"], {"router-replica-sync": True}),
        ("dynamo.frontend", ["--no-such", "x"], {"--no-such": "x"}),
    ],
)  # fmt: skip
def test_flags_are_read(module: str, arguments: list[str], expected: dict[str, Any]) -> None:
    assert values(module, *arguments) == expected


def test_a_negative_number_is_a_value() -> None:
    assert values("dynamo.sglang", "--chunked-prefill-size", "-1") == {"chunked-prefill-size": -1}


def test_a_module_without_a_table_has_none() -> None:
    assert flag_table("dynamo.global_router") is None
