"""Rules about images: is the reference well-formed, and does the image contain the module?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.containers import Process, mappings, processes
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location, Path
from penstock.image_reference import image_problem
from penstock.manifests.deployment import Component
from penstock.manifests.placeholders import placeholder
from penstock.manifests.pods import V1ALPHA1, Pod
from penstock.nearest import nearest
from penstock.serving.deployment import ServingDeployment

# NVIDIA's images, and the engines that each contains (container/ of ai-dynamo/dynamo).
IMAGE = re.compile(
    r"^nvcr\.io/nvidia/ai-dynamo/"
    r"(vllm-runtime|sglang-runtime|tensorrtllm-runtime|dynamo-frontend|dynamo-planner)[^/]*$"
)
ENGINES = {
    "vllm-runtime": "vllm",
    "sglang-runtime": "sglang",
    "tensorrtllm-runtime": "trtllm",
    "dynamo-frontend": "",
    "dynamo-planner": "",
}
# The images that NVIDIA has published, and the release that had them first: Dynamo's pages
# "Release Artifacts" of 0.9 to 1.6 and "Nightly Release Info", and that of ModelExpress. The
# inventory begins at 0.6.
OLDEST = "0.6"
PUBLISHED = {
    "vllm-runtime": OLDEST,
    "sglang-runtime": OLDEST,
    "tensorrtllm-runtime": OLDEST,
    "vllm-runtime-nightly": OLDEST,
    "sglang-runtime-nightly": OLDEST,
    "tensorrtllm-runtime-nightly": OLDEST,
    "kubernetes-operator": OLDEST,
    "modelexpress-server": OLDEST,
    "dynamo-frontend": "0.8",
    "snapshot-agent": "1.0",
    "dynamo-planner": "1.1",
    # The page of 1.6 has it; which release was the first is not known.
    "dynamo-sidecar": OLDEST,
    # Not in the inventory, but Dynamo's own code and tests name it.
    "epp-image": OLDEST,
}
OF_NVIDIA = re.compile(r"^nvcr\.io/nvidia/ai-dynamo/([\w.-]+)(:v?\d+\.\d+\.\d+)?")
# Ends of names that container/ builds for other hardware (dynamo: docs of Intel XPU).
_OTHER_HARDWARE = ("-xpu", "-cpu")
RUNTIME = {"vllm": "vllm-runtime", "sglang": "sglang-runtime", "trtllm": "tensorrtllm-runtime"}


def _contained(process: Process) -> tuple[str, str] | None:
    """(image, engine in it) of an image of NVIDIA; the engine is empty if it has none."""
    found = IMAGE.match(process.image)
    return (found[1], ENGINES[found[1]]) if found else None


def image_of_another_engine(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for process in processes(deployment):
        contained = _contained(process)
        if contained is None:
            continue
        image, engine = contained
        needed = _needed(process)
        if not needed or needed == engine:
            continue
        yield RuleResult(
            location=process.location("field", "main", "image"),
            message=f"{process.component.name} runs {needed}, but the image {image} contains "
            f"{engine or 'no engine'}",
            fix=Fix(text=f"Use the image {RUNTIME[needed]}."),
        )


def _needed(process: Process) -> str:
    """The engine that the process imports."""
    package, _, name = (process.launch.module or "").partition(".")
    name = name.partition(".")[0]
    if package == "dynamo" and name in RUNTIME:
        return name
    if package == "dynamo" and name == "frontend":
        processor = process.text("--dyn-chat-processor", "DYN_CHAT_PROCESSOR")
        return processor[0] if processor and processor[0] in ("vllm", "sglang") else ""
    return ""


def unpublished_image(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        found = OF_NVIDIA.match(deployment.pods[component.name].image)
        first = PUBLISHED.get(found[1]) if found else OLDEST
        if found is None or first == OLDEST or (first and not found[2]):
            continue
        yield RuleResult(
            location=Location(component.name, "field", ("main", "image")),
            message=f"NVIDIA has published no image {found[1]}{_before(first)}",
            fix=Fix(text=_instead(found[1], first, component)),
            versions=Versions(dynamo=f"<{first}") if first else None,
        )


def _instead(name: str, first: str | None, component: Component) -> str:
    if name.endswith(_OTHER_HARDWARE):
        return (
            "Build the image from Dynamo's container/, and name the repository that you push it to."
        )
    near = nearest(name, PUBLISHED) or RUNTIME.get(str(component.engine), "")
    return f"Use {near}." if near and not first else "Use the image of an engine."


def _before(release: str | None) -> str:
    return f" before Dynamo {release}" if release else ""


def malformed_image(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        pod = deployment.pods[component.name]
        for path, image in _images(pod, deployment.api_version == V1ALPHA1):
            if not image or placeholder(image) or (found := image_problem(image)) is None:
                continue
            problem, fix = found
            yield RuleResult(
                location=Location(component.name, "field", path),
                message=f"the image {image!r} {problem}",
                fix=Fix(text=fix),
            )


def _images(pod: Pod, is_v1alpha1: bool) -> Iterator[tuple[Path, str]]:
    """The images of a pod with their fields: of the main container, sidecars, init containers."""
    yield ("main", "image"), pod.image
    for key in ("containers", "initContainers"):
        for index, container in enumerate(mappings(pod.spec.get(key))):
            is_main = key == "containers" and container.get("name") == "main"
            image = container.get("image")
            if isinstance(image, str) and (is_v1alpha1 or not is_main):
                yield ("pod", key, index, "image"), image
