"""Cases of modules, flags of programs without an engine, and images that some releases have."""

from __future__ import annotations

from typing import Any

from tests.checks.cases_deployment import COMPONENTS, MAIN, pod
from tests.checks.support import Case, Words, X, vary, vllm_agg, vllm_agg_dgd


def planner_of(release: str, module: str, *arguments: str) -> str:
    """A planner's pod of that release that runs a module."""
    planner = pod("planner")
    main = planner["podTemplate"]["spec"]["containers"][0]
    main["image"] = f"nvcr.io/nvidia/ai-dynamo/vllm-runtime:{release}"
    main |= {"command": ["python3", "-m", module], "args": list(arguments)}
    return vllm_agg_dgd({f"{COMPONENTS}/planner": planner})


def with_worker_image(name: str) -> str:
    image = f"nvcr.io/nvidia/ai-dynamo/{name}"
    return vllm_agg_dgd({f"{COMPONENTS}/worker/{MAIN}/image": image})


OWN_IMAGE = "registry.example/team/vllm-runtime"


def with_init_container(image: str) -> dict[str, Any]:
    container = {"name": "fetch", "image": image}
    return {f"{COMPONENTS}/worker/podTemplate/spec/initContainers": [container]}


CASES: tuple[Case, ...] = (
    # up to 0.9
    vary("PS769", planner_of, X, "dynamo.planner.planner_sla", "--namespace", "x")(
        "1.0.0", "0.9.0"
    ),
    # since 1.1
    vary("PS769", planner_of, X, "dynamo.planner.config.planner_config")("1.0.0", "1.1.0"),
    # in no release
    vary("PS769", planner_of, "1.0.0", X)(
        "dynamo.planner.planner", Words("dynamo.planner", "--config", "{}")
    ),
    # the planner has only --config since 1.0
    vary("PS144", planner_of, "1.0.0", "dynamo.planner", X)(
        Words("--environment", "kubernetes"), Words("--config", "{}")
    ),
    vary("PS141", planner_of, X, "dynamo.global_planner", "--max-total-gpus", "8")(
        "1.0.0", "1.1.0"
    ),
    vary("PS141", planner_of, "1.6.1", "dynamo.router", "--endpoint", "a.b.c", X)(
        Words("--no-such-flag", "1"), Words("--block-size", "16")
    ),
    vary("PS783", with_worker_image)("trtllm-runtime:1.6.1", "vllm-runtime:1.6.1"),
    *(
        vary("PS784", vllm_agg_dgd, {f"{COMPONENTS}/worker/{MAIN}/image": X})(
            f"{OWN_IMAGE}{bad}", f"{OWN_IMAGE}:1.6.1", is_repaired_by_near=True
        )
        for bad in (":1.6.1:2", ":", "/Vllm:1.6.1", ":1.6 .1", ":1.6.1@sha256:12")
    ),
    # of an init container
    vary("PS784", vllm_agg_dgd)(
        with_init_container("https://registry.example/tools:1"),
        with_init_container("registry.example/tools:1"),
        is_repaired_by_near=True,
    ),
    *(
        vary("PS785", vllm_agg, {"model/id": X})(bad, near)
        for bad, near in (
            ("openai/gptoss-120b", "acme/gptoss-120b"),
            ("openai/gpt-oss-12b", "acme/gpt-oss-12b"),
            ("opennai/gpt-oss-120b", "acme/gpt-oss-120b-finetuned"),
        )
    ),
    # since 1.1
    vary("PS783", with_worker_image)(
        "dynamo-planner:1.0.2", "dynamo-planner:1.1.0", also=("PS775",)
    ),
)
