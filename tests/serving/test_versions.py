"""The versions of Dynamo and the engines in an image, from its name and tag."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

from penstock.engines.releases import DEPLOYED, RELEASES
from penstock.manifests.deployment import Engine
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints, understand
from penstock.serving.versions import Software, software
from tests.checks.support import VLLM_AGG, manifest

WORKER = "dgd/spec/components/worker"
IMAGE = f"{WORKER}/podTemplate/spec/containers/main/image"
NVIDIA = "nvcr.io/nvidia/ai-dynamo/vllm-runtime"


def of_image(folder: Path, image: str, **override: str) -> Software:
    changes = {IMAGE: image, **{f"{WORKER}/{key}": value for key, value in override.items()}}
    path = folder / "manifest.yaml"
    path.write_text(manifest(VLLM_AGG, changes))
    return software(understand(open_source(path), Hints()).pods["worker"])


@pytest.mark.parametrize(
    ("image", "dynamo", "vllm"),
    [
        (f"{NVIDIA}:1.3.0", "1.3.0", "0.23.0"),
        (f"{NVIDIA}:v1.6.1-cuda13", "1.6.1", "0.31.0"),
        (f"{NVIDIA}:1.1.1-efa-amd64", "1.1.1", "0.19.0"),
        (f"{NVIDIA}:0.8.1.post1", "0.8.1.post1", "0.12.0"),
        (f"{NVIDIA}:1.6.1-efa@sha256:{'0' * 64}", "1.6.1", "0.31.0"),
        ("registry.example.com:5000/dynamo/vllm-runtime:v1.6.1-corp.2", "1.6.1", "0.31.0"),
        # Builds between two releases: from the release before.
        (f"{NVIDIA}:1.5.0-kimi-k3-dev.1", "1.4.2", "0.26.0"),
        (f"{NVIDIA}:1.4.0-some-model", "1.3.1", "0.23.0"),
        # Of these, the engine is known.
        (f"{NVIDIA}:1.2.0-deepseek-v4-cuda13-dev.2", "1.1.1", "0.20.0"),
        (f"{NVIDIA}:1.2.0-deepseek-v4-cuda13-dev.3", "1.1.1", "0.20.1"),
        (f"{NVIDIA}:1.3.0-dev.1", "1.2.1", "0.22.0"),
        ("registry.example/vllm-runtime:1.3.0-dev.1", "1.2.1", "0.20.1"),
        (f"{NVIDIA}:1.7.0.dev20261026", "1.6.2", "0.31.0"),
        # Newer and older than all known releases: the newest and the oldest.
        (f"{NVIDIA}:1.9.0", "1.7.0", "0.33.0"),
        (f"{NVIDIA}:0.2.1", "0.4.1", "0.10.1.1"),
        # The engine's own images.
        ("vllm/vllm-openai:v0.23.0", "", "0.23.0"),
        # No version.
        (f"{NVIDIA}:my-tag", "", ""),
        (f"{NVIDIA}@sha256:{'0' * 64}", "", ""),
        ("registry.example.com:5000/llm/serving", "", ""),
        ("registry.example.com/llm/serving:7.2.0", "", ""),
    ],
)
def test_an_image_is_judged_as_a_known_release(
    tmp_path: Path, image: str, dynamo: str, vllm: str
) -> None:
    versions = of_image(tmp_path, image)
    assert " ".join(map(str, versions.dynamo)) == dynamo
    assert " ".join(map(str, versions.engines.get(Engine.VLLM, ()))) == vllm


def test_an_override_states_dynamos_version(tmp_path: Path) -> None:
    image = "registry.example.com/llm/serving:stable"
    versions = of_image(tmp_path, image, runtimeVersionOverride="1.4.0")
    assert list(map(str, versions.dynamo)) == ["1.4.0"]
    assert list(map(str, versions.engines[Engine.SGLANG])) == [RELEASES["1.4"].sglang]


def test_the_table_has_the_engines_that_the_installed_dynamo_requires() -> None:
    release = RELEASES[DEPLOYED]
    assert importlib.metadata.version("ai-dynamo").startswith(f"{DEPLOYED}.")
    required = "\n".join(importlib.metadata.requires("ai-dynamo") or ())
    for package, version in (
        ("vllm", release.vllm),
        ("sglang", release.sglang),
        ("tensorrt-llm", release.trtllm),
    ):
        (required_version,) = re.findall(
            rf"^{package}(?:\[[^]]*\])?==([\w.]+)", required, re.MULTILINE
        )
        assert required_version == version, package
