"""A flag of another engine is answered with the same setting, or with whose flag it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from penstock.engines.equivalent_flags import SAME, SIMILAR, same_meaning
from penstock.engines.flags import flag_table, load
from penstock.engines.trtllm_arguments import TABLE, refused_settings
from penstock.manifests.deployment import Engine
from tests.checks.support import SGLANG_AGG, VLLM_AGG, check, graph

ENGINES = (Engine.VLLM, Engine.SGLANG, Engine.TRTLLM)
FILE = frozenset(f"--{key.replace('_', '-')}" for key in load(TABLE)["file"]["keys"])


def flags(engine: Engine) -> frozenset[str]:
    table = flag_table(engine.module)
    assert table is not None
    return frozenset(s for s in table.by_spelling if s.startswith("--") and s[:5] != "--no-")


@pytest.mark.parametrize(("base", "engine"), [(VLLM_AGG, ENGINES[0]), (SGLANG_AGG, ENGINES[1])])
def test_a_flag_of_another_engine_is_never_answered_with_an_unrelated_one(
    base: Mapping[str, Any], engine: Engine
) -> None:
    """The nearest of 500 names is a coincidence: `--moe-config` resembles `--pooler-config`."""
    foreign = frozenset().union(*(flags(each) for each in ENGINES), FILE) - flags(engine)
    sample = {*sorted(foreign)[::4], "--moe-config", "--max-num-tokens", "--max-batch-size"}
    keys = {flag[2:]: 1 for flag in sample - {"--help", "--config"}}
    findings = check(graph(base, {"worker/config": keys}), only="PS142")
    answered = {re.split(r"[ .,]", f.fix)[1]: f.fix for f in findings}
    assert len(answered) > 50
    for key, fix in answered.items():
        names = next((names for names in (*SAME, *SIMILAR) if f"--{key}" in names), ())
        suggested = re.search(r"^(?:Rename \S+ to|Use) (\S+?)\.?(?: |$)", fix)
        assert f"--{suggested[1]}" in names if suggested else "which is" in fix or "has it" in fix


def same_as(key: str, names: Sequence[str]) -> str | None:
    flag = same_meaning(f"--{key.replace('_', '-')}", names, SAME)
    return flag and flag[2:].replace("-", "_")


def test_a_flag_as_a_key_of_tensorrt_llms_file_is_never_answered_with_an_unrelated_key() -> None:
    foreign = frozenset().union(*(flags(each) for each in ENGINES)) - FILE
    keys = [flag[2:].replace("-", "_") for flag in foreign]
    suggested = {
        key: setting.fix
        for key in keys
        for setting in refused_settings({key: 1})
        if setting.fix.startswith("Did you mean")
    }
    assert suggested == {
        key: f"Did you mean `{same_as(key, sorted(FILE))}`?" for key in keys if key in suggested
    }
    assert suggested["max_num_seqs"] == "Did you mean `max_batch_size`?"
    assert "data_parallel_size" not in suggested
    (unknown,) = refused_settings({"enable_eplb": True})
    assert unknown.fix.startswith("Remove it: it is a flag of dynamo.vllm and dynamo.sglang.")
