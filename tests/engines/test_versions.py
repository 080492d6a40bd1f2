"""The tables of Dynamo's versions: made from the parsers, and compared."""

from __future__ import annotations

import pytest

import dump_dynamo_versions
from penstock.engines.versions import compare, differences, facts, first_with, knows
from penstock.graph.versions import DEFAULT, VERSIONS, WITHOUT_WHEEL, minor, order
from penstock.local.versions import environment_of, python_of

NEXT = "1.7.0.dev20261026"
# Marked with `remove_in="v1.7"` in kv_router_args.py of the wheel 1.6.1.
ANNOUNCED = {
    "--load-aware",
    "--router-decode-active-request-weight",
    "--router-decode-policy",
    "--router-kv-overlap-score-credit",
    "--router-kv-overlap-score-credit-decay",
    "--router-kv-overlap-score-weight",
    "--router-prefill-load-scale",
    "--router-prefill-policy",
    "--router-queue-policy",
    "--router-queue-threshold",
    "--router-temperature",
    "--shared-cache-multiplier",
}


@pytest.mark.program
@pytest.mark.parametrize(
    "version",
    [
        DEFAULT,
        *(
            pytest.param(version, marks=pytest.mark.needs(environment_of(version)))
            for version in VERSIONS
            if version != DEFAULT and version not in WITHOUT_WHEEL
        ),
    ],
)
def test_the_table_is_what_the_parsers_of_the_version_accept(version: str) -> None:
    """For versions other than the default, in their environment."""
    python = dump_dynamo_versions.sys.executable if version == DEFAULT else python_of(version)
    assert python is not None
    accepted = dump_dynamo_versions.child(python)
    assert accepted.pop("version") == version
    assert accepted == facts(version)


def test_the_flags_that_are_announced_to_be_removed() -> None:
    announced = [d for d in compare(DEFAULT, NEXT) if d.what == "deprecated"]
    assert {d.flag for d in announced if d.module == "dynamo.frontend"} == ANNOUNCED
    assert all("announced for v1.7, still accepted by" in d.detail for d in announced)
    assert all("--router-policy-config" in d.replacement for d in announced)


def test_the_pre_release_removes_and_renames_no_flag() -> None:
    changes = differences(DEFAULT, NEXT)
    assert "removed" not in changes
    assert "renamed" not in changes
    assert "--batch-gateway-url (frontend)" in changes["added"]
    assert "--freeze-gc-after-init (sglang, vllm)" in changes["added"]
    assert (
        "--engine-request-limit: the variable DYN_ENGINE_REQUEST_LIMIT is renamed to "
        "DYN_BACKEND_ADMISSION_ENGINE_REQUEST_LIMIT; the old name is still read (trtllm, vllm)"
        in changes["changed"]
    )


def test_a_variable_that_the_parser_no_longer_names_is_not_called_unset() -> None:
    (change,) = (
        d
        for d in compare("1.5.1", DEFAULT)
        if (d.module, d.flag, d.what) == ("dynamo.frontend", "--aic-backend", "changed")
    )
    assert change.detail == (
        "the parser no longer names the variable DYN_AIC_BACKEND; it was not derived whether "
        "Dynamo still reads it"
    )


def test_a_removed_flag_names_its_replacement() -> None:
    removed = [d for d in compare("1.5.1", DEFAULT) if d.what == "removed"]
    assert [(d.flag, d.replacement, d.also) for d in removed] == [
        ("--no-publish-events-and-metrics", "--no-publish-kv-events", ""),
        ("--publish-events-and-metrics", "--publish-kv-events", "--publish-metrics"),
    ]


@pytest.mark.parametrize(
    ("flag", "version"),
    [
        ("--batch-gateway-url", NEXT),
        ("--response-plane", "1.6.1"),
        ("--router-mode", "1.5.1"),
        ("--no-such-flag", None),
    ],
)
def test_the_first_version_with_a_flag(flag: str, version: str | None) -> None:
    assert first_with("dynamo.frontend", flag) == version
    assert knows(DEFAULT, "dynamo.frontend", flag) == (version in ("1.5.1", "1.6.1"))


def test_a_release_without_a_wheel_has_the_facts_of_the_version_before_it() -> None:
    """Each is the newest version of the same minor release that has a wheel."""
    for version, other in WITHOUT_WHEEL.items():
        same = [v for v in VERSIONS if minor(v) == minor(version) and v not in WITHOUT_WHEEL]
        assert other == same[-1]
        assert order(other) < order(version)
        assert facts(version) is facts(other)
    assert [v for v in VERSIONS if not facts(v)["reads_policy_file"]] == ["1.5.1"]
