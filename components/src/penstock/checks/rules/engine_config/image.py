"""Rules about the image of an engine."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment

# The names of Dynamo's images, in any registry.
RUNTIME = re.compile(r"(?:^|[-_])(vllm|sglang|tensorrtllm|trtllm)-runtime(?:$|[-_:@])")
ENGINES = {
    "vllm": Engine.VLLM,
    "sglang": Engine.SGLANG,
    "tensorrtllm": Engine.TRTLLM,
    "trtllm": Engine.TRTLLM,
}
IMAGES = {
    Engine.VLLM: "vllm-runtime",
    Engine.SGLANG: "sglang-runtime",
    Engine.TRTLLM: "tensorrtllm-runtime",
}


@rule(
    id="PS163",
    title="image of another engine",
    level=Level.ERROR,
    cause="Each of Dynamo's images contains one engine, and the command runs the worker of "
    "another one.",
    effect="The worker exits at startup: the engine's Python package is missing.",
    remedy="Use the image of the engine that the command starts.",
    source="container/Dockerfile.vllm, .sglang and .trtllm of ai-dynamo/dynamo",
    versions=Versions(dynamo=">=0.4,<1.7"),
)
def image_of_other_engine(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        image = worker.component.image
        found = RUNTIME.search(image.rpartition("/")[2])
        if found is None or worker.engine not in IMAGES or ENGINES[found[1]] is worker.engine:
            continue
        name = IMAGES[worker.engine]
        yield RuleResult(
            location=worker.location("field", "main", "image"),
            message=f"{worker.name} runs {worker.engine.module} in {image}, which contains "
            f"{ENGINES[found[1]]}",
            fix=Fix(text=f"Use {name} of the same version."),
        )
