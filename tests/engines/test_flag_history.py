"""The releases that have a flag."""

from __future__ import annotations

import pytest

from penstock.engines.flag_history import has_history, presence
from penstock.engines.flags import flag_table
from penstock.engines.releases import NEWEST, RELEASES


@pytest.mark.parametrize(
    ("module", "flag", "span"),
    [
        ("dynamo.vllm", "--is-prefill-worker", ("0.4", "1.3")),
        ("dynamo.vllm", "--disable-log-requests", ("0.4", "1.0")),
        ("dynamo.vllm", "--connector", ("0.5", "0.9")),
        ("dynamo.trtllm", "--publish-kv-events", ("1.3", "1.7")),
        # argparse accepts --model for --model-path.
        ("dynamo.trtllm", "--model", ("0.4", "1.7")),
        ("dynamo.vllm", "--no-enable-prefix-caching", ("0.4", "1.7")),
        ("dynamo.vllm", "--no-such-flag", None),
        ("dynamo.planner", "--environment", ("0.4", "0.9")),
        ("dynamo.planner", "--config", ("1.0", "1.7")),
    ],
)
def test_a_flag_is_present_from_one_release_to_another(
    module: str, flag: str, span: tuple[str, str] | None
) -> None:
    seen = presence(module, flag)
    assert (seen and (seen.first, seen.last)) == span


@pytest.mark.parametrize("module", ["dynamo.frontend", "dynamo.trtllm", "dynamo.vllm"])
def test_the_sources_have_all_flags_of_the_newest_parsers(module: str) -> None:
    """Otherwise a flag that a release has would be reported as missing in it."""
    table = flag_table(module)
    assert table is not None
    known = list(RELEASES)
    for spelling in table.by_spelling:
        if spelling.startswith("--") and (span := presence(module, spelling)) is not None:
            assert known.index(span.first) <= known.index(NEWEST), spelling


def test_penstocks_own_modules_have_no_history() -> None:
    assert not has_history("penstock.llamacpp")
