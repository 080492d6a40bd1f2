"""The classes of TensorRT-LLM's engine file have exactly the names and choices of 1.3.0rc29."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import llm_args

REFERENCE = json.loads(llm_args.REFERENCE.read_text("utf-8"))


def test_the_differences_are_exactly_the_explained_ones() -> None:
    assert set(llm_args.differences(REFERENCE)) == set(llm_args.EXPLAINED)


def test_a_field_or_choice_that_one_side_lacks_is_a_difference() -> None:
    changed = copy.deepcopy(REFERENCE)
    changed["classes"]["KvCacheConfig"]["fields"] += ["new_key"]
    changed["classes"]["MoeConfig"]["fields"].remove("load_balancer")
    changed["classes"]["MoeConfig"]["choices"]["backend"] += ["NEW"]
    found = set(llm_args.differences(changed)) - set(llm_args.EXPLAINED)
    assert found == {"KvCacheConfig.new_key", "MoeConfig.load_balancer", "MoeConfig.backend"}


def test_fields_of_a_source_file_include_those_of_its_bases(tmp_path: Path) -> None:
    source = tmp_path / "llm_args.py"
    source.write_text(
        "class Base:\n    common: int = 0\n    _private: int = 0\n"
        "class KvCacheConfig(Base):\n    dtype: str = 'auto'\n    kind: ClassVar[str] = ''\n"
    )
    found = llm_args.source_differences(source)
    assert found["KvCacheConfig.common"] == "only TensorRT-LLM"
    assert "KvCacheConfig.dtype" not in found
    assert "KvCacheConfig._private" not in found
    assert found["TorchLlmArgs"] == "no such class"
