"""Fixes and places that the reviews of the ninth, tenth and twelfth sample called wrong."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.checks.finding import Finding
from tests.checks.cases_autoscaling import beside
from tests.checks.model_folders import model
from tests.checks.own_manifests import alpha, claim, component, deployment, flags
from tests.checks.support import (
    REMOVE,
    SGLANG_AGG,
    check,
    dump,
    fired,
    graph,
    trtllm_disagg,
    vllm_agg_dgd,
    vllm_disagg_dgd,
)

MAIN = "dgd/spec/components/worker/podTemplate/spec/containers/main"
NVIDIA = "nvcr.io/nvidia/ai-dynamo"
VLLM = ["-m", "dynamo.vllm", "--model", "openai/gpt-oss-120b"]


def only(text: str, rule: str) -> Finding:
    (finding,) = [finding for finding in check(text) if finding.rule == rule and finding.line]
    return finding


@pytest.mark.parametrize(
    ("rule", "command", "args", "fix"),
    [
        (
            "PS771",
            ["/bin/sh", "-c"],
            ["python3", *VLLM],
            "Replace `/bin/sh -c` with python3 in command, and remove python3 from args.",
        ),
        (
            "PS771",
            ["/bin/sh", "-c", "python3"],
            VLLM,
            "Replace `/bin/sh -c` with python3 in command, so that it gets the arguments.",
        ),
        (
            "PS769",
            ["python3"],
            ["python3 -m dynamo.vllm"],
            "Write each word after python3 as an entry of args; no shell splits it.",
        ),
        (
            "PS769",
            ["python3"],
            ["python3", *VLLM],
            "Remove python3 from args, as the command python3 is the interpreter.",
        ),
    ],
)
def test_the_fixed_command_names_python_once(
    rule: str, command: list[str], args: list[str], fix: str
) -> None:
    text = vllm_agg_dgd({f"{MAIN}/command": command, f"{MAIN}/args": args})
    assert only(text, rule).fix == fix


def test_an_amount_that_is_text_in_the_crd() -> None:
    finding = only(alpha({"resources": {"limits": {"gpu": "2", "cpu": "6-10"}}}), "PS732")
    assert finding.fix == "Write an amount such as 500m or 4."
    assert "API server accepts" in finding.why
    of_container = only(alpha({}, resources={"limits": {"memory": "6-10Gi"}}), "PS732")
    assert of_container.fix == "Write an amount such as 64Gi."
    assert "API server rejects" in of_container.why


def test_a_topology_of_v1alpha1_has_a_profile() -> None:
    finding = only(alpha({"topologyConstraint": {"packDomain": "rack"}}), "PS776")
    assert finding.fix == "Set spec.topologyConstraint with topologyProfile."


def test_the_type_of_an_endpoint_picker() -> None:
    config = {"eppConfig": {"configMapRef": {"name": "epp", "key": "epp.yaml"}}}
    fix = "Set the componentType to epp, or move eppConfig to the endpoint picker."
    assert only(alpha({**config, "componentType": "planner"}), "PS778").fix == fix
    assert fired(alpha({**config, "componentType": "Epp"})) >= {"PS786"}
    assert "PS778" not in fired(alpha({**config, "componentType": "Epp"}))


@pytest.mark.parametrize(
    ("worker", "image", "fix"),
    [
        ({}, "dynamo-vllm", "Use vllm-runtime."),
        ({"componentType": "epp"}, "epp-images", "Use dynamo-frontend."),
        ({"componentType": "epp"}, "frontend-image", "Use dynamo-frontend."),
        ({"componentType": "frontend"}, "dynamo-base", "Use dynamo-frontend."),
    ],
)
def test_the_image_of_the_engine_replaces_one_that_does_not_exist(
    worker: dict[str, Any], image: str, fix: str
) -> None:
    command = {} if not worker else {"command": ["python3", "-m", "dynamo.frontend"]}
    text = alpha(worker, image=f"{NVIDIA}/{image}:1.6.1", **command)
    assert only(text, "PS783").fix == fix


@pytest.mark.parametrize(
    ("page", "image"),
    [
        ("https://hub.docker.com/r/intel/ai-dynamo-xpu:v1", "docker.io/intel/ai-dynamo-xpu:v1"),
        ("https://hub.docker.com/_/python:3.12", "docker.io/library/python:3.12"),
        ("https://quay.io/repository/team/vllm:1.0.0", "quay.io/team/vllm:1.0.0"),
        (
            "https://catalog.ngc.nvidia.com/orgs/nvidia/teams/ai-dynamo/containers/vllm-runtime",
            f"{NVIDIA}/vllm-runtime",
        ),
        ("https://registry.example/vllm:1.0.0", "registry.example/vllm:1.0.0"),
    ],
)
def test_the_page_of_an_image_is_not_its_name(page: str, image: str) -> None:
    assert only(alpha({}, image=page), "PS784").fix == f"Write `{image}`."


def test_a_missing_separator_is_reported_once() -> None:
    graph = alpha({})
    volume = dump(claim("ReadWriteMany"))
    finding = only(volume + graph, "PS009")
    begin = len(volume.splitlines()) + 1
    assert (finding.line, finding.fix) == (begin, f"Insert `---` before line {begin}.")
    assert "PS009" not in fired(f"{volume}---\n{graph}")
    repeated = graph.replace("metadata:\n", "metadata:\n  name: other\n", 1)
    assert only(repeated, "PS009").fix.startswith("Copy what is needed")


def test_a_variable_that_is_not_filled_in() -> None:
    text = alpha({}).replace("mainContainer:\n", "mainContainer:${ENVIRONMENT}\n", 1)
    finding = only(text, "PS004")
    assert finding.fix == "Fill in ${ENVIRONMENT}."
    spaceless = alpha({}).replace("mainContainer:\n", "mainContainer:x\n", 1)
    assert only(spaceless, "PS004").fix == "Write a space after `mainContainer:`."


@pytest.mark.parametrize("flag", ["--compilation-config", "--compilation_config"])
@pytest.mark.parametrize("is_script", [False, True])
def test_a_flag_is_found_in_both_spellings(flag: str, is_script: bool) -> None:
    words = ["python3", *VLLM, flag, '{"pass_config":{"enable_noop":true}}']
    launch: dict[str, list[str]] = {f"{MAIN}/command": words, f"{MAIN}/args": []}
    if is_script:
        script = "\n".join((" ".join(words[:-2]) + " \\", f"  {flag} '{words[-1]}'\n"))
        launch = {f"{MAIN}/command": ["bash", "-c"], f"{MAIN}/args": [script]}
    text = vllm_agg_dgd(launch)
    line = next(n for n, line in enumerate(text.splitlines(), 1) if flag in line)
    assert only(text, "PS155").line == line


def test_a_flag_with_an_equals_sign_is_found_in_a_script() -> None:
    flag = "--compilation_config.pass_config.enable_noop=true"
    script = f"python3 {' '.join(VLLM)} \\\n  {flag}\n"
    text = vllm_agg_dgd({f"{MAIN}/command": ["bash", "-c"], f"{MAIN}/args": [script]})
    line = next(n for n, line in enumerate(text.splitlines(), 1) if flag in line)
    assert only(text, "PS155").line == line


@pytest.mark.parametrize(("tag", "is_reported"), [("dev.1", True), ("dev.2", False)])
def test_a_build_for_a_model_may_have_a_newer_engine(tag: str, is_reported: bool) -> None:
    launch = ["python3", *VLLM, "--attention-config", '{"use_fp4_indexer_cache":true}']
    image = f"{NVIDIA}/vllm-runtime:1.2.0-deepseek-v4-cuda13-{tag}"
    assert ("PS169" in fired(alpha({}, command=launch, image=image))) is is_reported


@pytest.mark.parametrize(("tag", "is_reported"), [("0.5.0", False), ("0.5.1", True)])
def test_the_first_names_of_the_transfer_backends(tag: str, is_reported: bool) -> None:
    key = "engine/config/cache_transceiver_config/backend"
    image = f"{NVIDIA}/tensorrtllm-runtime:{tag}"
    text = trtllm_disagg({key: "default", "engine/image": image})
    assert ("PS102" in fired(text)) is is_reported


def test_an_image_of_another_program_is_built_by_the_user() -> None:
    text = alpha({}, image=f"{NVIDIA}/fastvideo-runtime:1.6.1", command=["python", "worker.py"])
    assert only(text, "PS783").fix.startswith("If the image is your own build, name the repository")


def test_only_published_images_have_a_known_user() -> None:
    home = [{"name": "HF_HOME", "value": "/root"}]
    assert "PS715" in fired(alpha({}, env=home))
    assert "PS715" not in fired(alpha({}, env=home, image=f"{NVIDIA}/fastvideo-runtime:1.6.1"))


def test_lines_that_belong_together_are_indented_together() -> None:
    text = alpha({"envs": [{"name": "A", "value": "1"}]})
    lines = text.splitlines()
    first = lines.index("      envs:")
    lines[first : first + 3] = [line[1:] for line in lines[first : first + 3]]
    finding = only("\n".join(lines), "PS004")
    fix = f"Indent lines {first + 1} to {first + 3} by 1 space more."
    assert (finding.line, finding.fix) == (first + 1, fix)


@pytest.mark.parametrize(
    ("field", "value", "fix"),
    [
        ("enableFailover", True, "Use failover.enabled."),
        (
            "rollingUpdate",
            {"maxSurge": 1},
            "Remove it, and set the component's annotations "
            "nvidia.com/deployment-rolling-update-max-surge and "
            "nvidia.com/deployment-rolling-update-max-unavailable.",
        ),
        ("enableUnknown", True, "Remove it."),
    ],
)
def test_what_the_operator_reads_instead_of_a_field(field: str, value: Any, fix: str) -> None:
    assert only(alpha({field: value}), "PS768").fix == fix


def test_an_option_without_a_command_gets_the_module_of_its_engine() -> None:
    text = alpha(
        {}, image=f"{NVIDIA}/tensorrtllm-runtime:0.8.1", command=None, args=["--model-path", "m"]
    )
    assert only(text, "PS769").fix == "Set command, such as [python3, -m, dynamo.trtllm]."


def test_the_existing_flag_is_named_as_it_is_written() -> None:
    launch = ["python3", "-m", "dynamo.vllm", "--model", "Qwen/Qwen3-0.6B"]
    parallel = ["--data-parallel-size", "2", "--enable-expert-parallel"]
    finding = only(
        alpha({"resources": {"limits": {"gpu": "2"}}}, command=[*launch, *parallel]), "PS204"
    )
    assert finding.fix.endswith("Replace the existing `--enable-expert-parallel`.")
    assert "--no-enable-expert-parallel" in finding.yaml


def test_a_flag_that_is_repeated_without_a_value_is_one_finding() -> None:
    repeated = ["--max-model-len", "--max-model-len", "4096"]
    found = fired(alpha({}, command=["python3", *VLLM, *repeated]))
    assert found & {"PS143", "PS150"} == {"PS150"}
    assert "PS143" in fired(alpha({}, command=["python3", *VLLM, "--max-model-len"]))


@pytest.mark.parametrize(("image", "is_xpu"), [("vllm-runtime-xpu", True), ("vllm-runtime", False)])
def test_the_buffers_of_nixl_on_an_xpu(image: str, is_xpu: bool) -> None:
    path = f"{MAIN.replace('worker', 'prefill')}/image"
    changes = {"prefill/kv-transfer-config": REMOVE, path: f"{NVIDIA}/{image}:1.6.1"}
    finding = only(vllm_disagg_dgd(changes), "PS401")
    assert ("kv_buffer_device" in finding.yaml) is is_xpu


def test_a_planner_keeps_the_names_of_its_file() -> None:
    message = "optimization_target throughput ignores ttft and itl_ms"
    assert only(beside(ttft=300, itl_ms=20), "PS813").message == message


COMPONENTS = "dgd/spec/components"
EXPRESS = f"{NVIDIA}/modelexpress-server"


def with_express(image: str, *command: str) -> str:
    """An aggregated deployment, with another component of type frontend."""
    main = {"name": "main", "image": image, "command": [*command], "args": []}
    pod = {"spec": {"containers": [main]}}
    express = {"name": "express", "type": "frontend", "replicas": 1, "podTemplate": pod}
    return vllm_agg_dgd({f"{COMPONENTS}/express": express, f"{COMPONENTS}/frontend/replicas": 1})


@pytest.mark.parametrize("image", [f"{EXPRESS}:0.3.0", "registry.example/modelexpress:0.5.1"])
def test_modelexpress_has_other_versions_and_is_no_frontend(image: str) -> None:
    of_frontend = {"PS505", "PS904", "PS905"}
    assert of_frontend & fired(with_express(image, "./modelexpress-server")) == set()
    text = with_express(f"{NVIDIA}/vllm-runtime:1.3.1", "python3", "-m", "dynamo.frontend")
    assert {"PS904", "PS905"} <= fired(text)


def test_only_components_that_run_the_frontend_are_counted() -> None:
    def without_sync(text: str) -> str:
        return text.replace("--router-replica-sync", "--no-router-replica-sync")

    image = f"{NVIDIA}/vllm-runtime:1.6.1"
    frontend = ("python3", "-m", "dynamo.frontend", "--no-router-replica-sync")
    assert "PS505" in fired(without_sync(with_express(image, *frontend)))
    other = without_sync(with_express(image, "nginx"))
    assert "PS505" not in fired(other)
    single = [finding for finding in check(other) if finding.rule == "PS810"]
    assert [finding.component for finding in single] == ["frontend"]


def on_rtx(tp: int, nodes: int) -> str:
    args = flags("openai/gpt-oss-120b", tensor_parallel_size=tp)
    worker = component("vllm", *args, gpus=tp // nodes, gpu="rtx")
    return deployment(worker | ({"multinode": {"nodeCount": nodes}} if nodes > 1 else {}))


def test_gpus_without_nvlink_use_pcie_inside_of_a_node() -> None:
    assert "PS207" not in fired(on_rtx(8, 1))
    finding = only(on_rtx(16, 2), "PS207")
    assert "larger than the 8 GPUs of the worker on a node" in finding.message
    assert finding.fix.startswith("Limit tensor parallelism to 8,")


REASONING, TOOLS = ("--reasoning-parser", "kimi_k2"), ("--tool-call-parser", "kimi_k2")


@pytest.mark.parametrize(
    ("engine", "parsers", "fix"),
    [
        (
            "sglang",
            (*REASONING, *TOOLS),
            "Replace --reasoning-parser with --dyn-reasoning-parser kimi_k25. "
            "Replace --tool-call-parser with --dyn-tool-call-parser kimi_k2.",
        ),
        (
            "sglang",
            TOOLS,
            "Set --dyn-reasoning-parser kimi_k25. "
            "Replace --tool-call-parser with --dyn-tool-call-parser kimi_k2.",
        ),
        # vLLM's own parser may stay: it is for structured output
        (
            "vllm",
            REASONING,
            "Set --dyn-reasoning-parser kimi_k25 and --dyn-tool-call-parser kimi_k2.",
        ),
    ],
)
def test_dynamos_parsers_replace_those_of_sglang(
    engine: str, parsers: tuple[str, ...], fix: str
) -> None:
    worker = component(engine, "--model", "moonshotai/Kimi-K2.5", *parsers)
    finding = only(deployment(worker), "PS602")
    assert finding.fix == fix
    assert bool(finding.yaml) is (engine == "vllm")


def large(layers: int) -> dict[str, Any]:
    folder = model(
        f"llama-{layers}",
        model_type="llama",
        num_hidden_layers=layers,
        num_attention_heads=64,
        hidden_size=8192,
        intermediate_size=28672,
    )
    one_gpu = {"hardware": {"gpu": "h200", "gpus_per_node": 8}, "worker/gpus": 1}
    return one_gpu | {"model/id": "acme/m", "model/path": folder, "model/context_length": 8192}


@pytest.mark.parametrize(
    ("layers", "fix"),
    [
        (40, "Set the memory fraction to 0.9."),
        (72, "Reduce max-running-requests and chunked-prefill-size, or use more GPUs: the weights"),
    ],
)
def test_a_lower_memory_fraction_holds_the_weights(layers: int, fix: str) -> None:
    text = graph(SGLANG_AGG, large(layers) | {"worker/config/mem-fraction-static": 0.97})
    finding = only(text, "PS306")
    assert finding.fix.startswith(fix)
    assert ("0.9" in finding.yaml) is (layers == 40)


def test_without_the_size_of_the_weights_the_fix_is_a_condition() -> None:
    args = ("--model-path", "acme/unknown", "--mem-fraction-static", "0.97")
    finding = only(deployment(component("sglang", *args)), "PS306")
    assert finding.fix.startswith("If the weights and the KV cache fit into 90% of the memory, set")
    assert finding.yaml == ""


@pytest.mark.parametrize(("end", "in_script"), [(' "$@"', False), (" -m dynamo.trtllm", True)])
def test_a_script_that_passes_its_arguments_on_is_not_edited(end: str, in_script: bool) -> None:
    script = ["bash", "-c", f"exec python3{end}", "--"]
    words = ["-m", "dynamo.trtllm", "--model-path", "openai/gpt-oss-120b"]
    worker = component("trtllm")
    worker["podTemplate"]["spec"]["containers"][0] |= {"command": script, "args": words}
    finding = only(deployment(worker), "PS501")
    assert ("in the launch script" in finding.fix) is in_script
    assert ("--publish-kv-events" in finding.yaml) is not in_script


def test_the_host_of_an_address_in_a_variable_may_be_a_placeholder() -> None:
    variables = {"HF_ENDPOINT": "http://<hub-endpoint>:8001", "NOTE": "as in http://<host>"}
    text = deployment(component("vllm", *flags("Qwen/Qwen3-8B"), env=variables))
    finding = only(text, "PS909")
    assert finding.message == "<hub-endpoint> in 1 place must be replaced"
