"""The ranges of versions themselves."""

from __future__ import annotations

import re

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import VERSION_PATTERN, Version

from penstock.checks.registry import RULES
from penstock.checks.version_range import NAMES, Versions, contains
from penstock.engines.releases import RELEASES


def test_every_range_has_a_known_version() -> None:
    for rule in RULES:
        assert rule.versions.text(), rule.id
        assert "<" not in rule.versions.text(), rule.id


def test_a_range_that_a_patch_ends() -> None:
    assert Versions(dynamo=">=1.6,<1.6.2").text() == "Dynamo 1.6 before 1.6.2"


def test_a_range_contains_what_packaging_says_that_it_contains() -> None:
    ranges = {getattr(rule.versions, name) for rule in RULES for name in NAMES} - {""}
    ranges |= {"<1.7rc1", "<=1.7.0.post1", ">=1.7.dev0, <1.8"}
    known = {getattr(release, name) for release in RELEASES.values() for name in NAMES}
    limits = {limit.strip(" <>=") for text in ranges for limit in text.split(",")}
    suffixes = ("", ".0", ".1", "1", "rc1", ".dev3", "rc2.dev1", ".post1", ".post1.dev2", "+cu13")
    texts = [text.partition("+")[0] + suffix for text in known | limits for suffix in suffixes]
    versions = [Version(text) for text in texts if re.fullmatch(VERSION_PATTERN, text, re.VERBOSE)]
    assert len(ranges) > 40
    assert len(versions) > 300
    for text in ranges:
        accepted = SpecifierSet(text)
        for version in versions:
            expected = accepted.contains(version, prereleases=True)
            assert contains(text, version) is expected, (text, version)


def test_a_range_with_another_operator_is_refused() -> None:
    for text in ("==1.6.1", "~=1.6", "!=1.6", ">1.6", "1.6", ""):
        with pytest.raises(ValueError, match="must begin with"):
            contains(text, Version("1.6.1"))


def test_a_range_states_versions_or_why_there_are_none() -> None:
    for ranges in ({}, {"dynamo": ">=1.4", "every": "Kubernetes"}):
        with pytest.raises(ValueError, match="give either ranges or the reason"):
            Versions(**ranges)
    assert Versions(dynamo=">=1.4,<1.7", vllm=">=0.28,<0.32").text() == (
        "Dynamo 1.4 to 1.6, vLLM 0.28.0 to 0.31.0"
    )
    assert (
        Versions(dynamo=">=1.4", vllm=">=0.10").text()
        == "Dynamo since 1.4, vLLM 0.10.1.1 to 0.33.0"
    )
