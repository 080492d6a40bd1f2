"""Rules about what NVIDIA's image of a release contains: model architectures and GPU kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from penstock.checks.finding import Fix, RuleResult
from penstock.engines.architectures import first_version
from penstock.engines.releases import RELEASES
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import SEMVER, TITLES, software, tag_of
from penstock.serving.worker import Worker

NVIDIA = re.compile(r"nvcr\.io/nvidia/ai-dynamo/")
# Settings with which the engine loads another class than config.json names.
OTHER_CLASS = ("hf-overrides", "json-model-override-args", "model-impl")
PLUGINS = ("VLLM_PLUGINS", "SGLANG_EXTERNAL_MODEL_PACKAGE")
SM_103 = 103
# CUDA 13 in a tag: `1.2.1-cuda13`.
CUDA_13 = re.compile(r"cu(da)?-?13")


def unknown_architecture(deployment: ServingDeployment) -> Iterator[RuleResult]:
    for worker in deployment.one_worker_per_component:
        facts = deployment.facts_of(worker)
        first = first_version(worker.engine, facts.architecture) if facts is not None else None
        if facts is None or first is None or _may_differ(worker):
            continue
        version = _engine_version(worker)
        if version is None or version >= Version(first):
            continue
        title = TITLES[worker.engine]
        yield RuleResult(
            location=worker.location("field", "main", "image"),
            message=f"{title} {version} in this image has no {facts.architecture}, which {first} "
            "added",
            fix=_release_with(worker, first),
        )


def _may_differ(worker: Worker) -> bool:
    """Whether the engine may not be the image's, or loads another class."""
    overrides = any(worker.get(key) is not None for key in OTHER_CLASS)
    plugins = any(worker.env(name) for name in PLUGINS)
    return overrides or plugins or "pip install" in str(worker.pod.cursor.value)


def _engine_version(worker: Worker) -> Version | None:
    """The engine's version in NVIDIA's image: for a build between releases, in the later one."""
    image = software(worker.pod)
    if not NVIDIA.match(worker.pod.image) or image.stated is None or not image.dynamo:
        return None
    if image.later is not None:
        return Version(getattr(image.later, worker.engine.value))
    return image.engines[worker.engine][0]


def _release_with(worker: Worker, first: str) -> Fix:
    release = next(
        r for r in RELEASES.values() if Version(getattr(r, worker.engine.value)) >= Version(first)
    )
    minor = ".".join(release.dynamo.split(".")[:2])
    return _fix_of(worker, f"Use Dynamo {minor} or later.", release.dynamo)


def _fix_of(worker: Worker, text: str, tag: str) -> Fix:
    """The same image with another tag, if its tag is only a version."""
    old = tag_of(worker.pod.image)
    if old is None or not SEMVER.fullmatch(old) or "-" in old or "@" in worker.pod.image:
        return Fix(text=text)
    image = worker.pod.image.removesuffix(old) + tag
    return Fix(text=text, fields={"main/image": image}, graph={"engine.image": image})


def cuda_12(deployment: ServingDeployment) -> Iterator[RuleResult]:
    if deployment.gpu is None or deployment.gpu.sm != SM_103:
        return
    for worker in deployment.one_worker_per_component:
        image, tag = software(worker.pod), tag_of(worker.pod.image) or ""
        if worker.engine not in (Engine.VLLM, Engine.SGLANG) or not NVIDIA.match(worker.pod.image):
            continue
        if image.stated is None or image.later is not None or CUDA_13.search(tag):
            continue
        # Tags with -cuda13 exist since 0.8, where they were experimental, but not for 0.9.
        has_variant = image.stated >= Version("1.0")
        text = "Use the tag with -cuda13." if has_variant else "Use Dynamo 1.3 or later."
        other = f"{tag}-cuda13" if has_variant else RELEASES["1.3"].dynamo
        yield RuleResult(
            location=worker.location("field", "main", "image"),
            message=f"{tag} has CUDA 12, which does not support {deployment.gpu.name.upper()}",
            fix=_fix_of(worker, text, other),
        )
