"""Rules about the image of a process: does it contain the module that is started?"""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.containers import Process, processes
from penstock.checks.version_range import Versions
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
RUNTIME = {"vllm": "vllm-runtime", "sglang": "sglang-runtime", "trtllm": "tensorrtllm-runtime"}


def _contained(process: Process) -> tuple[str, str] | None:
    """(image, engine in it) of an image of NVIDIA; the engine is empty if it has none."""
    found = IMAGE.match(process.image)
    return (found[1], ENGINES[found[1]]) if found else None


@rule(
    id="PS775",
    title="image of another engine",
    level=Level.ERROR,
    cause="The image contains another engine than the one that the command, engine.kind or the "
    "frontend's chat processor needs.",
    effect="The process exits with ModuleNotFoundError in a crash loop.",
    remedy="Use the image of the engine that the command runs.",
    source="container/ of ai-dynamo/dynamo (one image for each engine); dynamo/frontend/main.py "
    "278 and 303 of 1.6.1 (chat processor)",
    versions=Versions(dynamo=">=0.4"),
)
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
