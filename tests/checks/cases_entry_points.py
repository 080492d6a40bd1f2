"""Cases of modules, flags of programs without an engine, and images that some releases have."""

from __future__ import annotations

from tests.checks.cases_deployment import COMPONENTS, MAIN, pod
from tests.checks.support import VLLM_AGG, Case, manifest


def planner_of(release: str, module: str, *arguments: str) -> str:
    """A planner's pod of that release that runs a module."""
    planner = pod("planner")
    main = planner["podTemplate"]["spec"]["containers"][0]
    main["image"] = f"nvcr.io/nvidia/ai-dynamo/vllm-runtime:{release}"
    main |= {"command": ["python3", "-m", module], "args": list(arguments)}
    return manifest(VLLM_AGG, {f"{COMPONENTS}/planner": planner})


def with_worker_image(name: str) -> str:
    image = f"nvcr.io/nvidia/ai-dynamo/{name}"
    return manifest(VLLM_AGG, {f"{COMPONENTS}/worker/{MAIN}/image": image})


CASES: tuple[Case, ...] = (
    Case(  # up to 0.9
        rule="PS769",
        bad=planner_of("1.0.0", "dynamo.planner.planner_sla", "--namespace", "x"),
        near=planner_of("0.9.0", "dynamo.planner.planner_sla", "--namespace", "x"),
    ),
    Case(  # since 1.1
        rule="PS769",
        bad=planner_of("1.0.0", "dynamo.planner.config.planner_config"),
        near=planner_of("1.1.0", "dynamo.planner.config.planner_config"),
    ),
    Case(  # in no release
        rule="PS769",
        bad=planner_of("1.0.0", "dynamo.planner.planner"),
        near=planner_of("1.0.0", "dynamo.planner", "--config", "{}"),
    ),
    Case(  # the planner has only --config since 1.0
        rule="PS144",
        bad=planner_of("1.0.0", "dynamo.planner", "--environment", "kubernetes"),
        near=planner_of("1.0.0", "dynamo.planner", "--config", "{}"),
    ),
    Case(
        rule="PS141",
        bad=planner_of("1.0.0", "dynamo.global_planner", "--max-total-gpus", "8"),
        near=planner_of("1.1.0", "dynamo.global_planner", "--max-total-gpus", "8"),
    ),
    Case(
        rule="PS141",
        bad=planner_of("1.6.1", "dynamo.router", "--endpoint", "a.b.c", "--no-such-flag", "1"),
        near=planner_of("1.6.1", "dynamo.router", "--endpoint", "a.b.c", "--block-size", "16"),
    ),
    Case(
        rule="PS783",
        bad=with_worker_image("trtllm-runtime:1.6.1"),
        near=with_worker_image("vllm-runtime:1.6.1"),
    ),
    Case(  # since 1.1
        rule="PS783",
        bad=with_worker_image("dynamo-planner:1.0.2"),
        near=with_worker_image("dynamo-planner:1.1.0"),
        also=("PS775",),
    ),
)
