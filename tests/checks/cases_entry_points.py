"""Cases of modules, flags of programs without an engine, and images that some releases have."""

from __future__ import annotations

from typing import Any

from tests.checks.cases_deployment import COMPONENTS, MAIN, pod
from tests.checks.support import VLLM_AGG, Case, graph, manifest


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


OWN_IMAGE = "registry.example/team/vllm-runtime"


def with_init_container(image: str) -> dict[str, Any]:
    container = {"name": "fetch", "image": image}
    return {f"{COMPONENTS}/worker/podTemplate/spec/initContainers": [container]}


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
    *(
        Case(
            rule="PS784",
            bad=manifest(VLLM_AGG, {f"{COMPONENTS}/worker/{MAIN}/image": f"{OWN_IMAGE}{bad}"}),
            near=manifest(VLLM_AGG, {f"{COMPONENTS}/worker/{MAIN}/image": f"{OWN_IMAGE}:1.6.1"}),
            is_repaired_by_near=True,
        )
        for bad in (":1.6.1:2", ":", "/Vllm:1.6.1", ":1.6 .1", ":1.6.1@sha256:12")
    ),
    Case(  # of an init container
        rule="PS784",
        bad=manifest(VLLM_AGG, with_init_container("https://registry.example/tools:1")),
        near=manifest(VLLM_AGG, with_init_container("registry.example/tools:1")),
        is_repaired_by_near=True,
    ),
    *(
        Case(
            rule="PS785",
            bad=graph(VLLM_AGG, {"model/id": bad}),
            near=graph(VLLM_AGG, {"model/id": near}),
        )
        for bad, near in (
            ("openai/gptoss-120b", "acme/gptoss-120b"),
            ("openai/gpt-oss-12b", "acme/gpt-oss-12b"),
            ("opennai/gpt-oss-120b", "acme/gpt-oss-120b-finetuned"),
        )
    ),
    Case(  # since 1.1
        rule="PS783",
        bad=with_worker_image("dynamo-planner:1.0.2"),
        near=with_worker_image("dynamo-planner:1.1.0"),
        also=("PS775",),
    ),
)
