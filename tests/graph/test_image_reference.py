"""Images that Kubernetes cannot parse, and what to write instead."""

from __future__ import annotations

import re

import pytest

from penstock.graph.image_reference import PATTERN, image_problem

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    "image",
    [
        "vllm",
        "vllm:1.6.1",
        "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1-efa",
        "localhost:5000/vllm",
        "[::1]:5000/vllm:1",
        "Registry/vllm:1",  # with an upper-case letter it is the name of a registry
        f"vllm@{DIGEST}",
        f"vllm:1.6.1@{DIGEST}",
        "a__b/c---d/e.f:_x",
        "vllm:" + "t" * 128,
    ],
)
def test_a_well_formed_image_has_no_problem(image: str) -> None:
    assert image_problem(image) is None
    assert re.search(PATTERN, image)


@pytest.mark.parametrize(
    ("image", "problem", "written"),
    [
        ("vllm:latest:1", "has two tags, 'latest' and '1'", "vllm:latest"),
        ("VLLM:1", "has upper-case letters in 'VLLM'", "vllm:1"),
        ("nvcr.io/NVIDIA/x:1", "has upper-case letters in 'NVIDIA/x'", "nvcr.io/nvidia/x:1"),
        ("https://nvcr.io/x:1", "begins with https://", "nvcr.io/x:1"),
        ("docker://x:1", "begins with docker://", "x:1"),
        ("a/b :1", "contains a space", "a/b:1"),
        ("x:1\n", "contains a space", "x:1"),
        ("nvcr.io/x:", "ends with a colon, without a tag", "nvcr.io/x"),
        ("x@sha256:12", "has the malformed digest 'sha256:12'", "x"),
        ("x:1@", "has the malformed digest ''", "x:1"),
        ("x:-1", "has the malformed tag '-1'", "x:1.6.1"),
        ("x:" + "t" * 129, "has the malformed tag", "x:1.6.1"),
        ("a//b", "is not a reference of an image", "registry.example/team/vllm-runtime:1.6.1"),
        ("a___b", "is not a reference of an image", "registry.example/team/vllm-runtime:1.6.1"),
        (":1", "is not a reference of an image", "registry.example/team/vllm-runtime:1.6.1"),
        ("a" * 256, "has a name of 256 characters", "registry.example/team/vllm-runtime:1.6.1"),
    ],
)
def test_the_image_to_write_is_well_formed(image: str, problem: str, written: str) -> None:
    found = image_problem(image)
    assert found is not None
    message, fix = found
    assert message.startswith(problem)
    assert f"`{written}`" in fix
    assert image_problem(written) is None
    assert len(image) > 255 or not re.fullmatch(PATTERN, image)
