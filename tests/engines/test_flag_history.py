"""The releases that have a flag."""

from __future__ import annotations

import pytest

from penstock.engines.flag_history import LAST, has_history, presence
from penstock.engines.flags import load
from penstock.engines.releases import RELEASES


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
        # Of other programs in the wheel, and of shared groups that the module does not use.
        ("dynamo.vllm", "--pip-args", None),
        ("dynamo.mocker", "--save-plot", None),
        ("dynamo.frontend", "--foo", None),
        ("dynamo.sglang", "--tokenizer-ipc-name", None),
        ("dynamo.sglang", "--aic-backend", None),
        # The parser builds the names of 1.6.
        ("dynamo.frontend", "--aic-backend", ("1.1", "1.7")),
        ("dynamo.frontend", "--aic-backends", None),
        ("dynamo.router", "--ais-backend", ("1.6", "1.7")),
        ("dynamo.router", "--http-timeout", None),
        ("dynamo.planner", "--environment", ("0.4", "0.9")),
        ("dynamo.planner", "--config", ("1.0", "1.7")),
    ],
)
def test_a_flag_is_present_from_one_release_to_another(
    module: str, flag: str, span: tuple[str, str] | None
) -> None:
    seen = presence(module, flag)
    assert (seen and (seen.first, seen.last)) == span


TABLES = [
    (version, module)
    for version, table in load("dynamo_versions.json")["versions"].items()
    for module in table["modules"]
    if has_history(module)
]


@pytest.mark.parametrize(("version", "module"), TABLES)
def test_the_sources_have_all_flags_of_the_parsers(version: str, module: str) -> None:
    """Otherwise a flag that a release has would be reported as missing in it."""
    releases, release = list(RELEASES), ".".join(version.split(".")[:2])
    flags = load("dynamo_versions.json")["versions"][version]["modules"][module]
    for spelling in (s for flag in flags.values() for s in flag["spellings"]):
        if spelling.startswith("--") and spelling != "--help" and (module, spelling) not in LAST:
            span = presence(module, spelling)
            assert span is not None, spelling
            between = releases[releases.index(span.first) : releases.index(span.last) + 1]
            assert release in between, spelling


def test_penstocks_own_modules_have_no_history() -> None:
    assert not has_history("penstock.llamacpp")
