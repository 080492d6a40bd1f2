"""Tags that NVIDIA has not published."""

from __future__ import annotations

import pytest

from penstock.checks.finding import Level
from penstock.checks.registry import by_id
from penstock.checks.rules.versions.images import nearest_published
from penstock.engines.flags import load
from penstock.engines.releases import NEWEST, RELEASES
from tests.checks.support import check, vllm_agg_dgd
from tests.checks.test_versions import IMAGE, REGISTRY


@pytest.mark.parametrize(
    ("image", "instead"),
    [
        ("vllm-runtime:1.3.1", None),
        ("vllm-runtime:1.3.7", "1.3.1"),
        ("vllm-runtime:1.5.2-efa", "1.5.1"),  # no patch after 1.7 was published
        ("vllm-runtime:1.6.3", None),  # the list may be older
        ("vllm-runtime:1.7.1-efa", None),
        ("vllm-runtime:1.8.0", None),
        ("vllm-runtime:0.5.0", None),
        ("vllm-runtime:0.5.2", "0.5.1"),
        ("vllm-runtime:0.3.9", None),  # older than the list and the releases before it
        ("vllm-runtime:0.10.0", "0.9.1"),
        ("dynamo-frontend:0.5.2", None),  # PS783: the list of this image begins at 0.8
        ("snapshot-agent:1.5.9", None),  # PS783: no image since 1.5
        ("vllm-runtime:v1.6.1", "1.6.1"),
        ("vllm-runtime:v1.6.1-efa", "1.6.1-efa"),
        ("vllm-runtime:v1.3.7", "1.3.1"),
        ("vllm-runtime:v1.8.0", None),
        ("vllm-runtime:1.6.1-cuda14", "1.6.1"),
        ("vllm-runtime:1.6.1-efa", None),
        ("vllm-runtime:1.3.0-cuda13", "1.3.0"),
        ("vllm-runtime:1.1.1-efa", "1.1.1-efa-amd64"),
        ("vllm-runtime:1.3.0-efa-amd64", "1.3.0-efa"),
        ("vllm-runtime:1.6.1-mine", "1.6.1"),
        ("vllm-runtime:1.3.0-foo", "1.3.0"),
        ("vllm-runtime:0.5.1-rc0.pre3", None),
        ("vllm-runtime:1.5.0-kimi-k3-dev.1", None),
        ("vllm-runtime:1.5.0-dev.1", None),
        ("sglang-runtime:0.7.0.post2", "0.7.0"),
        ("vllm-runtime:0.7.0.post2", None),
        ("dynamo-planner:1.0.2", None),  # PS783: no image of this name
        ("vllm-runtime-enterprise:1.4.9", None),
        (f"vllm-runtime:1.3.7@sha256:{'0' * 64}", None),
    ],
)
def test_the_nearest_published_tag(image: str, instead: str | None) -> None:
    assert nearest_published(f"{REGISTRY}/{image}") == instead
    assert nearest_published(f"registry.example/{image}") is None


def test_an_unpublished_patch_of_nvidia_is_one_finding() -> None:
    def both(image: str) -> list[tuple[str, Level]]:
        findings = check(vllm_agg_dgd({IMAGE: image}))
        return [(f.rule, f.level) for f in findings if f.rule in ("PS910", "PS912")]

    assert both(f"{REGISTRY}/vllm-runtime:1.3.7") == [("PS912", Level.ERROR)]
    assert both("registry.example/vllm-runtime:1.3.7") == [("PS910", Level.WARNING)]


def test_the_list_has_each_known_release_from_0_6() -> None:
    known = [r.dynamo for name, r in RELEASES.items() if tuple(map(int, name.split("."))) >= (0, 6)]
    tags = load("published_tags.json")["images"]
    for image in ("vllm-runtime", "sglang-runtime", "tensorrtllm-runtime"):
        assert set(known) <= set(tags[image])
        assert len(set(tags[image])) == len(tags[image])


def test_the_texts_of_the_rules_name_the_list_and_the_newest_release() -> None:
    table = load("published_tags.json")
    assert f"list of {table['date']}" in " ".join(by_id("PS912").cause.split())
    assert f"In {', '.join(table['only_plain'])}, whose variants" in " ".join(
        by_id("PS912").exceptions.split()
    )
    assert RELEASES[NEWEST].dynamo in by_id("PS910").cause
