"""vLLM's command-line habits, one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.engines.substitutes.flexible_parser import FlexibleArgumentParser, human_int


def parsed(*words: str) -> Any:
    parser = FlexibleArgumentParser(add_help=False)
    parser.add_argument("--json-arg", type=json.loads)
    parser.add_argument("--name-with-dash")
    parser.add_argument("--share", type=float)
    return parser.parse_args(words)


def test_dotted_keys_keep_their_underscores() -> None:
    words = ("--json_arg.key_one", "1", "--json_arg.two.three=x", "--json-arg.list+", "a,b")
    assert parsed(*words).json_arg == {"key_one": 1, "two": {"three": "x"}, "list": ["a", "b"]}


def test_values_keep_their_underscores_and_dots() -> None:
    found = parsed("--name_with_dash=a_b.c", "--share", "0.5")
    assert (found.name_with_dash, found.share) == ("a_b.c", 0.5)


def test_a_list_grows_with_each_plus_flag() -> None:
    words = ("--json-arg.l+", "a", "--json-arg.l+", "b")
    assert parsed(*words).json_arg == {"l": ["a", "b"]}


@pytest.mark.parametrize(("text", "value"), [("25.6k", 25_600), ("1K", 1024), ("7", 7)])
def test_suffixes_of_numbers(text: str, value: int) -> None:
    assert human_int(text) == value
