"""Images: those that NVIDIA has published, and the engine that each contains."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.checks.rules.containers import Process, mappings
from penstock.engines.settings import Path
from penstock.manifests.deployment import Component, Role
from penstock.manifests.pods import Pod
from penstock.text.names import KEY_CUTOFF, nearest

# The engines' images (container/ of ai-dynamo/dynamo); others of these names contain none.
IMAGE_OF_ENGINE: Mapping[str, str] = {
    "vllm": "vllm-runtime",
    "sglang": "sglang-runtime",
    "trtllm": "tensorrtllm-runtime",
}
ENGINE_OF_IMAGE: Mapping[str, str] = {
    **{image: engine for engine, image in IMAGE_OF_ENGINE.items()},
    **dict.fromkeys(("dynamo-frontend", "dynamo-planner"), ""),
}
# The images that NVIDIA has published, and the release that had them first: Dynamo's pages
# "Release Artifacts" of 0.9 to 1.6 and "Nightly Release Info", and that of ModelExpress. The
# inventory begins at 0.6.
FIRST_LISTED = "0.6"
FIRST_RELEASE: Mapping[str, str] = {
    **dict.fromkeys(IMAGE_OF_ENGINE.values(), FIRST_LISTED),
    **{f"{image}-nightly": FIRST_LISTED for image in IMAGE_OF_ENGINE.values()},
    "kubernetes-operator": FIRST_LISTED,
    "modelexpress-server": FIRST_LISTED,
    "dynamo-frontend": "0.8",
    "snapshot-agent": "1.0",
    "dynamo-planner": "1.1",
    # The page of 1.6 has it; which release was the first is not known.
    "dynamo-sidecar": FIRST_LISTED,
    # Not in the inventory, but Dynamo's profiler derives its name from the planner's image.
    "epp-image": FIRST_LISTED,
}
_SUGGESTED = [image for image in FIRST_RELEASE if image != "epp-image"]
_OF_NVIDIA = re.compile(r"^nvcr\.io/nvidia/ai-dynamo/([\w.-]+)(:v?\d+\.\d+\.\d+)?")
_RUNTIME = re.compile(rf"^nvcr\.io/nvidia/ai-dynamo/({'|'.join(ENGINE_OF_IMAGE)})[^/]*$")


_IMAGE_OF_ROLE: Mapping[str, str] = {  # the endpoint picker is in the image of the frontend
    Role.EPP: "dynamo-frontend",
    Role.FRONTEND: "dynamo-frontend",
    Role.PLANNER: "dynamo-planner",
}


class NvidiaImage(NamedTuple):
    name: str
    # The tag if it is that of a release.
    release: str | None


def nvidia_image(reference: str) -> NvidiaImage | None:
    """An image in NVIDIA's registry of Dynamo; None if it is in another."""
    match = _OF_NVIDIA.match(reference)
    return NvidiaImage(match[1], match[2]) if match else None


def is_published(reference: str) -> bool:
    """Whether NVIDIA has an image of this name, so that its user and files are known."""
    image = nvidia_image(reference)
    return image is not None and image.name in FIRST_RELEASE


def near_image(name: str, component: Component) -> str:
    """The published image that was probably meant; empty if none is likely."""
    of_engine = IMAGE_OF_ENGINE.get(component.engine or "")
    near = nearest(name, _SUGGESTED, KEY_CUTOFF)
    return of_engine or near or _IMAGE_OF_ROLE.get(component.role, "")


def runtime_image(reference: str) -> str | None:
    """The name in `ENGINE_OF_IMAGE` with which an image of NVIDIA begins."""
    match = _RUNTIME.match(reference)
    return match[1] if match else None


def imported_engine(process: Process) -> str | None:
    """The engine that the process imports."""
    package, name, *_ = (*(process.launch.module or "").split("."), "")
    if package == "dynamo" and name in IMAGE_OF_ENGINE:
        return name
    if package == "dynamo" and name == "frontend":
        processor = process.text("--dyn-chat-processor", "DYN_CHAT_PROCESSOR")
        return processor[0] if processor and processor[0] in ("vllm", "sglang") else None
    return None


def images_of(pod: Pod, is_v1alpha1: bool) -> Iterator[tuple[Path, str]]:
    """The images of a pod with their fields: of the main container, sidecars, init containers."""
    yield ("main", "image"), pod.image
    for key in ("containers", "initContainers"):
        for index, container in enumerate(mappings(pod.spec.get(key))):
            is_main = key == "containers" and container.get("name") == "main"
            image = container.get("image")
            if isinstance(image, str) and (is_v1alpha1 or not is_main):
                yield ("pod", key, index, "image"), image
